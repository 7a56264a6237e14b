"""Fill a folder with shards: let the target write, and store what it wrote as soon as a shard's texts are complete."""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from services.engine.engine import Engine
from services.training.lanes import Task, Written, write
from services.training.questions import Source
from services.training.shards import ShardFolder

MOST_ANSWERS = 256  # of a shard


def answers_per_shard(longest: int, row_bytes: int, shard_bytes: int) -> int:
    """So many answers of `longest` ids that no shard is larger than `shard_bytes`, but for one that a single answer
    fills."""
    return max(1, min(shard_bytes // (longest * (row_bytes + 4)), MOST_ANSWERS))


@dataclass(slots=True)
class _Batch:
    """The texts of one shard that are being written: how many are open still, and what has come."""

    open: int
    written: list[Written] = field(default_factory=list)


class Making:
    """One run over the shards that the folder lacks."""

    def __init__(self, folder: ShardFolder, source: Source, most_bytes: int) -> None:
        """No shard is begun once the folder has `most_bytes`; `full` says so. `left_out` counts prompts of the wrong
        length."""
        self._folder, self._source = folder, source
        self._most_bytes = most_bytes
        self._batches: dict[int, _Batch] = {}
        self._queue: deque[Task] = deque()
        self._numbers = self._begun()
        self.full = False
        self.left_out = 0

    def run(self, engine: Engine, *, lanes: int, progress: Callable[[int, int], None]) -> None:
        """`progress` is told how many texts and how many of their ids were done since the last time."""
        for written in write(engine, self._folder.captured, self._next, lanes=lanes):
            if task := self._source.then(written):
                self._queue.append(task)
            elif not written.task.capture:
                self._done(written.task.number, None)
                progress(1, 0)
            else:
                self._done(written.task.number, written)
                progress(1, len(written.ids))

    def _next(self) -> Task | None:
        if self._queue:
            return self._queue.popleft()
        for number in self._numbers:
            if task := self._source.first(number):
                return task
            self.left_out += 1
            self._done(number, None)
        return None

    @property
    def missing(self) -> int:
        """Texts that are still to be written."""
        return sum(len(numbers) for numbers in self._shards().values())

    def _shards(self) -> dict[int, range]:
        """The numbers of the texts of every shard that is not there."""
        size, per_shard = self._source.size, self._folder.per_shard
        shards = {begin // per_shard: range(begin, min(begin + per_shard, size)) for begin in range(0, size, per_shard)}
        return {shard: numbers for shard, numbers in shards.items() if shard not in self._folder}

    def _begun(self) -> Iterator[int]:
        for shard, numbers in self._shards().items():
            if self._folder.bytes >= self._most_bytes:
                self.full = True
                return
            self._batches[shard] = _Batch(open=len(numbers))
            yield from numbers

    def _done(self, number: int, written: Written | None) -> None:
        shard = number // self._folder.per_shard
        batch = self._batches[shard]
        batch.open -= 1
        if written:
            batch.written.append(written)
        if not batch.open:
            self._folder.add(shard, batch.written)
            del self._batches[shard]
