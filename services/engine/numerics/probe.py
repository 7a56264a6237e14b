"""Finds, by measurement on this machine, how to call each operator so that a row always gets the same bits.

Kernels are chosen by the number of rows, so sums are taken in an order that depends on who else is in the call. Random
rows are not enough to see it: rounding to bf16 hides most differences. The rows here cancel, so that what is left of a
sum is its rounding error, which any other order changes.

Shape key: S specimen rows, I and O width of a row before and after, N heads, D head size.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from services.engine.numerics.attention import attention_plan
from services.engine.ops.attention import Heads
from services.engine.ops.linear import Linear, can_pack
from services.engine.ops.plan import Operator, RowPlan, Table
from services.engine.ops.pointwise import UNDIVIDED, HeadNorm, Norm, SwiGlu

SEED = 20
SPECIMENS = 96
MOST = 64  # every count up to here is tried, and no call has more rows
MULTIPLES = (1, 2, 4, 8, 16, 32)
ENOUGH = 16  # a verified block goes through in one call


@dataclass(frozen=True, slots=True)
class Found:
    """The table, and the first operator for which nothing safe was found."""

    table: Table
    unsafe: str | None


def find(
    operators: Sequence[Operator],
    heads: Heads,
    dtype: torch.dtype,
    progress: Callable[[float], None] = lambda done: None,
) -> Found:
    rows: dict[str, RowPlan] = {}
    unsafe = None
    for operator in operators:
        plan = row_plan(operator, dtype)
        if plan is None:
            unsafe = unsafe or str(operator)
        rows[str(operator)] = plan or RowPlan()
        progress(len(rows) / (len(operators) + 1))
    attention = attention_plan(heads, dtype)
    progress(1)
    if attention is None:
        return Found(Table(rows), unsafe or "attention")
    return Found(Table(rows, attention), unsafe)


def row_plan(operator: Operator, dtype: torch.dtype) -> RowPlan | None:
    """The smallest multiple that lets `ENOUGH` rows into a call, else the plan that lets most rows into one."""
    most = MOST
    if operator.kind == "swiglu":
        most = max(min(MOST, UNDIVIDED // operator.out), 1)
    for packed in (True, False) if operator.kind == "linear" and can_pack(dtype) else (False,):
        op, x_SI = specimen(operator, dtype, packed)
        if plan := search(op, x_SI, most):
            return replace(plan, packed=packed)
    return None


def search(op: Callable[[Tensor], Tensor], x_SI: Tensor, most: int = MOST) -> RowPlan | None:
    best = None
    for multiple in MULTIPLES:
        if reach := _reach(op, x_SI, multiple, most):
            if best is None or reach > best.most:
                best = RowPlan(multiple, reach)
            if reach >= min(ENOUGH, most):
                break
    return best


def _reach(op: Callable[[Tensor], Tensor], x_SI: Tensor, multiple: int, most: int) -> int:
    """The largest count up to which every multiple gives each row the bits it has among `multiple` rows; 0 for none."""
    alone_SO = torch.cat([op(tile) for tile in torch.split(x_SI, multiple)])
    reach = 0
    for count in range(multiple, most + 1, multiple):
        for start in (1, len(x_SI) - count):
            if not torch.equal(op(x_SI[start : start + count]), alone_SO[start : start + count]):
                return reach
        reach = count
    return reach


def specimen(operator: Operator, dtype: torch.dtype, packed: bool) -> tuple[Callable[[Tensor], Tensor], Tensor]:
    """The operator, called without a plan, and rows for it."""
    generator = torch.Generator().manual_seed(SEED)
    free = RowPlan(most=SPECIMENS, packed=packed)
    x_SI = torch.randn(SPECIMENS, operator.width, generator=generator)
    match operator.kind:
        case "norm":
            return Norm(torch.randn(operator.width, generator=generator).to(dtype), 1e-5, free), x_SI.to(dtype)
        case "head_norm":
            # Of rows that are parts of longer ones, as queries and keys lie beside values.
            heads, dim = operator.width // operator.out, operator.out
            x_SND = torch.randn(SPECIMENS, heads + 1, dim, generator=generator).to(dtype)[:, :heads]
            return HeadNorm(torch.randn(heads, dim, generator=generator).to(dtype), 1e-5, free), x_SND
        case "swiglu":
            return SwiGlu(free), (2 * x_SI).to(dtype)
        case "linear":
            half = operator.width // 2
            weight_OI = torch.randn(operator.out, operator.width, generator=generator)
            weight_OI[:, half : 2 * half] = -weight_OI[:, :half]
            # Wide ranges, so that sums round in bf16 too, where products of short numbers would often be exact.
            x_SI *= torch.exp2(torch.randint(-6, 7, x_SI.shape, generator=generator))
            cancelling = slice(SPECIMENS // 4, None)
            x_SI[cancelling, half : 2 * half] = x_SI[cancelling, :half]
            x_SI[cancelling, 2 * half :] = 0
            shuffled = torch.randperm(operator.width, generator=generator)
            bias_O = torch.zeros(operator.out, dtype=dtype) if operator.bias else None
            return Linear(weight_OI[:, shuffled].to(dtype), bias_O, free), x_SI[:, shuffled].to(dtype)
