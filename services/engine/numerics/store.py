"""Plans that were found before, in one small file for each key. A file that cannot be used is as good as none."""

import json
import logging
import os
from collections.abc import Sequence
from pathlib import Path

from services.engine.ops.plan import Operator, Table

log = logging.getLogger(__name__)


class Store:
    """Reads from the first of `folders` that has the file, writes to the first that can be written."""

    def __init__(self, folders: Sequence[Path], key: str) -> None:
        self._paths = [folder / f"numerics-{key}.json" for folder in folders]

    def read(self, operators: Sequence[Operator]) -> Table | None:
        """A table that has a plan for each of `operators`."""
        for path in self._paths:
            try:
                table = Table.from_json(json.loads(path.read_bytes()))
                table.check(operators)
            except FileNotFoundError:
                continue
            except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
                log.warning("%s cannot be used: %r", path, error)
            else:
                return table
        return None

    def write(self, table: Table) -> None:
        text = json.dumps(table.to_json(), indent=1)
        if not any(_write(path, text) for path in self._paths):
            log.warning("the numerics table is not kept: no folder for it can be written")


def _write(path: Path, text: str) -> bool:
    """Atomically: another process may read, or write the same."""
    unfinished = path.with_suffix(f".{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished.write_text(text)
        os.replace(unfinished, path)
    except OSError:
        return False
    return True
