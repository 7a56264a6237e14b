"""What a layer remembers, against a plain list of everything that was added."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from services.drafter.models.keys import GROWTH, Past

HEADS, DIM = 2, 3
STEPS = st.lists(st.tuples(st.integers(1, 40), st.integers(0, 6)), min_size=1, max_size=40)


def made(positions):
    """A key of each position and a value, different for every head and entry."""
    k_TND = torch.tensor(positions).float()[:, None, None] * 10 + torch.arange(HEADS * DIM).view(HEADS, DIM)
    return k_TND, -k_TND


def held(past, position):
    k_NKD, v_NKD, first = past.since(position)
    return k_NKD.transpose(0, 1), v_NKD.transpose(0, 1), first


@given(STEPS, st.none() | st.integers(1, 20), st.integers(6, 9))
def test_all_that_the_next_position_sees_is_there_in_order(steps, window, spare):
    """Each step adds positions, and some more that are cropped again, at most `spare`."""
    past, end = Past(HEADS, DIM, torch.float32, window=window, spare=spare), 0
    for kept, cropped in steps:
        past.add(*made(range(end, end + kept)))
        past.add(*made(range(end + kept, end + kept + cropped)))
        seen = 0 if window is None else max(0, end + kept - window + 1)
        for until in (end + kept + cropped, end + kept):
            past.crop(until)
            k_KND, v_KND, first = held(past, seen)
            assert past.end == until
            assert first == seen
            expected = made(range(seen, until))
            assert torch.equal(k_KND, expected[0])
            assert torch.equal(v_KND, expected[1])
        end += kept


@given(STEPS, st.integers(1, 20))
def test_memory_of_a_window_is_bounded(steps, window):
    past = Past(HEADS, DIM, torch.float32, window=window, spare=6)
    for kept, cropped in steps:
        past.add(*made(range(past.end, past.end + kept + cropped)))
        past.crop(past.end - cropped)
        assert past.end - past.start <= 2 * (window + 5)
        assert past._buffer_2NKD.shape[2] <= 2 * (window + 5)


def test_memory_without_a_window_is_at_most_twice_what_is_held_and_a_little():
    past = Past(HEADS, DIM, torch.float32)
    for position in range(2000):
        past.add(*made([position]))
        assert past._buffer_2NKD.shape[2] <= 2 * past.end + GROWTH
    assert torch.equal(held(past, 0)[0], made(range(2000))[0])


def test_a_view_starts_with_the_oldest_that_is_held():
    past = Past(HEADS, DIM, torch.float32, window=4, spare=2)
    past.add(*made(range(100)))
    k_KND, _, first = held(past, 0)
    assert first == past.start == 95
    assert torch.equal(k_KND, made(range(95, 100))[0])
