"""The noise is where determinism and the sampling law meet: known answers, no trace of the call, no pattern."""

import random
from functools import cache

import pytest
import torch

from services.engine.sampling import gumbel
from services.engine.sampling.noise import random_bits, row_key
from tests.sampling import plain_sampler
from tests.sampling.chi_square import bound, statistic

KNOWN = [  # seed, choice, position, token, 23 bits
    (0, 0, 0, 0, 6130659),
    (1, 0, 0, 0, 259280),
    (-1, 0, 0, 0, 4178941),
    (42, 0, 17, 49151, 5714717),
    (42, 1, 17, 49151, 2633457),
    (2**63 - 1, 3, 131071, 151935, 7223441),
    (-(2**63), 0, 1, 2, 3388774),
]


def bits(seed, choice, positions, ids):
    keys = [row_key(seed, choice, position) for position in positions]
    return random_bits(keys, torch.as_tensor(ids, dtype=torch.int32))


@pytest.mark.parametrize(("seed", "choice", "position", "token", "answer"), KNOWN)
def test_bits_of_a_place_never_change(seed, choice, position, token, answer):
    assert plain_sampler.bits(seed, choice, position, token) == answer
    assert bits(seed, choice, [position], [token]).item() == answer


def test_bits_equal_the_oracle_in_plain_python():
    rng = random.Random(1)
    for _ in range(200):
        seed, choice = rng.randrange(-(2**63), 2**63), rng.randrange(8)
        positions, ids = [rng.randrange(2**20) for _ in range(3)], [rng.randrange(2**18) for _ in range(5)]
        plain = [[plain_sampler.bits(seed, choice, at, id) for id in ids] for at in positions]
        assert bits(seed, choice, positions, ids).tolist() == plain


def test_noise_equals_the_oracle_to_the_last_digits_of_fp32():
    ids = list(range(3000))
    plain = [plain_sampler.noise(5, 0, 9, id) for id in ids]
    seen = gumbel(5, 0, [9], torch.tensor(ids, dtype=torch.int32))[0].double()
    assert torch.allclose(seen, torch.tensor(plain).double(), rtol=3e-7, atol=3e-7)


@pytest.mark.parametrize("threads", [1, 2])
def test_noise_of_an_id_does_not_depend_on_what_else_is_asked(threads):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        ids = torch.arange(49157, dtype=torch.int32)
        whole = gumbel(-7, 2, range(12), ids)
        rng = random.Random(threads)
        for count in [1, 2, 3, 5, 9, 15, 17, 31, 33, 127, 40001]:
            row, some = rng.randrange(12), torch.tensor(rng.sample(range(len(ids)), count), dtype=torch.int32)
            assert torch.equal(gumbel(-7, 2, [row], some)[0], whole[row, some.long()])
            assert torch.equal(gumbel(-7, 2, [row], ids[count:])[0], whole[row, count:])
            rows = rng.sample(range(12), min(count, 12))
            assert torch.equal(gumbel(-7, 2, rows, some), whole[rows][:, some.long()])
    finally:
        torch.set_num_threads(before)


def test_noise_is_finite_for_every_possible_draw():
    u = (torch.arange(2**23, dtype=torch.int32).float() + 0.5) * 2.0**-23
    assert u.min() > 0
    assert u.max() < 1
    noise = -(-u.log()).log()
    assert noise.isfinite().all()
    assert noise.min() > -2.9
    assert noise.max() < 16.7


@pytest.mark.parametrize("threads", [1, 2])
def test_log_and_exp_give_a_number_the_same_bits_wherever_it_stands(threads):
    """What the noise and the mass take for granted; here for every u there is, whole and in small odd pieces."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        u = (torch.arange(2**23, dtype=torch.int32).float() + 0.5) * 2.0**-23
        for function, numbers in ((torch.log, u), (torch.log, -u.log()), (torch.exp, u * -40), (torch.exp, u * -1e6)):
            whole = function(numbers)
            for start, step, width in [(1, 1, 2**23), (0, 3, 2**23), (5, 1, 40_007), (3, 1, 4099)]:
                assert torch.equal(function(numbers[start::step][:width]), whole[start::step][:width])
            some = torch.arange(0, 2**23, 173)
            for width in (1, 2, 3, 5, 7, 9, 15, 17, 31, 33):
                pieces = numbers[some[: len(some) // width * width]].view(-1, width)
                alone = torch.cat([function(piece) for piece in pieces[:1000].clone().unbind()])
                assert torch.equal(alone, whole[some[: len(alone)]])
    finally:
        torch.set_num_threads(before)


N = 60_000
IDS = torch.arange(N, dtype=torch.int32)


@cache
def line(axis):
    """Draws along one axis of the counter, the other three fixed."""
    some = range(N + 1024)
    if axis == "id":
        return bits(3, 0, [11], torch.arange(len(some)))[0]
    key_of = {
        "position": lambda at: row_key(3, 0, at),
        "seed": lambda seed: row_key(seed - N // 2, 0, 11),
        "choice": lambda choice: row_key(3, choice, 11),
    }[axis]
    return random_bits([key_of(x) for x in some], torch.tensor([77], dtype=torch.int32))[:, 0]


def along(axis, offset=0):
    return line(axis)[offset : offset + N]


@pytest.mark.parametrize("axis", ["id", "position", "seed", "choice"])
@pytest.mark.parametrize("shift", [15, 8, 0], ids=["top bits", "middle bits", "low bits"])
def test_draws_along_an_axis_are_uniform(axis, shift):
    seen = torch.bincount(along(axis) >> shift & 255, minlength=256).tolist()
    assert statistic(seen, [N / 256] * 256) < bound(255)


@pytest.mark.parametrize("axis", ["id", "position", "seed", "choice"])
@pytest.mark.parametrize("distance", [1, 2, 16, 1024])
@pytest.mark.parametrize("shift", [19, 9, 0], ids=["top bits", "middle bits", "low bits"])
def test_pairs_along_an_axis_are_independent(axis, distance, shift):
    one, other = (along(axis, offset) >> shift & 15 for offset in (0, distance))
    seen = torch.bincount(one * 16 + other, minlength=256).tolist()
    assert statistic(seen, [N / 256] * 256) < bound(255)
    one, other = along(axis).double(), along(axis, distance).double()
    correlation = torch.corrcoef(torch.stack([one, other]))[0, 1]
    assert abs(correlation) < 5 / N**0.5


@pytest.mark.parametrize(
    ("one", "other"),
    [((3, 0, 11), (3, 0, 12)), ((3, 0, 11), (3, 1, 11)), ((3, 0, 11), (4, 0, 11)), ((3, 0, 11), (-3, 0, 11))],
    ids=["position", "choice", "seed", "sign of the seed"],
)
def test_neighbouring_rows_share_no_pattern(one, other):
    rows = [bits(seed, choice, [at], IDS)[0] for seed, choice, at in (one, other)]
    seen = torch.bincount((rows[0] >> 19) * 16 + (rows[1] >> 19), minlength=256).tolist()
    assert statistic(seen, [N / 256] * 256) < bound(255)
    assert (rows[0] == rows[1]).sum() < 5  # 60,000 / 2^23 are expected
