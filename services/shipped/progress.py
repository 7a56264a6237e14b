"""How far preparing a model is, for a person."""

import sys


class Progress:
    """A line on stderr for each stage and each quarter of it."""

    def __init__(self) -> None:
        self._last: tuple[str, int] | None = None

    def __call__(self, stage: str, fraction: float) -> None:
        now = stage, int(fraction * 4)
        if now != self._last:
            print(f"model: {stage} {now[1] * 25} %", file=sys.stderr, flush=True)
            self._last = now
