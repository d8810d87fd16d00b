"""From logits to each item's next token, and the end of sentences; shared by prefill and decode."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tts_engine.item import EOS, Item, Stage
from tts_engine.pool import Pool
from tts_engine.sampling import SamplingBatch, sample, uniforms

NEVER = np.float32(-1e30)


class Sampler:
    """Samples a batch and hands the tokens to the items; items with non-finite logits fail alone."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._items: list[Item] = []
        self._settings = SamplingBatch.from_settings([])

    def take(self, items: list[Item], logits: NDArray[np.float32]) -> None:
        """logits: float32 [B, V], one row an item, overwritten where a sentence may not end yet.

        Sentences that end give their key-value slot back.
        """
        if items != self._items:
            self._items, self._settings = list(items), SamplingBatch.from_settings([item.settings for item in items])
        finite = np.isfinite(logits.sum(axis=1))
        counters = np.array([(item.sentence_index << 32) + item.sentence_frames for item in items], dtype=np.uint64)
        if not finite.all():
            logits = np.where(finite[:, None], logits, np.float32(0))
        young = [row for row, item in enumerate(items) if item.sentence_frames < item.min_sentence_frames]
        if young:
            logits[young, EOS] = NEVER
        tokens = sample(logits, self._settings, uniforms(self._settings.keys, counters))
        for item, token in zip(items, tokens.tolist(), strict=True):
            item.take(token)
        for row in np.flatnonzero(~finite):
            self._pool.finish(items[row], "error", "the language model gave non-finite logits for this request")
        for item in items:
            if item.stage is Stage.FLUSH:
                self._pool.drop_slot(item)
