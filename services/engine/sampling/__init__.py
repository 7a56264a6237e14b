"""From logits to tokens: the row rules of a sequence, its filters, its noise, and the match with a draft."""

from services.engine.sampling.logprobs import TokenLogprobs
from services.engine.sampling.match import Ask, Verdict, sample_and_match
from services.engine.sampling.noise import gumbel
from services.engine.sampling.params import SamplingParams
from services.engine.sampling.rules import Rules

__all__ = ["Ask", "Rules", "SamplingParams", "TokenLogprobs", "Verdict", "gumbel", "sample_and_match"]
