"""How operators are called so that a row's bits do not depend on what else is in the call.

Shape key: T rows, I and O width of a row before and after.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, Self

import torch
from torch import Tensor

FORMAT = 2  # of a table that is kept; versions that share a model folder do not overwrite each other's


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator that treats each row alone, and the sizes by which its kernel is chosen. `out` of a norm is what it
    normalises over: a head of a row, or all of it."""

    kind: Literal["linear", "norm", "head_norm", "swiglu"]
    width: int
    out: int
    bias: bool = False

    def __str__(self) -> str:
        return f"{self.kind} {self.width}x{self.out}{'+bias' * self.bias}"


@dataclass(frozen=True, slots=True)
class RowPlan:
    """Calls have a multiple of `multiple` rows and at most `most`: within these bounds rows come out alike."""

    multiple: int = 1
    most: int = 64
    packed: bool = False  # of a linear: its weight is laid out for the kernel once, at load

    def __call__(self, op: Callable[[Tensor], Tensor], x_TI: Tensor) -> Tensor:
        """`op` over rows that are already a multiple of `multiple`, in as many calls as it takes."""
        if len(x_TI) <= self.most:
            return op(x_TI)
        return torch.cat([op(tile) for tile in torch.split(x_TI, self.most)])


@dataclass(frozen=True, slots=True)
class AttentionPlan:
    """A call has at most `lanes` sequences. Query rows of each are padded to a multiple of `queries`, and are at most
    `most`; keys to a multiple of `keys`. What is over the last whole multiple may be padded to one of `over` instead,
    smaller sizes in ascending order."""

    queries: int = 16
    most: int = 256
    keys: int = 512
    lanes: int = 16
    over: tuple[int, ...] = ()

    def padded_keys(self, count: int) -> int:
        over = count % self.keys
        return count - over + next((size for size in (0, *self.over) if size >= over), self.keys)


@dataclass(frozen=True, slots=True)
class Table:
    """The plan of every operator of a model."""

    rows: Mapping[str, RowPlan] = field(default_factory=dict)
    attention: AttentionPlan = AttentionPlan()

    def __getitem__(self, operator: Operator) -> RowPlan:
        return self.rows[str(operator)]

    @property
    def multiple(self) -> int:
        """What the rows of a forward are padded to. Multiples are powers of two, so the largest serves all."""
        return max(plan.multiple for plan in self.rows.values())

    def check(self, operators: Iterable[Operator]) -> None:
        """Raises ValueError or TypeError unless the table can be used for these operators."""
        plans = [self[operator] for operator in operators]
        numbers = [number for plan in plans for number in (plan.multiple, plan.most)]
        attention = self.attention
        numbers += [attention.queries, attention.most, attention.keys, attention.lanes, *attention.over]
        if not all(type(number) is int and number > 0 for number in numbers):
            raise ValueError("a plan has a number that is none")
        if sorted({*attention.over, attention.keys}) != [*attention.over, attention.keys]:
            raise ValueError("a plan pads keys to sizes that do not ascend")

    def to_json(self) -> dict[str, Any]:
        return {"rows": {key: asdict(plan) for key, plan in self.rows.items()}, "attention": asdict(self.attention)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        rows = {key: RowPlan(**plan) for key, plan in value["rows"].items()}
        attention = value["attention"]
        return cls(rows, AttentionPlan(**attention | {"over": tuple(attention["over"])}))
