"""The course of a run as pictures."""

from pathlib import Path
from typing import TYPE_CHECKING

from services.errors import BadConfig
from services.training.evaluate import Acceptance
from services.training.optimise import History

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COURSE, ACCEPTANCE = "course.png", "acceptance.png"


def check() -> None:
    """Raises BadConfig where matplotlib is not installed: it is an extra."""
    try:
        import matplotlib  # noqa: F401
    except ModuleNotFoundError as error:
        raise BadConfig("plots need matplotlib: pip install 'tandem-serve[train]', or give --no-plots") from error


def plot(folder: Path, history: History, measured: dict[str, Acceptance]) -> list[str]:
    """Names of the files written: the loss, what evaluations found, and acceptance by position at the end."""
    from matplotlib.figure import Figure

    course = Figure(figsize=(10, 4))
    left, right = course.subplots(1, 2)
    left.plot(*zip(*history.losses, strict=True))
    left.set(xlabel="step", ylabel="loss (smoothed)")
    if history.tokens_per_round:
        right.plot(*zip(*history.tokens_per_round, strict=True), marker="o")
    right.set(xlabel="step", ylabel="tokens a round, held out")
    end = Figure(figsize=(5, 4))
    axes = end.subplots()
    for name, found in measured.items():
        axes.plot(range(1, len(found.by_position) + 1), found.by_position, marker="o", label=name)
    axes.set(xlabel="position in a draft", ylabel="accepted, with all before it", ylim=(0, 1))
    axes.legend()
    return [_save(course, folder, COURSE), _save(end, folder, ACCEPTANCE)]


def _save(figure: "Figure", folder: Path, name: str) -> str:
    figure.tight_layout()
    figure.savefig(folder / name, dpi=110, metadata={"Software": None})
    return name
