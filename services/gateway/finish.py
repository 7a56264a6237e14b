"""Why a sequence ended, in the two words that OpenAI's API and its counters have for it."""

from tandem.v1.target_pb2 import Finish

from services.errors import Internal
from services.wire.codec import FINISH_KINDS

REASONS = {
    "stop_token": "stop",
    "stop_string": "stop",
    "grammar": "stop",
    "length": "length",
    "context": "length",
}


def kind(finish: Finish | None) -> str:
    name = FINISH_KINDS.name(finish.kind) if finish else None
    if name is None:
        raise Internal("the target ended a sequence without saying why")
    return name


def reason(finish: Finish | None) -> str:
    return REASONS[kind(finish)]
