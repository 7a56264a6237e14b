"""How often each token occurred in a sequence, in a form that is cheap to fork and to apply to a row."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Self

import torch
from torch import Tensor

_RECENT = 64


@dataclass(frozen=True, slots=True)
class _Counts:
    """Tokens and how often each was generated; 0 for those that only the prompt has."""

    of: Mapping[int, int]
    ids_M: Tensor
    counts_M: Tensor

    @classmethod
    def made(cls, of: Mapping[int, int]) -> Self:
        return cls(of, torch.tensor(list(of), dtype=torch.int64), torch.tensor(list(of.values()), dtype=torch.float32))


@dataclass(slots=True)
class History:
    """A large part that forks share and nobody changes, and the whole counts of a few recent tokens on top of it."""

    _old: _Counts
    _recent: dict[int, int] = field(default_factory=dict)

    @classmethod
    def of(cls, prompt: Iterable[int]) -> Self:
        return cls(_Counts.made(dict.fromkeys(prompt, 0)))

    def fork(self) -> Self:
        if len(self._recent) > _RECENT:
            self._old, self._recent = _Counts.made({**self._old.of, **self._recent}), {}
        return replace(self, _recent=dict(self._recent))

    def advance(self, token: int) -> None:
        self._recent[token] = self._recent.get(token, self._old.of.get(token, 0)) + 1

    def parts(self) -> Iterator[tuple[Tensor, Tensor]]:
        """(ids, counts) pairs; an id in a later pair overrides an earlier one."""
        yield self._old.ids_M, self._old.counts_M
        if self._recent:
            recent = _Counts.made(self._recent)
            yield recent.ids_M, recent.counts_M
