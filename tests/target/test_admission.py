"""What a call may ask for. A wrong field is named, nothing is half applied, and the legal extremes pass."""

import json
import math

import pytest
from tandem.v1.target_pb2 import Limits, TargetServiceGenerateRequest
from tandem.v1.types_pb2 import LogitBias, Sampling, Speculation, SpeculationBand, Stopping

from services.engine.sampling import SamplingParams
from services.errors import (
    BadCheckpoint,
    ContextTooLong,
    InvalidRequest,
    TokenizerMismatch,
    UnknownModel,
)
from services.target.admission import Admission
from services.target.defaults import default_sampling
from services.target.policy.bands import Band
from services.text.files import TokenizerFiles

CONTEXT, VOCAB = 64, 100
LIMITS = Limits(max_stop_strings=4, max_stop_string_chars=8, max_logprobs=5, max_logit_bias=3, max_draft_tokens=15)


def admission(**changes) -> Admission:
    given = {
        "model": "tiny", "tokenizer_hash": "abc", "vocab_size": VOCAB, "context": CONTEXT,
        "stop_ids": frozenset({2}), "defaults": Sampling(), "limits": LIMITS,
    }  # fmt: skip
    return Admission(**given | changes)


def call(**fields) -> TargetServiceGenerateRequest:
    return TargetServiceGenerateRequest(**{"prompt_ids": [5, 6, 7], "max_tokens": 8} | fields)


NUMBERS = {
    "temperature": ([0, 1e-7, 2], [-0.1, 2.0001, math.nan, math.inf, -math.inf]),
    "top_p": ([1e-9, 1], [0, -0.1, 1.0001, math.nan]),
    "min_p": ([0, 1], [-0.1, 1.1, math.nan]),
    "repetition_penalty": ([1e-3, 2], [0, -1, 2.1, math.nan]),
    "presence_penalty": ([-2, 2], [-2.1, 2.1, math.inf]),
    "frequency_penalty": ([-2, 2], [-2.1, 2.1, math.nan]),
    "top_k": ([0, 1, VOCAB], [VOCAB + 1]),
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, (_, bad) in NUMBERS.items() for value in bad])
def test_a_number_outside_its_bounds_is_refused_by_name(name: str, value: float) -> None:
    with pytest.raises(InvalidRequest) as refused:
        admission().read(call(sampling=Sampling(**{name: value})))
    assert refused.value.field == f"sampling.{name}"


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, (good, _) in NUMBERS.items() for value in good])
def test_the_extremes_are_served(name: str, value: float) -> None:
    assert getattr(admission().read(call(sampling=Sampling(**{name: value}))).sampling, name) == value


REFUSED = [
    ("prompt_ids", {"prompt_ids": []}),
    ("prompt_ids", {"prompt_ids": [VOCAB]}),
    ("max_tokens", {"max_tokens": 0}),
    ("logprobs", {"logprobs": 6}),
    ("sampling.logit_bias", {"sampling": Sampling(logit_bias=[LogitBias(id=VOCAB, bias=1)])}),
    ("sampling.logit_bias", {"sampling": Sampling(logit_bias=[LogitBias(id=1, bias=101)])}),
    ("sampling.logit_bias", {"sampling": Sampling(logit_bias=[LogitBias(id=1, bias=math.nan)])}),
    ("sampling.logit_bias", {"sampling": Sampling(logit_bias=[LogitBias(id=i, bias=1) for i in range(4)])}),
    ("sampling.banned_ids", {"sampling": Sampling(banned_ids=[VOCAB])}),
    ("sampling.banned_ids", {"sampling": Sampling(banned_ids=range(VOCAB))}),
    ("sampling.banned_ids", {"sampling": Sampling(banned_ids=set(range(VOCAB)) - {2}, min_tokens=1)}),
    ("stopping.ids", {"stopping": Stopping(ids=[VOCAB])}),
    ("stopping.strings", {"stopping": Stopping(strings=[""])}),
    ("stopping.strings", {"stopping": Stopping(strings=["a", ""])}),
    ("stopping.strings", {"stopping": Stopping(strings=["x" * 9])}),
    ("stopping.strings", {"stopping": Stopping(strings=["x"] * 5)}),
    ("speculation.mode", {"speculation": Speculation(mode=99)}),
    ("speculation.max_draft_tokens", {"speculation": Speculation(max_draft_tokens=0)}),
    ("speculation.max_draft_tokens", {"speculation": Speculation(max_draft_tokens=16)}),
]


@pytest.mark.parametrize(("field", "fields"), REFUSED)
def test_a_field_that_cannot_be_served_is_refused_by_name(field: str, fields: dict) -> None:
    with pytest.raises(InvalidRequest) as refused:
        admission().read(call(**fields))
    assert refused.value.field == field


