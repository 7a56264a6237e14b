"""What a measurement says of its own worth: loops, copies, a busy machine, and modes that differ."""

import os
import random

import pytest

from bench import ngram
from bench.client import Answer
from bench.machine import Use, doubts
from bench.texts import COPYING, LETTER, PEOPLE, STORY, copied, loops


def words(count: int, seed: int = 0) -> list[int]:
    rng = random.Random(seed)
    return [rng.randrange(50_000) for _ in range(count)]


@pytest.mark.parametrize("period", [1, 2, 7, 8, 20, 40])
def test_an_answer_that_says_the_same_three_times_in_a_row_loops(period):
    stretch = (words(period) * 24)[: max(3 * period, 24)]
    assert loops(words(30, 1) + stretch + words(30, 2))
    assert not loops(words(30, 1) + stretch[:-1] + words(30, 2))


def test_text_without_a_stretch_that_repeats_does_not_loop():
    assert not any(loops(words(200, seed)) for seed in range(20))
    assert not loops([])


def test_three_lines_of_one_form_are_no_loop():
    form = words(9)
    assert not loops([token for line in range(3) for token in (*form, 60_000 + line)])


def test_the_copied_share_counts_tokens_in_runs_that_the_prompt_has():
    prompt = words(50)
    assert copied(prompt, prompt[10:30]) == 1
    assert copied(prompt, prompt[10:20] + words(10, 1)) == 0.5
    assert copied(prompt, prompt[:3] + words(7, 1)) == 0, "three tokens are no run"
    assert copied(prompt, []) == 0


def test_every_copying_prompt_has_a_text_to_copy():
    assert all(any(text[:60] in prompt for text in (STORY[:16], LETTER, PEOPLE)) for prompt in COPYING.values())


def answers(**ids: tuple[int, ...]) -> dict[str, Answer]:
    return {name: Answer(each, (len(each),), (1.0,)) for name, each in ids.items()}


def test_nothing_is_reported_of_modes_that_gave_different_tokens():
    same, other = answers(a=(1, 2), b=(3,)), answers(a=(1, 2), b=(4,))
    ngram.refuse_differences({"none": [(same, same)], "ngram": [(same, same)]})
    for samples in ({"none": [(same, same)], "ngram": [(same, other)]}, {"none": [(same, other)], "ngram": []}):
        with pytest.raises(SystemExit, match="'b'"):
            ngram.refuse_differences(samples)


def test_a_busy_machine_is_told():
    assert doubts(0.1, {"others": 0.1, "stolen": 0.0}) == []
    assert "load average was 2.00" in doubts(2.0, {"others": 0.0, "stolen": 0.0})[0]
    assert "other processes used 0.70" in doubts(0.0, {"others": 0.7, "stolen": 0.0})[0]
    assert "host withheld 0.70" in doubts(0.0, {"others": 0.0, "stolen": 0.7})[0]


def test_our_own_work_is_not_that_of_others():
    begin = Use(wall=0, everybody=100, stolen=4, ours=10)
    assert Use(wall=10, everybody=120, stolen=5, ours=25).since(begin) == {"others": 0.5, "stolen": 0.1}


@pytest.mark.skipif(not os.path.exists("/proc/stat"), reason="Linux tells processor time there")
def test_processor_time_only_grows():
    begin = Use.now()
    sum(range(10**6))
    assert all(value >= 0 for value in Use.now().since(begin).values())
