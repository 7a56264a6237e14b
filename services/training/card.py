"""README.md of a trained drafter: what it is, what it was made from and how, and what it was measured to do."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from services.training.evaluate import Acceptance
from services.training.files import sha256, write

NAME = "README.md"
WEIGHTS = "model.safetensors"


def write_card(
    folder: Path,
    *,
    title: str,
    facts: Mapping[str, object],
    measured: Mapping[str, Acceptance],
    plots: Sequence[str] = (),
) -> None:
    """`facts` and `measured` are shown in their order; the weights are named with their hash."""
    path = folder / WEIGHTS
    rows = {**facts, f"`{WEIGHTS}`": f"{path.stat().st_size} bytes, sha256 `{sha256(path)}`"}
    lines = [f"# {title}", "", "| | |", "|---|---|"]
    lines += [f"| {name} | {_cell(value)} |" for name, value in rows.items()]
    lines += ["", "## Acceptance on held-out prompts", ""]
    lines += ["Drafts are the likeliest ones; a round keeps the drafts that the target's own text agrees with, and one"]
    lines += ["token more. By position: the share of rounds in which the drafts up to that position were accepted.", ""]
    lines += ["| text | tokens | tokens a round | accepted by position |", "|---|---|---|---|"]
    lines += [_row(name, found) for name, found in measured.items()]
    lines += [line for plot in plots for line in ("", f"![{Path(plot).stem}]({plot})")]
    write(folder / NAME, ("\n".join(lines) + "\n").encode())


def _row(name: str, found: Acceptance) -> str:
    positions = " ".join(f"{share:.2f}" for share in found.by_position)
    return f"| {name} | {found.tokens} | {found.tokens_per_round:.2f} | {positions} |"


def _cell(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value).replace("|", "\\|")
