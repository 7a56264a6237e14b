"""A drafter comes and goes, is late, or talks nonsense: acceptance changes, and nothing that was late is applied."""

import asyncio
from collections import Counter
from itertools import chain, repeat

import pytest
from tandem.v1.drafter_pb2 import Proposal, Proposals, TurnSequence

from services.target.link.patience import Breaker, Deadline
from services.target.link.turn import Draft, Turn
from tests.target.harness import HASTY, PATIENT, drive, plain_answer, request, system, tokens, truth_of
from tests.target.scripted_drafter import ScriptedDrafter

pytestmark = pytest.mark.anyio

PROMPT = tuple(range(20))


def accepted(updates) -> int:
    return updates[-1].report.counters.total("accepted")


async def test_a_right_drafter_has_every_draft_accepted() -> None:
    asked = request(PROMPT, 33, max_draft_tokens=7)
    [updates], _, drafter = await drive([asked], repeat(("right", 7)))
    counters = updates[-1].report.counters
    assert tokens(updates) == plain_answer(asked)
    assert (counters.total("rounds"), counters.total("accepted")) == (4, 28)
    assert counters.by_origin == {"first": 1, "accepted": 28, "bonus": 4}
    assert counters.by_mode["ngram"].accepted_per_position == [4] * 7
    assert drafter.turns == 4


async def test_a_wrong_first_draft_is_never_committed() -> None:
    asked = request(PROMPT, 12)
    [updates], _, _ = await drive([asked], repeat(("wrong_first", 5)))
    assert tokens(updates) == plain_answer(asked)
    assert accepted(updates) == 0
    assert updates[-1].report.counters.by_origin["correction"] == updates[-1].report.counters.total("rounds")


@pytest.mark.parametrize("kind", ["late", "stale_frontier", "stale_epoch", "stale_anchor", "other_sequence"])
async def test_an_answer_to_another_question_is_dropped_and_counted_never_applied(kind: str) -> None:
    asked = request(PROMPT, 60)
    [updates], link, _ = await drive([asked], repeat((kind, 5)), patience=HASTY if kind == "late" else PATIENT)
    assert tokens(updates) == plain_answer(asked)
    assert updates[-1].report.counters.total("drafted") == 0
    if kind == "late":
        assert link.unanswered > 0
    else:
        assert link.dropped["stale"] > 0


async def test_ids_outside_the_vocabulary_never_reach_the_model() -> None:
    asked = request(PROMPT, 30)
    [updates], link, _ = await drive([asked], repeat(("huge_ids", 6)))
    assert tokens(updates) == plain_answer(asked)
    assert link.dropped["invalid_id"] > 0
    assert accepted(updates) > 0, "what came before the wrong id is still used"


@pytest.mark.parametrize("beyond", [32, 33, 2**31 - 1, 2**32 - 1])
async def test_a_draft_is_cut_before_the_first_id_that_is_none(beyond: int) -> None:
    entry = TurnSequence(sequence=1, epoch=1, frontier=5, anchor=3, max_draft_tokens=4)
    turn, dropped = Turn(1, 0.0, {1: entry}, 32), Counter[str]()

    def read(*ids: int) -> dict:
        given = Proposal(sequence=1, epoch=1, frontier=5, anchor=3, ids=ids)
        return turn.read(Proposals(turn=1, proposals=[given]), dropped)

    assert read(0, 31, beyond, 7) == {1: Draft((0, 31))}
    assert read(beyond, 7) == {}
    assert dropped["invalid_id"] == 2
    assert read(0, 31) == {1: Draft((0, 31))}


@pytest.mark.parametrize(
    ("given", "kept", "unusable"),
    [
        ((0.5, 0.25, 0.75), (0.5, 0.25), 0),
        ((), (), 0),
        ((-3.0, 7.0, 0.5), (0.0, 1.0), 0),
        ((0.5, 0.25), (), 1),
        ((0.5, 0.25, 0.5, 0.5), (), 1),
        ((0.5, 0.25, float("nan")), (), 1),
        ((float("inf"), 0.25, float("-inf")), (), 1),
        ((0.5, float("inf"), 0.5), (), 1),
    ],
)
async def test_confidences_stay_with_their_drafts_or_go_all_together(given, kept, unusable) -> None:
    entry = TurnSequence(sequence=1, epoch=1, frontier=5, anchor=3, max_draft_tokens=2)
    turn, dropped = Turn(1, 0.0, {1: entry}, 32), Counter[str]()
    proposal = Proposal(sequence=1, epoch=1, frontier=5, anchor=3, ids=(7, 8, 9), confidences=given)
    assert turn.read(Proposals(turn=1, proposals=[proposal]), dropped) == {1: Draft((7, 8), kept)}
    assert +dropped == Counter(overlong=1, invalid_confidence=unusable)


