"""How far a long job is: a bar in a terminal, a line on stderr now and then where there is none."""

import sys
import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

LINE_S = 30.0


class Bar:
    """Of `total` steps; `note` says what they come to."""

    def __init__(self, name: str, total: int) -> None:
        self._name, self._total = name, total
        self._done = 0
        self._note = ""
        self._began = self._said = time.monotonic()
        console = Console(file=sys.stderr)
        self._bar: Progress | None = None
        self._task = TaskID(0)
        if console.is_terminal:
            columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed}/{task.total}"))
            times = (TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn(), TextColumn("{task.fields[note]}"))
            self._bar = Progress(*columns, *times, console=console)
            self._task = self._bar.add_task(name, total=total, note="")

    def __enter__(self) -> Self:
        if self._bar:
            self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if self._bar:
            self._bar.stop()
        else:
            self._line()

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self._began

    def __call__(self, steps: int, note: str = "") -> None:
        self._done += steps
        self._note = note or self._note
        if self._bar:
            self._bar.update(self._task, advance=steps, note=self._note)
        elif time.monotonic() - self._said >= LINE_S:
            self._line()

    def _line(self) -> None:
        self._said = time.monotonic()
        left = self.elapsed_s / self._done * (self._total - self._done) if self._done else 0.0
        shown = f"{self._name}: {self._done}/{self._total}, {self.elapsed_s:.0f} s, {left:.0f} s left, {self._note}"
        print(shown.rstrip(", "), file=sys.stderr, flush=True)
