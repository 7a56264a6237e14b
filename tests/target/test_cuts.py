"""Where an answer ends, wherever in an accepted block the end falls."""

from itertools import repeat

import pytest

from services.target.sink import Update
from tests.target.harness import plain_answer, request, system, tokens, truth_of
from tests.target.scripted_drafter import ScriptedDrafter
from tests.target.scripted_model import ScriptedModel

pytestmark = pytest.mark.anyio

PROMPT = (3, 1, 4, 1, 5)
LETTERS = "abcdefghijklmnopqrstuvwxyz012345"


async def answer(asked, *, length: int = 15, model: ScriptedModel | None = None) -> list[Update]:
    """One request with a drafter that is always right."""
    drafter = ScriptedDrafter(truth_of([longest(asked)]), repeat(("right", length)))
    async with system(drafter, model=model) as running:
        updates = await running.answer(asked)
        await running.settled()
        return updates


def longest(asked):
    """The same request without its ends, so that the drafter looks past them."""
    return request(asked.prompt, 64, temperature=asked.sampling.temperature)


def finish(updates: list[Update]):
    return updates[-1].finish


FREE = plain_answer(request(PROMPT, 40))


@pytest.mark.parametrize("at", range(20))
async def test_a_stop_token_ends_the_answer_wherever_it_falls_in_the_block(at: int) -> None:
    stop = FREE[at]
    updates = await answer(request(PROMPT, 40, stop_ids=[stop]))
    assert tokens(updates) == FREE[: FREE.index(stop) + 1]
    assert (finish(updates).kind, finish(updates).stop_id) == ("stop_token", stop)


@pytest.mark.parametrize("limit", range(1, 20))
async def test_an_answer_has_exactly_max_tokens_tokens(limit: int) -> None:
    updates = await answer(request(PROMPT, limit))
    assert tokens(updates) == FREE[:limit]
    assert finish(updates).kind == "length"


@pytest.mark.parametrize("beyond", [-1, 0, 1, 2])
@pytest.mark.parametrize("at", [4, 6])
async def test_a_stop_before_or_at_the_limit_wins_over_it(at: int, beyond: int) -> None:
    index = next(i for i in range(at, len(FREE)) if FREE[i] not in FREE[:i])
    limit = index + 1 + beyond
    updates = await answer(request(PROMPT, limit, stop_ids=[FREE[index]]))
    assert tokens(updates) == FREE[: min(index + 1, limit)]
    assert finish(updates).kind == ("length" if beyond < 0 else "stop_token")


@pytest.mark.parametrize("length", [1, 4, 15])
@pytest.mark.parametrize("at", range(12))
@pytest.mark.parametrize("width", [1, 2])
async def test_a_stop_string_cuts_at_the_same_character_as_without_drafts(length: int, at: int, width: int) -> None:
    text = "".join(LETTERS[id] for id in FREE)
    stop = text[at : at + width]
    updates = await answer(request(PROMPT, 40, stop_strings=[stop]), length=length)
    start = text.index(stop)
    assert tokens(updates) == FREE[: start + width]
    assert (finish(updates).stop_string, finish(updates).text_offset) == (stop, start)


async def test_of_two_stop_strings_in_a_block_the_earliest_wins() -> None:
    text = "".join(LETTERS[id] for id in FREE)
    late, early = text[9:11], text[4:6]
    updates = await answer(request(PROMPT, 40, stop_strings=[late, early]))
    assert (finish(updates).stop_string, finish(updates).text_offset) == (early, text.index(early))


async def test_stops_wait_for_min_tokens() -> None:
    text = "".join(LETTERS[id] for id in FREE)
    asked = request(PROMPT, 40, stop_strings=[text[2]], min_tokens=10)
    updates = await answer(asked)
    assert tokens(updates) == plain_answer(asked)
    assert len(tokens(updates)) >= 10
    if finish(updates).kind == "stop_string":
        assert "".join(LETTERS[id] for id in tokens(updates))[finish(updates).text_offset] == text[2]


@pytest.mark.parametrize("prompt_length", range(20, 32))
async def test_generation_runs_to_exactly_the_end_of_the_context(prompt_length: int) -> None:
    prompt = [i % 7 for i in range(prompt_length)]
    model = ScriptedModel(context=32)
    asked = request(prompt, 32 - prompt_length, open_ended=True)
    updates = await answer(asked, model=model)
    assert tokens(updates) == plain_answer(asked)
    assert len(prompt) + len(tokens(updates)) == 32
    assert finish(updates).kind == "context"
    assert model.widths[-1] <= 32


async def test_only_the_last_update_carries_the_finish_and_every_round_is_one_update() -> None:
    updates = await answer(request(PROMPT, 40), length=3)
    assert all(update.finish is None for update in updates[:-1])
    assert updates[0].kept[0].origin == "first"
