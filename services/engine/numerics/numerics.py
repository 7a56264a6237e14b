"""From operators to a verdict: plans remembered or found, then the whole model checked."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from services.engine.numerics.fingerprint import digest
from services.engine.numerics.probe import find
from services.engine.numerics.store import Store
from services.engine.ops.attention import Heads
from services.engine.ops.plan import Operator, Table

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Numerics:
    """`exact`: a row's bits do not depend on what else is in a forward. If not, `reason` says why.

    Engines with the same fingerprint give the same bits."""

    exact: bool
    reason: str | None
    fingerprint: str
    table: Table


class Plans:
    """The table for one identity: everything that decides bits but the table itself."""

    def __init__(
        self,
        store: Store,
        identity: str,
        operators: Sequence[Operator],
        heads: Heads,
        dtype: torch.dtype,
        progress: Callable[[float], None],
    ) -> None:
        self._store, self._identity = store, identity
        known = store.read(operators)
        self._known = known is not None
        self._unsafe: str | None = None
        if known:
            self.table = known
        else:
            found = find(operators, heads, dtype, progress)
            self.table, self._unsafe = found.table, found.unsafe

    def judge(self, invariant: Callable[[], bool]) -> Numerics:
        """Run the check of the whole model unless it passed before, and remember the table if it passes now."""
        reason = None
        if self._unsafe:
            log.warning("no way was found to call %s so that rows do not depend on their company", self._unsafe)
            reason = "no_row_invariant_plan"
        elif not self._known:
            if invariant():
                self._store.write(self.table)
            else:
                log.warning("the whole model gives rows that depend on their company, though no operator does")
                reason = "rows_depend_on_company"
        fingerprint = "fp_" + digest(self._identity, self.table.to_json())[:16]
        return Numerics(exact=reason is None, reason=reason, fingerprint=fingerprint, table=self.table)
