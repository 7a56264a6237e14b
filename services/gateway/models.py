"""What is served, for `GET /v1/models`."""

import time
from typing import Any

from tandem.v1.target_pb2 import DrafterState, TargetServiceDescribeResponse

from services.wire.codec import MODES

STARTED = int(time.time())


def card(served: TargetServiceDescribeResponse) -> dict[str, Any]:
    """One entry of the list. `speculation.modes` are those that a request would get now."""
    drafters = [drafter for drafter in served.drafters if drafter.up and not drafter.refusal]
    return {
        "id": served.model,
        "object": "model",
        "created": STARTED,
        "owned_by": "tandem",
        "context_length": served.context_length,
        "dtype": served.dtype,
        "exact": served.exact,
        "inexact_reason": served.inexact_reason or None,
        "system_fingerprint": served.fingerprint,
        "speculation": {
            "modes": ["auto", "none", *(MODES.name(drafter.mode) for drafter in drafters)],
            "drafters": [_drafter(drafter) for drafter in served.drafters],
        },
    }


def _drafter(drafter: DrafterState) -> dict[str, Any]:
    return {
        "mode": MODES.name(drafter.mode),
        "name": drafter.name,
        "up": drafter.up,
        "refusal": drafter.refusal or None,
        "max_draft_tokens": drafter.max_draft_tokens,
    }
