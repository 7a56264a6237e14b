"""`docs/configuration.md`, from the table of settings: `python -m services.config.document` writes it to stdout."""

from collections.abc import Iterator

from pydantic.fields import FieldInfo

from services.config.legal import legal_values
from services.config.settings import Settings
from services.config.sources import ROLES, variable

HEAD = """\
# Configuration

Written from the table of settings by `make docs`; change `services/config/settings.py`, not this file.

A setting is a flag of its program (`--cache-rows`), a variable (`TANDEM_TARGET_CACHE_ROWS`) or a line under the
program's table in a TOML file, which `--config` or `TANDEM_CONFIG` names. A flag wins over a variable, and that over
the file. One file may hold the tables of all programs. Unknown names are refused with the nearest legal one, and values
out of range with the range, before a port opens. `tandem serve` takes the target's flags too; the other programs that
it starts read variables and the file.

```toml
[target]
cache_rows = 8192

[drafter]
modes = ["ngram"]
```

`TANDEM_CACHE` is the folder for prepared models, and for what was measured of models whose own folders cannot be
written (default: `~/.cache/tandem`).
"""


def markdown() -> str:
    return "\n".join([HEAD, *(_table(role, kind) for role, kind in ROLES.items())])


def _table(role: str, kind: type[Settings]) -> str:
    head = f"## {role}\n\n| setting | default | legal | meaning |\n|---|---|---|---|"
    return "\n".join([head, *_rows(role, kind)]) + "\n"


def _rows(role: str, kind: type[Settings]) -> Iterator[str]:
    for name, field in kind.model_fields.items():
        cells = (f"`{name}`<br>`{variable(role, name)}`", _default(field), legal_values(field), field.description or "")
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _default(field: FieldInfo) -> str:
    default = field.get_default()
    if field.is_required():
        return "required"
    if isinstance(default, tuple):
        default = ",".join(default)
    return "" if default is None else f"`{default}`"


if __name__ == "__main__":
    print(markdown(), end="")
