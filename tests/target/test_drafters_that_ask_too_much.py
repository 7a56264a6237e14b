"""A drafter that needs a layer that the model does not have is refused, and nothing is asked of the model for it."""

import pytest

from tests.target.harness import plain_answer, request, system, tokens, truth_of
from tests.target.scripted_drafter import DFLASH, NGRAM, ScriptedDrafter
from tests.target.scripted_model import LAYERS, ScriptedModel

pytestmark = pytest.mark.anyio

PROMPT = tuple(range(20))


class Careless(ScriptedDrafter):
    def _drafters(self):
        found = super()._drafters()
        found[-1].tap_layers.append(LAYERS)
        return found


@pytest.mark.parametrize(
    ("mode", "runs", "reason"), [("dflash", "none", "drafter_not_loaded"), ("auto", "ngram", None)]
)
async def test_requests_go_on_with_what_is_left(mode, runs, reason):
    asked, model = request(PROMPT, 20, mode=mode), ScriptedModel()
    drafter = Careless(truth_of([asked]), iter([]), modes=(NGRAM, DFLASH))
    async with system(drafter, model=model) as running:
        updates = await running.answer(asked)
        assert set(running.link.drafters) == {"ngram"}
        [refusal] = running.link.refusals
    assert tokens(updates) == plain_answer(asked)
    report = updates[-1].report
    assert (report.resolved.mode, report.resolved.reason) == (runs, reason)
    assert set(model.tapped) == {((), False)}
    assert refusal.mode == DFLASH
    assert f"layer {LAYERS}" in refusal.reason