def test_bands_are_taken_as_they_are() -> None:
    low, high = SpeculationBand(to=100, modes=[4, 3]), SpeculationBand(modes=[3])
    setattr(high, "from", 100)
    read = admission().read(call(speculation=Speculation(bands=[low, high], explain=True))).speculation
    assert read.bands == (Band(0, 100, ("mtp", "ngram")), Band(100, None, ("ngram",)))
    assert read.explain
    assert admission().read(call(speculation=Speculation())).speculation.bands is None


@pytest.mark.parametrize(
    ("bands", "words"),
    [
        ([SpeculationBand()], "no mode"),
        ([SpeculationBand(modes=[99])], "legal are"),
        ([SpeculationBand(modes=[1])], "'auto'"),
        ([SpeculationBand(modes=[3]), SpeculationBand(modes=[3])], "band 2 begins at 0"),
        ([SpeculationBand(to=0, modes=[3])], "band 1 ends at 0"),
        ([SpeculationBand(to=1, modes=[3])] * 17, "at most 16"),
    ],
)
def test_bands_that_are_wrong_are_refused_by_name(bands: list[SpeculationBand], words: str) -> None:
    with pytest.raises(InvalidRequest, match=words) as refusal:
        admission().read(call(speculation=Speculation(bands=bands)))
    assert refusal.value.field == "speculation.bands"


def test_an_unknown_mode_is_answered_with_the_six() -> None:
    with pytest.raises(InvalidRequest, match="auto, none, ngram, mtp, dflash, dflash2"):
        admission().read(call(speculation=Speculation(mode=99)))


@pytest.mark.parametrize(("prompt", "max_tokens"), [(CONTEXT, None), (CONTEXT + 1, 1), (CONTEXT - 1, 2), (1, CONTEXT)])
def test_past_the_context_names_both_lengths(prompt: int, max_tokens: int | None) -> None:
    with pytest.raises(ContextTooLong, match=rf"{prompt} tokens.* {CONTEXT}"):
        admission().read(TargetServiceGenerateRequest(prompt_ids=[1] * prompt, max_tokens=max_tokens))


@pytest.mark.parametrize("prompt", [1, CONTEXT - 1])
def test_without_max_tokens_the_rest_of_the_context_is_used(prompt: int) -> None:
    request = admission().read(TargetServiceGenerateRequest(prompt_ids=[1] * prompt))
    assert (request.max_new, request.open_ended) == (CONTEXT - prompt, True)
    assert request.rows == CONTEXT - 1


def test_another_model_or_tokenizer_is_refused() -> None:
    with pytest.raises(UnknownModel, match="tiny"):
        admission().read(call(model="huge"))
    with pytest.raises(TokenizerMismatch):
        admission().read(call(tokenizer_hash="xyz"))
    assert admission().read(call(model="tiny", tokenizer_hash="abc"))


def test_a_request_without_a_seed_gets_one_that_json_can_hold() -> None:
    seeds = {admission().read(call()).sampling.seed for _ in range(20)}
    assert len(seeds) > 1
    assert all(0 <= seed < 2**53 for seed in seeds)
    assert admission().read(call(sampling=Sampling(seed=-(2**63)))).sampling.seed == -(2**63)


def test_model_end_tokens_stop_unless_they_are_ignored() -> None:
    assert admission().read(call(stopping=Stopping(ids=[9]))).stop_ids == {2, 9}
    assert admission().read(call(stopping=Stopping(ids=[9], ignore_eos=True))).stop_ids == {9}


def test_what_the_caller_left_out_takes_the_models_defaults() -> None:
    defaults = Sampling(temperature=0.6, top_k=20)
    params = admission(defaults=defaults).read(call(sampling=Sampling(top_k=0, seed=1))).sampling
    neutral = SamplingParams(temperature=0.6, seed=1, logit_bias={}, banned=frozenset())
    assert params == neutral


def files(config: dict) -> TokenizerFiles:
    return TokenizerFiles({"generation_config.json": json.dumps(config).encode()})


def test_generation_defaults_are_read_from_the_checkpoint() -> None:
    config = {"temperature": 0.6, "top_k": 20, "top_p": 0.95, "eos_token_id": [1, 2], "do_sample": True, "min_p": None}
    assert default_sampling(files(config)) == Sampling(temperature=0.6, top_k=20, top_p=0.95)
    assert default_sampling(TokenizerFiles({})) == Sampling()


@pytest.mark.parametrize("config", [{"temperature": "hot"}, {"top_p": 7}, {"top_k": -1}, {"temperature": -1}])
def test_defaults_that_no_request_could_ask_for_are_a_bad_checkpoint(config: dict) -> None:
    with pytest.raises(BadCheckpoint, match=next(iter(config))):
        default_sampling(files(config))
