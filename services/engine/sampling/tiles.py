"""Work on long rows a few at a time, so that the temporaries of a step stay in the processor's cache."""

from collections.abc import Iterator

from torch import Tensor

_NUMBERS = 200_000


def tiles(rows_RV: Tensor) -> Iterator[slice]:
    """Slices of the rows; what is computed of a row must not depend on its tile."""
    at_once = max(1, _NUMBERS // rows_RV.shape[1])
    for start in range(0, len(rows_RV), at_once):
        yield slice(start, start + at_once)
