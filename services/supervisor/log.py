"""One readable log of several processes."""

import contextlib
import os
from typing import TextIO

COLOURS = {"target": 36, "drafter": 35, "gateway": 32}  # ANSI: cyan, magenta, green
WIDTH = max(map(len, COLOURS))


class Log:
    """Writes each line with its source before it, in colour on a terminal."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._coloured = stream.isatty() and "NO_COLOR" not in os.environ

    def line(self, source: str, text: str) -> None:
        label = f"{source:<{WIDTH}} |"
        if self._coloured and source in COLOURS:
            label = f"\x1b[{COLOURS[source]}m{label}\x1b[0m"
        with contextlib.suppress(OSError):  # whoever read the log has gone; the programs have not
            print(label, text, file=self._stream, flush=True)
