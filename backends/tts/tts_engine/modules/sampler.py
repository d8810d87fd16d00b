"""From logits to each item's next token, and the end of sentences; shared by prefill and decode."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tts_engine.item import EOS, Item, Stage
from tts_engine.pool import Pool
from tts_engine.sampling import Kept, SamplingBatch, keep, sample, uniforms

NEVER = np.float32(-1e30)
NON_FINITE = "the language model gave non-finite logits for this request"


@dataclass(frozen=True, eq=False)
class Drawn:
    """tokens: int64 [B]. finite: bool [B], whether an item's logits were numbers; its token means nothing if not."""

    tokens: NDArray[np.int64]
    finite: NDArray[np.bool_]


class Sampler:
    """Samples a batch and hands the tokens to the items; items with non-finite logits fail alone."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._items: list[Item] = []
        self._settings: dict[int, SamplingBatch] = {}

    def settings(self, items: list[Item], rows: int = 1) -> SamplingBatch:
        """Sampling settings of a batch with `rows` rows an item; kept while the items stay the same."""
        if items != self._items:
            self._items = list(items)
            self._settings.clear()
        if rows not in self._settings:
            self._settings[rows] = SamplingBatch.from_settings([item.settings for item in items for _ in range(rows)])
        return self._settings[rows]

    def draw(self, items: list[Item], logits: NDArray[np.float32]) -> Drawn:
        """logits: float32 [B, V], one row an item, overwritten where a sentence may not end yet."""
        settings = self.settings(items)
        finite = np.isfinite(logits.sum(axis=1))
        if not finite.all():
            logits = np.where(finite[:, None], logits, np.float32(0))
        young = [row for row, item in enumerate(items) if item.sentence_frames < item.min_sentence_frames]
        if young:
            logits[young, EOS] = NEVER
        return Drawn(sample(logits, settings, uniforms(settings.keys, counters(items))), finite)

    def take(self, items: list[Item], drawn: Drawn) -> None:
        """Hand the tokens over; sentences that end give their key-value slot back."""
        for item, token in zip(items, drawn.tokens.tolist(), strict=True):
            item.take(token)
        self.end(items, drawn.finite)

    def keep(self, items: list[Item], logits: NDArray[np.float32], depths: NDArray[np.int64]) -> tuple[Kept, NDArray]:
        """What may be drawn at every node, and which items have finite logits, bool [B].

        logits: float32 [B, 1 + n, V], overwritten where a sentence may not end yet. depths: int64 [1 + n] or
        [B, 1 + n], how many tokens further than the next one each node's is.
        """
        finite = np.isfinite(logits.sum(axis=(1, 2)))
        if not finite.all():
            logits = np.where(finite[:, None, None], logits, np.float32(0))
        missing = np.array([[item.min_sentence_frames - item.sentence_frames] for item in items])
        if (missing > 0).any():
            logits[..., EOS][np.broadcast_to(depths < missing, logits.shape[:2])] = NEVER
        rows = logits.shape[1]
        return keep(logits.reshape(len(items) * rows, -1), self.settings(items, rows)), finite

    def end(self, items: list[Item], finite: NDArray[np.bool_]) -> None:
        """Finish the items without finite logits, and free the slots of sentences that have ended."""
        for row in np.flatnonzero(~finite):
            self._pool.finish(items[row], "error", NON_FINITE)
        for item in items:
            if item.stage is Stage.FLUSH:
                self._pool.drop_slot(item)


def counters(items: list[Item]) -> NDArray[np.uint64]:
    """Where each item stands in its stream of random numbers: sentence and token."""
    return np.array([(item.sentence_index << 32) + item.sentence_frames for item in items], dtype=np.uint64)
