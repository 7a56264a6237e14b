"""The rules of one sequence: what happens to a row of logits before a token is drawn from it.

In this order: repetition penalty (prompt and output), frequency and presence (output), logit bias, masks.

Shape key: V vocabulary, M tokens that a rule touches."""

from collections.abc import Sequence
from copy import copy
from typing import Self

import torch
from torch import Tensor

from services.engine.sampling.history import History
from services.engine.sampling.params import SamplingParams


class Rules:
    """`fork()` and `advance()` over a draft to see each row with the history it would have.

    `stateful`: what `apply` does changes as tokens are generated. `neutral`: it does nothing, now or later."""

    def __init__(self, params: SamplingParams, prompt: Sequence[int], stop_ids: frozenset[int]) -> None:
        self.params = params
        self.generated = 0
        repeats = params.repetition_penalty != 1.0
        counts = params.presence_penalty != 0.0 or params.frequency_penalty != 0.0
        self._history = History.of(prompt if repeats else ()) if repeats or counts else None
        self._bias_ids_M = torch.tensor(list(params.logit_bias), dtype=torch.int64)
        self._bias_M = torch.tensor(list(params.logit_bias.values()), dtype=torch.float32)
        self._banned_M = torch.tensor(sorted(params.banned), dtype=torch.int64)
        self._stop_ids_M = torch.tensor(sorted(stop_ids), dtype=torch.int64)

    @property
    def stateful(self) -> bool:
        return self._history is not None or self._too_short

    @property
    def neutral(self) -> bool:
        return not (self.stateful or self.params.logit_bias or self.params.banned)

    @property
    def _too_short(self) -> bool:
        return self.generated < self.params.min_tokens

    def fork(self) -> Self:
        fork = copy(self)
        fork._history = self._history.fork() if self._history is not None else None
        return fork

    def advance(self, token: int) -> None:
        self.generated += 1
        if self._history is not None:
            self._history.advance(token)

    def apply(self, rows: Tensor) -> Tensor:
        """The row [V], or rows [..., V] that share this history, after the rules; the argument is left as it is."""
        if self.neutral:
            return rows
        result = rows.clone()
        if self._history is not None:
            for ids_M, counts_M in self._history.parts():
                result.index_copy_(-1, ids_M, self._penalised(rows.index_select(-1, ids_M), counts_M))
        if self.params.logit_bias:
            result[..., self._bias_ids_M] += self._bias_M
        if self.params.banned:
            result[..., self._banned_M] = -torch.inf
        if self._too_short:
            result[..., self._stop_ids_M] = -torch.inf
        return result

    def _penalised(self, values: Tensor, counts_M: Tensor) -> Tensor:
        params = self.params
        if params.repetition_penalty != 1.0:
            shrunk, grown = values / params.repetition_penalty, values * params.repetition_penalty
            values = torch.where(values > 0, shrunk, grown)
        if params.frequency_penalty != 0.0:
            values = values - counts_M * params.frequency_penalty
        if params.presence_penalty != 0.0:
            values = values - (counts_M > 0) * params.presence_penalty
        return values
