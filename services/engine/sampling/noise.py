"""Gumbel noise that depends only on the seed and the place, never on who asks, when, or for how many ids.

The key of a row is (seed, choice, absolute position), mixed on the host; the counter inside a row is the token id,
mixed in 32 bit lanes. Integers agree on every device; `log` within one kind of device.

Shape key: R rows, W ids of a row."""

from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor

_MASK64 = (1 << 64) - 1


def gumbel(seed: int, choice: int, positions: Sequence[int], ids: Tensor) -> Tensor:
    """Noise [R, W] for one sequence at R positions; `ids` int32, [W] or [R, W]."""
    return gumbel_of([row_key(seed, choice, position) for position in positions], ids)


def gumbel_of(keys: Sequence[int], ids: Tensor) -> Tensor:
    """Noise [R, W] for rows of any sequences, each under its own key; finite, between -2.9 and 16.7."""
    u_RW = random_bits(keys, ids).to(torch.float32).add_(0.5).mul_(2.0**-23)  # exact: 24 bits at most
    return u_RW.log_().neg_().log_().neg_()


def row_key(seed: int, choice: int, position: int) -> int:
    """64 bits for a row. `seed` is any int64, negative ones too."""
    return _mix64(_sequence_key(seed, choice) ^ position)


@lru_cache(maxsize=4096)
def _sequence_key(seed: int, choice: int) -> int:
    return _mix64(_mix64(seed & _MASK64) ^ choice)


def random_bits(keys: Sequence[int], ids: Tensor) -> Tensor:
    """23 uniform bits [R, W] as int32: the triple32 mixer, keyed before its first and its second multiplication."""
    high_R1, low_R1 = (
        torch.tensor([[_signed(key >> shift)] for key in keys], dtype=torch.int32, device=ids.device)
        for shift in (32, 0)
    )
    x = ids ^ high_R1
    spare = torch.empty_like(x)
    _xor_shifted(x.mul_(_signed(0xED5AD4BB)), 11, spare)
    x.add_(low_R1)
    _xor_shifted(x.mul_(_signed(0xAC4C1B51)), 15, spare)
    _xor_shifted(x.mul_(_signed(0x31848BAB)), 14, spare)
    return _shifted(x, 9, spare)


def _mix64(x: int) -> int:
    """A step of splitmix64."""
    x = (x + 0x9E3779B97F4A7C15) & _MASK64
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK64
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK64
    return x ^ (x >> 31)


def _signed(word: int) -> int:
    """The low 32 bits as torch's int32 holds them: it has no arithmetic on unsigned 32 bit integers."""
    return ((word & 0xFFFFFFFF) ^ 0x80000000) - 0x80000000


def _xor_shifted(x: Tensor, bits: int, spare: Tensor) -> None:
    x.bitwise_xor_(_shifted(x, bits, spare))


def _shifted(x: Tensor, bits: int, spare: Tensor) -> Tensor:
    """x >> bits into `spare`, filled with zeros where torch would repeat the sign."""
    return torch.bitwise_right_shift(x, bits, out=spare).bitwise_and_((1 << (32 - bits)) - 1)
