"""Which rows of a forward go into which call of attention."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from services.engine.cache.slots import Slot
from services.engine.ops.plan import AttentionPlan

CALL = 8192  # products of a query with a key in the time that one more call costs


@dataclass(frozen=True, slots=True)
class Span:
    """Rows begin..end of a forward belong to `slot`, at its positions from `slot.length` on."""

    slot: Slot
    begin: int
    end: int

    def places(self, heads: int) -> Tensor:
        """Where its rows go in the pool, head after head of lane after lane: for each row, one place for each of the
        `heads` key and value heads."""
        lane_rows = self.slot.pool.lane_rows
        row_T = torch.arange(self.slot.length, self.slot.length + self.end - self.begin)
        return ((self.slot.lane * heads + torch.arange(heads)) * lane_rows + row_T[:, None]).flatten()


@dataclass(frozen=True, slots=True)
class Tile:
    """Rows begin..end of a forward, at positions `start` on of the sequence in `lane`.

    They make up to `queries` query rows, which see up to `keys` keys; both are padded."""

    lane: int
    begin: int
    end: int
    start: int
    queries: int
    keys: int

    def query_rows(self, group: int, count: int) -> list[int]:
        """The row of the forward each of `count` query rows is made from: `group` of each, and the last one to fill."""
        return [min(self.begin + query // group, self.end - 1) for query in range(count)]


@dataclass(slots=True)
class Together:
    """Tiles of lanes side by side, for one call: all are padded to the most queries and the most keys."""

    tiles: list[Tile]
    queries: int
    keys: int

    def takes(self, tile: Tile) -> bool:
        """Add the tile, if its lane is the next one and its padding costs less than another call."""
        tiles = [*self.tiles, tile]
        queries, keys = max(self.queries, tile.queries), max(self.keys, tile.keys)
        padding = len(tiles) * queries * keys - sum(tile.queries * tile.keys for tile in tiles)
        if tile.lane != self.tiles[-1].lane + 1 or padding > len(self.tiles) * CALL:
            return False
        self.tiles, self.queries, self.keys = tiles, queries, keys
        return True


def together(spans: Iterable[Span], group: int, plan: AttentionPlan) -> list[Together]:
    """All rows of all spans; `group` query rows are made from each."""
    calls: list[Together] = []
    for tile in sorted(_tiles(spans, group, plan), key=lambda tile: (tile.lane, tile.begin)):
        if not (calls and len(calls[-1].tiles) < plan.lanes and calls[-1].takes(tile)):
            calls.append(Together([tile], tile.queries, tile.keys))
    return calls


def _tiles(spans: Iterable[Span], group: int, plan: AttentionPlan) -> Iterator[Tile]:
    each = max(plan.most // group, 1)
    for span in spans:
        for begin in range(span.begin, span.end, each):
            end = min(begin + each, span.end)
            start = span.slot.length + begin - span.begin
            queries, keys = _up((end - begin) * group, plan.queries), plan.padded_keys(start + end - begin)
            yield Tile(span.slot.lane, begin, end, start, queries, keys)


def _up(count: int, multiple: int) -> int:
    return -(-count // multiple) * multiple
