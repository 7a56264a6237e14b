"""One choice of a request as it grows: rounds of tokens come in, deltas of text go out."""

from collections.abc import Sequence
from dataclasses import dataclass

from tandem.v1.target_pb2 import Finish, TargetServiceGenerateResponse
from tandem.v1.types_pb2 import FINISH_KIND_STOP_TOKEN, SpeculationReport, Token

from services.gateway.request import GenerationRequest
from services.gateway.targets import Served
from services.gateway.visible import VisibleText


@dataclass(frozen=True, slots=True)
class End:
    """What a request came to, over all its choices."""

    prompt_tokens: int
    completion_tokens: int
    report: SpeculationReport


@dataclass(frozen=True, slots=True, kw_only=True)
class Delta:
    """What one choice gained in one round; `report` counts its rounds so far. `end` is the whole request's, and comes
    with its last delta."""

    choice: int
    text: str
    tokens: Sequence[Token]
    report: SpeculationReport
    finish: Finish | None = None
    end: End | None = None


class Choice:
    """`generated` and `report` are those of the rounds so far."""

    def __init__(self, index: int, request: GenerationRequest, served: Served) -> None:
        self.generated = 0
        self.report = SpeculationReport()
        self._index = index
        self._text = VisibleText(served.tokenizer, request.stop, min_tokens=request.min_tokens or 0)

    def take(self, round: TargetServiceGenerateResponse) -> Delta:
        self.generated += len(round.tokens)
        self.report = round.report
        ids = [token.id for token in round.tokens]
        if not round.HasField("finish"):
            return Delta(choice=self._index, text=self._text.push(ids), tokens=round.tokens, report=round.report)
        finish = round.finish
        if finish.kind == FINISH_KIND_STOP_TOKEN:
            del ids[-1:]  # kept and counted, but it ends the text and is no part of it
        text = self._text.finish(ids, end=finish.text_offset if finish.HasField("text_offset") else None)
        return Delta(choice=self._index, text=text, tokens=round.tokens, report=round.report, finish=finish)
