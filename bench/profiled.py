"""The target program with a stop-watch in it. `python -m bench.profiled FILE target FLAGS` is `tandem target FLAGS`.

At its end it writes FILE, JSON: a list of [name, seconds, at, count], in the order in which they ended. `at` is the
end on the clock that all processes of a machine share; `count` is the rows of a forward or the tokens of an emission.
"""

import functools
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from services import cli


class Event(NamedTuple):
    name: str
    seconds: float
    at: float
    count: int = 0


events: list[Event] = []


def watch(owner: Any, name: str, label: str, count: Callable[..., int] = lambda *arguments: 0) -> None:
    """Put a watch on `owner.name`, a function or method; `count` gets its arguments."""
    watched = getattr(owner, name)

    @functools.wraps(watched)
    def wrapper(*args, **kwargs):
        begin = time.perf_counter()
        result = watched(*args, **kwargs)
        end = time.perf_counter()
        events.append(Event(label, end - begin, end, count(*args)))
        return result

    setattr(owner, name, wrapper)


def watch_coroutine(owner: Any, name: str, label: str) -> None:
    watched = getattr(owner, name)

    @functools.wraps(watched)
    async def wrapper(*args):
        begin = time.perf_counter()
        result = await watched(*args)
        end = time.perf_counter()
        events.append(Event(label, end - begin, end))
        return result

    setattr(owner, name, wrapper)


def install() -> None:
    from services.engine.engine import Engine
    from services.target import encode, step
    from services.target.link.link import DrafterLink
    from services.target.link.stream import Stream
    from services.target.sink import Sink
    from services.target.worker import Worker

    answered = Stream._answer

    def answer(stream, proposals):
        events.append(Event("draft", proposals.elapsed.ToNanoseconds() / 1e9, time.perf_counter()))
        return answered(stream, proposals)

    Stream._answer = answer
    watch_coroutine(DrafterLink, "draft", "wait")
    watch_coroutine(Worker, "run", "step")
    watch(Engine, "forward", "verify", lambda engine, blocks: sum(len(block.ids) for block in blocks))
    watch(step, "sample_and_match", "sample")
    watch(Sink, "put", "put", lambda sink, update: len(update.kept))
    watch(encode, "update", "emit")


if __name__ == "__main__":
    file = Path(sys.argv.pop(1))
    install()
    try:
        cli.main()
    finally:
        file.write_text(json.dumps(events))