async def test_a_drafter_that_hangs_is_given_up_and_its_next_stream_drafts() -> None:
    asked = request(PROMPT, 60)
    drafter = ScriptedDrafter(truth_of([asked]), iter([("right", 3), ("silent", 0)]))
    async with asyncio.timeout(30), system(drafter, patience=HASTY) as running:
        updates = await running.answer(asked)
        assert tokens(updates) == plain_answer(asked)
        while drafter.requests[-1].WhichOneof("message") != "turn" or len(hellos(drafter)) < 2:
            assert tokens(await running.answer(asked)) == plain_answer(asked)
        while not accepted(updates):
            updates = await running.answer(asked)
    assert drafter.faults == []


def hellos(drafter: ScriptedDrafter) -> list:
    return [message for message in drafter.requests if message.HasField("hello")]


async def test_more_drafts_than_asked_for_are_cut() -> None:
    asked = request(PROMPT, 30, max_draft_tokens=2)
    [updates], link, _ = await drive([asked], repeat(("overlong", 2)))
    counters = updates[-1].report.counters
    assert link.dropped["overlong"] > 0
    assert counters.total("drafted") <= 2 * counters.total("rounds")


async def test_drafts_are_accepted_again_after_the_drafter_died() -> None:
    asked = request(PROMPT, 60, max_draft_tokens=3)
    script = chain([("right", 3), ("right", 3), ("die", 0)], repeat(("right", 3)))
    [updates], _, drafter = await drive([asked], script)
    assert tokens(updates) == plain_answer(asked)
    assert drafter.opened == 2, "the sequence was opened again on the new stream"
    modes = [(switch.origin, switch.to, switch.reason) for switch in updates[-1].report.counters.switches]
    assert modes in ([], [("ngram", "none", "drafter_not_loaded"), ("none", "ngram", None)])
    assert updates[-1].report.counters.total("rounds") > 5


async def test_a_drafter_that_lost_a_context_is_fed_again() -> None:
    asked = request(PROMPT, 30)
    [updates], _, _ = await drive([asked], [("behind", 0)])
    assert tokens(updates) == plain_answer(asked)
    assert accepted(updates) > 0


async def test_no_more_contexts_are_opened_than_the_drafter_offers() -> None:
    asked = [request([index, *PROMPT], 30) for index in range(6)]
    drafter = ScriptedDrafter(truth_of(asked), iter([]), max_contexts=2)
    async with system(drafter) as running:
        answers = await asyncio.gather(*map(running.answer, asked))
        assert [tokens(each) for each in answers] == [plain_answer(each) for each in asked]
        assert running.link.up.is_set()
    assert sum(accepted(each) > 0 for each in answers) >= 2


async def test_sequences_for_which_others_left_no_room_sit_out_and_ask_again_when_one_of_ours_ends() -> None:
    """Two contexts for six sequences of which none ends early: each end lets the others ask once more."""
    asked = [request([index, *PROMPT], 30) for index in range(6)]
    drafter = ScriptedDrafter(truth_of(asked), iter([]), room=2)
    async with system(drafter) as running:
        answers = await asyncio.gather(*map(running.answer, asked))
        assert [tokens(each) for each in answers] == [plain_answer(each) for each in asked]
        await running.settled()
        await drafter.all_closed()
        assert running.link.open_contexts == 0
    assert sum(accepted(each) > 0 for each in answers) > 2, "who sat out came in later"
    assert drafter.opened <= 6 + 5 + 4 + 3 + 2 + 1
    assert drafter.passed_over <= 2 * drafter.opened, "a feed and a turn that were on their way"


async def test_a_sequence_without_room_is_fed_nothing_more() -> None:
    asked = request(PROMPT, 60)
    drafter = ScriptedDrafter(truth_of([asked]), iter([]), room=0)
    async with system(drafter) as running:
        updates = await running.answer(asked)
        assert tokens(updates) == plain_answer(asked)
        assert accepted(updates) == 0
    assert drafter.opened == 1
    assert drafter.passed_over <= 2


async def test_the_second_request_is_drafted_for_like_the_first() -> None:
    asked = request(PROMPT, 33, max_draft_tokens=7)
    [updates], link, drafter = await drive([asked], repeat(("right", 7)), count=3)
    assert accepted(updates) == 28
    assert (drafter.opened, drafter.closed, link.open_contexts) == (3, 3, 0)


def test_the_deadline_is_generous_until_eight_answers_are_known() -> None:
    deadline = Deadline(first_s=2.0, most_s=0.25)
    for _ in range(7):
        deadline.answered(0.01)
    assert deadline.seconds == 2.0
    deadline.answered(0.01)
    assert deadline.seconds == pytest.approx(0.04)
    deadline.answered(1.0)
    assert deadline.seconds == 0.25


def test_the_breaker_rests_longer_each_time_and_forgets_after_an_answer() -> None:
    now = [0.0]
    breaker = Breaker(lambda: now[0], limit=3, first_s=1.0, most_s=4.0)
    for _ in range(2):
        breaker.unanswered()
    assert not breaker.open
    for rest in (1.0, 2.0, 4.0, 4.0):
        breaker.unanswered()
        assert breaker.open
        now[0] += rest
        assert not breaker.open
    breaker.answered()
    breaker.unanswered()
    assert not breaker.open
