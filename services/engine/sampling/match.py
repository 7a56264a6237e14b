"""Draw the target's own token for every row of a block, and keep the draft while it equals them.

Shape key: R rows of all blocks, N rows of one block, V vocabulary."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice, takewhile

import torch
from torch import Tensor

from services.engine.sampling.draw import draw
from services.engine.sampling.logprobs import TokenLogprobs, token_logprobs
from services.engine.sampling.rules import Rules


@dataclass(frozen=True, slots=True)
class Ask:
    """One sequence's block of len(draft) + 1 rows; row 0 draws the token at absolute `position` (prompt + output)."""

    rules: Rules
    position: int
    draft: Sequence[int]


@dataclass(frozen=True, slots=True)
class Verdict:
    """Accepted drafts, then the target's own token: the correction at the first miss, or the bonus after none."""

    tokens: tuple[int, ...]
    accepted: int
    logprobs: tuple[TokenLogprobs, ...]  # one a token, or empty when not asked for


def sample_and_match(logits_RV: Tensor, asks: Sequence[Ask]) -> list[Verdict]:
    """`logits_RV` fp32, the asks' blocks one after another. Neither it nor the asks' own rules are changed."""
    sizes = [len(ask.draft) + 1 for ask in asks]
    rows_RV = logits_RV if all(ask.rules.neutral for ask in asks) else logits_RV.clone()
    for ask, block_NV in zip(asks, rows_RV.split_with_sizes(sizes), strict=True):
        _apply_rules(ask, block_NV)
    params = [ask.rules.params for ask, size in zip(asks, sizes, strict=True) for _ in range(size)]
    positions = [ask.position + j for ask, size in zip(asks, sizes, strict=True) for j in range(size)]
    drawn = iter(draw(rows_RV, params, positions))
    kept = [_matched(ask.draft, list(islice(drawn, size))) for ask, size in zip(asks, sizes, strict=True)]
    logprobs = _logprobs(logits_RV.split_with_sizes(sizes), asks, kept)
    return [Verdict(tokens, len(tokens) - 1, logprobs.get(i, ())) for i, tokens in enumerate(kept)]


def _apply_rules(ask: Ask, block_NV: Tensor) -> None:
    """In place: row j after the rules as they stand once drafts 1..j are taken.

    A draft that its row forbids cannot be drawn, so nothing behind it matters, and no rule is advanced over it."""
    if ask.rules.neutral:
        return
    if not ask.rules.stateful:
        block_NV.copy_(ask.rules.apply(block_NV))
        return
    rules = ask.rules.fork()
    for row_V, token in zip(block_NV, (*ask.draft, None), strict=True):
        row_V.copy_(rules.apply(row_V))
        if token is None or not 0 <= token < len(row_V) or row_V[token] == -torch.inf:
            return
        rules.advance(token)


def _matched(draft: Sequence[int], drawn: Sequence[int]) -> tuple[int, ...]:
    """The drawn tokens up to and including the first that differs from its draft."""
    accepted = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(draft, drawn, strict=False)))
    return tuple(drawn[: accepted + 1])


def _logprobs(
    blocks: Sequence[Tensor], asks: Sequence[Ask], kept: Sequence[tuple[int, ...]]
) -> dict[int, tuple[TokenLogprobs, ...]]:
    """For the asks, by index, that want them: one for each kept token, from its raw row."""
    wanted = {i: ask.rules.params.logprobs for i, ask in enumerate(asks) if ask.rules.params.logprobs is not None}
    if not wanted:
        return {}
    rows_RV = torch.cat([blocks[i][: len(kept[i])] for i in wanted])
    tokens = [token for i in wanted for token in kept[i]]
    tops = [top for i, top in wanted.items() for _ in kept[i]]
    found = iter(token_logprobs(rows_RV, tokens, tops))
    return {i: tuple(islice(found, len(kept[i]))) for i in wanted}
