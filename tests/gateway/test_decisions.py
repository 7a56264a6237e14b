"""Bands and the wish for an explanation reach the target; the decisions reach the client, choice after choice."""

import pytest
from tandem.v1 import generation_pb2 as pb
from tandem.v1 import target_pb2
from tandem.v1 import types_pb2 as types

from services.wire.codec import FINISH_KINDS
from tests.gateway.scripted_target import END

pytestmark = pytest.mark.anyio

STOP = target_pb2.Finish(kind=FINISH_KINDS.value("stop_token"), stop_id=END)
BANDS = [{"to": 9, "modes": ["mtp", "ngram"]}, {"from": 9, "modes": ["ngram"]}]


def explains(request):
    decision = types.RoundDecision(
        at=1 + request.choice,
        mode=3,
        because="speed",
        asked=5,
        came=4,
        drafted=3,
        accepted=2,
        measured_seconds=0.5,
        sequences=2,
    )
    if request.choice:
        decision.predicted_seconds = 0.25
    report = types.SpeculationReport(decisions=[decision] if request.speculation.explain else [])
    return [target_pb2.TargetServiceGenerateResponse(tokens=[types.Token(id=END)], finish=STOP, report=report)]


async def test_the_decisions_of_all_choices_are_told(gateway):
    async with gateway(explains) as peers:
        answer = (await peers.chat(n=2, speculation={"explain": True})).json()
        silent = (await peers.chat(n=2)).json()
    common = {
        "mode": "ngram", "because": "speed", "asked": 5, "came": 4, "drafted": 3, "accepted": 2,
        "measured_seconds": 0.5, "sequences": 2,
    }  # fmt: skip
    assert answer["speculation"]["decisions"] == [
        common | {"at": 1, "predicted_seconds": None},
        common | {"at": 2, "predicted_seconds": 0.25},
    ]
    assert "decisions" not in silent["speculation"]


async def test_bands_reach_the_target_over_both_faces(gateway):
    seen = []

    def script(request):
        seen.append(request.speculation)
        return explains(request)

    async with gateway(script) as peers:
        await peers.chat(speculation={"bands": BANDS})
        high = types.SpeculationBand(modes=[3])
        setattr(high, "from", 9)
        speculation = types.Speculation(bands=[types.SpeculationBand(to=9, modes=[4, 3]), high])
        async for _ in peers.stub.Generate(pb.GenerateRequest(text="hi", speculation=speculation)):
            pass
    rest, grpc = ([(getattr(each, "from"), each.to, list(each.modes)) for each in one.bands] for one in seen)
    assert rest == grpc == [(0, 9, [4, 3]), (9, 0, [3])]
    assert not seen[0].bands[1].HasField("to")
