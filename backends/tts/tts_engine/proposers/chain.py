"""What drafting one token after another needs: the tokens each position has read, and drawing a chain."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from tts_engine.item import EOS, Item
from tts_engine.kv_cache import KVCache
from tts_engine.prompt import CHANNELS
from tts_engine.sampling import Kept, SamplingBatch, Scores, keep, uniforms

DRAFT_STREAM = 101  # of random numbers, apart from those that acceptance rules use


class History:
    """The tokens that every position of an item has read, `tokens` int64 [capacity, positions, C] by item row.

    Drafts read what they have missed when they next draft, so that nothing is spent on items that are not drafted for.
    """

    def __init__(self, capacity: int, positions: int) -> None:
        self.tokens = np.zeros((capacity, positions, CHANNELS), dtype=np.int64)

    def start(self, items: list[Item], tokens: NDArray[np.int64]) -> None:
        """Prompts int64 [B, n, C], right padded."""
        self.tokens[[item.row for item in items], : tokens.shape[1]] = tokens

    def add(self, items: list[Item], ends: NDArray[np.int64], ids: NDArray[np.int64]) -> None:
        """One id a row at positions ends int64 [B]."""
        rows = [item.row for item in items]
        self.tokens[rows, ends] = 0
        self.tokens[rows, ends, 0] = ids

    def commit(
        self, items: list[Item], cache: KVCache, places: NDArray[np.int64], tokens: NDArray[np.int64], offset: int
    ) -> NDArray[np.int64]:
        """Add what a forward pass committed (arguments as in `Proposer.stepped`); the new lengths int64 [B]."""
        lengths = cache.lengths[[item.slot for item in items]]
        counts = (places >= 0).sum(axis=1)
        read = np.concatenate([[[item.last_token] for item in items], tokens], axis=1)
        for depth in range(int(counts.max())):
            here = np.flatnonzero(depth < counts)
            self.add([items[row] for row in here], lengths[here] + depth, offset + read[here, depth])
        return lengths + counts


def draw_chain(
    items: list[Item],
    nodes: int,
    settings: SamplingBatch,
    step: Callable[[int, NDArray[np.int64] | None], Scores],
) -> tuple[NDArray[np.int64], Kept]:
    """Draw `nodes` tokens a row, each from `step(depth, the token before)` → scores of B rows, with the item's own
    settings; tokens int64 [B, nodes], and the distributions in the order of tokens.reshape(-1)."""
    counters = np.array([(item.sentence_index << 32) + item.sentence_frames for item in items], dtype=np.uint64)
    missing = np.array([item.min_sentence_frames - item.sentence_frames for item in items])
    tokens = np.empty((len(items), nodes), dtype=np.int64)
    made: list[Kept] = []
    for depth in range(nodes):
        scores = step(depth, tokens[:, depth - 1] if depth else None)
        scores.exclude(EOS, depth < missing)
        made.append(keep(scores, settings))
        uniform = uniforms(settings.keys, counters + np.uint64(depth), DRAFT_STREAM)
        tokens[:, depth] = made[-1].draw(uniform)
    width = max(kept.tokens.shape[1] for kept in made)
    ids = np.full((len(items), nodes, width), scores.vocabulary, dtype=np.int64)
    probs = np.zeros(ids.shape)
    for depth, kept in enumerate(made):
        ids[:, depth, : kept.tokens.shape[1]] = kept.tokens
        probs[:, depth, : kept.tokens.shape[1]] = kept.probs
    return tokens, Kept(ids.reshape(-1, width), probs.reshape(-1, width))
