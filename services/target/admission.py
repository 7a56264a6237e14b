"""A call as it came over the wire, checked field by field and turned into a `Request`. Nothing is half applied.

The gateway has checked most of it already; a caller that is no gateway gets the same answers.
"""

import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from google.protobuf.message import Message
from tandem.v1 import types_pb2
from tandem.v1.target_pb2 import Limits, TargetServiceGenerateRequest

from services.engine.sampling import SamplingParams
from services.errors import ContextTooLong, InvalidRequest, TokenizerMismatch, UnknownModel
from services.target.policy.bands import Band, checked
from services.target.request import DRAFTED_MODES, Request, Speculation
from services.wire.bounds import BIAS, SAMPLING
from services.wire.codec import MODES

MAX_BANDS = 16
"""Bands of one request."""

SEEDS = 2**53
"""Drawn seeds stay below what a JSON number holds exactly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """What this target accepts. `defaults` are the checkpoint's generation defaults."""

    model: str
    tokenizer_hash: str
    vocab_size: int
    context: int
    stop_ids: frozenset[int]
    defaults: types_pb2.Sampling
    limits: Limits

    def read(self, call: TargetServiceGenerateRequest) -> Request:
        """Check `call`; raises what the client should see."""
        if call.model not in ("", self.model):
            raise UnknownModel(f"model {call.model!r} is not served; served is {self.model!r}")
        if call.tokenizer_hash not in ("", self.tokenizer_hash):
            raise TokenizerMismatch("the prompt was encoded with other tokenizer files; fetch them again")
        sampling = types_pb2.Sampling()
        sampling.CopyFrom(self.defaults)
        sampling.MergeFrom(call.sampling)
        stop_ids = frozenset(call.stopping.ids) | (frozenset() if call.stopping.ignore_eos else self.stop_ids)
        self._ids("stopping.ids", call.stopping.ids)
        return Request(
            id=call.request_id,
            prompt=self._prompt(call),
            max_new=self._max_new(call),
            open_ended=not call.HasField("max_tokens"),
            sampling=self._sampling(sampling, call, stop_ids),
            stop_strings=self._stop_strings(call.stopping),
            stop_ids=stop_ids,
            speculation=self._speculation(call.speculation),
        )

    def _prompt(self, call: TargetServiceGenerateRequest) -> tuple[int, ...]:
        if not call.prompt_ids:
            raise InvalidRequest("the prompt is empty; it takes at least one token", field="prompt_ids")
        self._ids("prompt_ids", call.prompt_ids)
        return tuple(call.prompt_ids)

    def _max_new(self, call: TargetServiceGenerateRequest) -> int:
        prompt, room = len(call.prompt_ids), self.context - len(call.prompt_ids)
        if room < 1:
            raise ContextTooLong(
                f"the prompt has {prompt} tokens, and the context holds {self.context} with at least one to generate",
                field="prompt_ids",
            )
        if not call.HasField("max_tokens"):
            return room
        if call.max_tokens < 1:
            raise InvalidRequest("must be at least 1", field="max_tokens")
        if call.max_tokens > room:
            raise ContextTooLong(
                f"the prompt has {prompt} tokens and max_tokens is {call.max_tokens}, "
                f"but the context holds {self.context}",
                field="max_tokens",
            )
        return call.max_tokens

    def _sampling(
        self, sampling: types_pb2.Sampling, call: TargetServiceGenerateRequest, stop_ids: frozenset[int]
    ) -> SamplingParams:
        numbers = {name: check(sampling, name) for name in SAMPLING if sampling.HasField(name)}  # type: ignore[arg-type]
        if sampling.top_k > self.vocab_size:
            raise InvalidRequest(f"must be 0..{self.vocab_size}", field="sampling.top_k")
        if call.HasField("logprobs") and call.logprobs > self.limits.max_logprobs:
            raise InvalidRequest(f"must be 0..{self.limits.max_logprobs}", field="logprobs")
        params = SamplingParams(
            **numbers,
            top_k=sampling.top_k,
            logit_bias=self._bias(sampling),
            banned=frozenset(sampling.banned_ids),
            min_tokens=sampling.min_tokens,
            seed=sampling.seed if sampling.HasField("seed") else secrets.randbelow(SEEDS),
            choice=call.choice,
            logprobs=call.logprobs if call.HasField("logprobs") else None,
        )
        try:
            params.check(self.vocab_size, stop_ids)
        except InvalidRequest as error:
            raise InvalidRequest(str(error), field=f"sampling.{error.field}") from None
        return params

    def _bias(self, sampling: types_pb2.Sampling) -> dict[int, float]:
        if len(sampling.logit_bias) > self.limits.max_logit_bias:
            raise InvalidRequest(f"at most {self.limits.max_logit_bias} ids", field="sampling.logit_bias")
        for entry in sampling.logit_bias:
            if not BIAS.admits(entry.bias):
                raise InvalidRequest(f"must be {BIAS}", field="sampling.logit_bias")
        return {entry.id: entry.bias for entry in sampling.logit_bias}

    def _stop_strings(self, stopping: types_pb2.Stopping) -> tuple[str, ...]:
        most, longest = self.limits.max_stop_strings, self.limits.max_stop_string_chars
        if len(stopping.strings) > most:
            raise InvalidRequest(f"at most {most} stop strings", field="stopping.strings")
        for string in stopping.strings:
            if not 1 <= len(string) <= longest:
                raise InvalidRequest(f"a stop string has 1..{longest} characters", field="stopping.strings")
        return tuple(stopping.strings)

    def _speculation(self, asked: types_pb2.Speculation) -> Speculation:
        length = asked.max_draft_tokens if asked.HasField("max_draft_tokens") else None
        if length is not None and not 1 <= length <= self.limits.max_draft_tokens:
            raise InvalidRequest(f"must be 1..{self.limits.max_draft_tokens}", field="speculation.max_draft_tokens")
        mode = MODES.name(asked.mode, field="speculation.mode") or "auto"
        return Speculation(
            mode=mode,
            max_draft_tokens=length,
            strict=asked.strict,
            stats=asked.stats,
            audit=asked.audit,
            bands=self._bands(asked.bands),
            explain=asked.explain,
        )

    def _bands(self, asked: Sequence[types_pb2.SpeculationBand]) -> tuple[Band, ...] | None:
        if len(asked) > MAX_BANDS:
            raise InvalidRequest(f"at most {MAX_BANDS} bands", field="speculation.bands")
        bands = [
            Band(
                getattr(band, "from"),  # a keyword of Python
                band.to if band.HasField("to") else None,
                tuple(MODES.name(mode, field="speculation.bands") or "" for mode in band.modes),
            )
            for band in asked
        ]
        try:
            return checked(bands, DRAFTED_MODES) or None
        except ValueError as error:
            raise InvalidRequest(str(error), field="speculation.bands") from None

    def _ids(self, field: str, ids: Iterable[int]) -> None:
        for id in ids:
            if id >= self.vocab_size:
                raise InvalidRequest(f"id {id} is not in the vocabulary of {self.vocab_size}", field=field)


def check(sampling: Message, name: str) -> float:
    """The value of a field that is in its bounds; raises InvalidRequest otherwise."""
    value: float = getattr(sampling, name)
    if not SAMPLING[name].admits(value):
        raise InvalidRequest(f"must be {SAMPLING[name]}", field=f"sampling.{name}")
    return value
