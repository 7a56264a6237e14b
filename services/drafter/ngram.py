"""Drafts by looking up what followed the longest suffix the last time it occurred, in prompt and output.

Where it did not occur before, a table of what the target usually writes may go on.

The index is a tree over contexts read backwards: a child of the root is a last token, its child the two last tokens,
and so on. Every node holds the end of its latest occurrence. A context seen once is a leaf, whatever precedes it; a
leaf grows by one token when its context occurs again. So a token adds two nodes where the text is new and nothing where
it repeats (`longest` + 1 at the very most), and its longest match is known when it has been added: drafting is slicing.
"""

from collections.abc import Iterable, Sequence

from services.drafter.interface import Ask, Description, Draft, Feed, Opening
from services.drafter.ngram_table import NgramTable

ID_BITS = 32
MAX_DRAFT_TOKENS = 15


class History:
    """The ids of one sequence, and where the longest suffix of at most `longest` ids occurred before.

    That occurrence ends at `match_end` and has `match_length` ids; of equally long ones it is the latest. It may
    overlap the suffix itself, as it does in periodic text."""

    __slots__ = ("_children", "_ends", "_longest", "ids", "match_end", "match_length")

    def __init__(self, *, longest: int) -> None:
        self.ids: list[int] = []
        self.match_end = -1
        self.match_length = 0
        self._longest = longest
        self._children: dict[int, int] = {}  # (node, preceding id), packed into one integer -> node
        self._ends = [0]  # node -> end of its latest occurrence, inverted (~end) for a leaf; node 0 is the root

    def extend(self, fresh: Iterable[int]) -> None:
        """Add ids. This is the one loop that a long prompt waits for."""
        ids, children, ends, longest = self.ids, self._children, self._ends, self._longest
        end = self.match_end
        length = self.match_length
        for last, id in enumerate(fresh, len(ids)):
            ids.append(id)
            node = length = 0
            deepest = last + 1 if last < longest else longest
            while length < deepest:
                edge = node << ID_BITS | ids[last - length]
                child = children.get(edge)
                if child is None:
                    children[edge] = len(ends)
                    ends.append(~last)
                    break
                node = child
                end = ends[node]
                ends[node] = last
                length += 1
                if end < 0:  # a leaf: what precedes its only occurrence becomes visible
                    end = ~end
                    if length <= end and length < longest:
                        children[node << ID_BITS | ids[end - length]] = len(ends)
                        ends.append(~end)
        self.match_end, self.match_length = end, length

    def following(self, count: int) -> tuple[int, ...]:
        """The `count` ids after the match. Past the newest id they repeat: the text is taken for periodic."""
        start = self.match_end + 1
        found = self.ids[start : start + count]
        while len(found) < count:
            found += found[: count - len(found)]
        return tuple(found)


class NgramContext:
    """A sequence's history; it knows one id more than positions were fed."""

    __slots__ = ("history",)

    def __init__(self, history: History) -> None:
        self.history = history

    @property
    def fed(self) -> int:
        return len(self.history.ids) - 1


class NgramDrafter:
    """Needs no model and no taps. Where no suffix of at least `shortest` ids occurred before, the table goes on;
    without one nothing is proposed."""

    def __init__(
        self,
        *,
        shortest: int = 2,
        longest: int = 8,
        default_draft_tokens: int = 7,
        table: NgramTable | None = None,
    ) -> None:
        self._shortest, self._longest = shortest, longest
        self._table = table
        self.description = Description(
            mode="ngram",
            name="ngram",
            max_draft_tokens=MAX_DRAFT_TOKENS,
            default_draft_tokens=default_draft_tokens,
            gives_confidence=True,
            target_vocab_size=table.vocab_size if table else None,
            target_tokenizer_hash=table.tokenizer_hash if table else None,
        )

    def open(self, opening: Opening) -> NgramContext:
        history = History(longest=self._longest)
        history.extend([opening.first_id])
        return NgramContext(history)

    def absorb(self, context: NgramContext, feed: Feed) -> None:
        context.history.extend(feed.ids)

    def draft(self, asks: Sequence[Ask[NgramContext]]) -> list[Draft]:
        return [self._draft(ask.context.history, ask.max_draft_tokens) for ask in asks]

    def _draft(self, history: History, count: int) -> Draft:
        length = history.match_length
        if length < self._shortest:
            return Draft(*self._table.following(history.ids, count)) if self._table else Draft()
        # The longer the match, the likelier the same goes on; a rule of thumb with the right order and range.
        return Draft(history.following(count), (length / (length + 1),) * count)

    def close(self, context: NgramContext) -> None:
        """The garbage collector frees it with the last reference."""
