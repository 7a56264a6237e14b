"""The verdict of an audit reaches the client over both faces, and is never made up."""

import pytest
from tandem.v1 import generation_pb2 as pb
from tandem.v1 import target_pb2
from tandem.v1 import types_pb2 as types

from services.wire.codec import FINISH_KINDS
from tests.gateway.peers import frames
from tests.gateway.scripted_target import END

pytestmark = pytest.mark.anyio

STOP = target_pb2.Finish(kind=FINISH_KINDS.value("stop_token"), stop_id=END)


def finds(*audits):
    """A target whose choices end with these verdicts."""

    def script(request):
        report = types.SpeculationReport(audit=audits[request.choice])
        return [target_pb2.TargetServiceGenerateResponse(tokens=[types.Token(id=END)], finish=STOP, report=report)]

    return script


CLEAN = types.Audit(checked=8)
BROKEN = types.Audit(checked=4, differs_at=3, margin=0.25, choice=1)


@pytest.mark.parametrize(
    ("audits", "seen"),
    [
        ([CLEAN], {"checked": 8, "differs_at": None, "margin": None, "choice": None}),
        ([CLEAN, CLEAN], {"checked": 16, "differs_at": None, "margin": None, "choice": None}),
        ([CLEAN, BROKEN], {"checked": 12, "differs_at": 3, "margin": 0.25, "choice": 1}),
        ([CLEAN, BROKEN, CLEAN], {"checked": 20, "differs_at": 3, "margin": 0.25, "choice": 1}),
        ([CLEAN, None], None),
        ([None, BROKEN], None),
    ],
)
async def test_the_first_choice_that_differs_is_told_over_both_faces(gateway, audits, seen):
    async with gateway(finds(*audits)) as peers:
        asked = {"n": len(audits), "speculation": {"audit": True}}
        whole = (await peers.chat(**asked)).json()
        streamed = frames(await peers.chat(stream=True, **asked))
        request = pb.GenerateRequest(text="hi", n=len(audits), speculation=types.Speculation(audit=True))
        *_, last = [message async for message in peers.stub.Generate(request)]
    assert whole["speculation"]["audit"] == seen
    assert streamed[-2]["speculation"]["audit"] == seen
    assert last.report.HasField("audit") == (seen is not None)
    if seen is not None:
        assert last.report.audit.checked == seen["checked"]


async def test_an_answer_that_nobody_wanted_audited_says_nothing_of_it(gateway):
    async with gateway() as peers:
        assert "audit" not in (await peers.chat()).json()["speculation"]
