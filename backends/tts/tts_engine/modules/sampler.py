"""From logits to each item's next token, and the end of sentences; shared by prefill and decode."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tts_engine.item import EOS, Item, Stage
from tts_engine.pool import Pool
from tts_engine.sampling import Kept, SamplingBatch, Scores, keep, sample

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

    def draw(self, items: list[Item], scores: Scores) -> Drawn:
        """scores: [B] rows, one an item, overwritten where a sentence may not end yet or a number is none."""
        settings = self.settings(items)
        finite = scores.make_finite()
        young = np.array([item.sentence_frames < item.min_sentence_frames for item in items])
        scores.exclude(EOS, young)
        return Drawn(sample(scores, settings, settings.ahead.take(counters(items))), finite)

    def take(self, items: list[Item], drawn: Drawn) -> None:
        """Hand the tokens over; sentences that end give their key-value slot back."""
        for item, token in zip(items, drawn.tokens.tolist(), strict=True):
            item.take(token)
        self.end(items, drawn.finite)

    def keep(self, items: list[Item], scores: Scores, depths: NDArray[np.int64]) -> tuple[Kept, NDArray]:
        """What may be drawn at every node, and which items have finite logits, bool [B].

        scores: [B, 1 + n] rows, overwritten as by `draw`. depths: int64 [1 + n] or [B, 1 + n], how many tokens further
        than the next one each node's is.
        """
        rows = scores.ids.shape[1]
        flat = scores.reshape(len(items) * rows)
        finite = flat.make_finite().reshape(len(items), rows).all(axis=1)
        missing = np.array([[item.min_sentence_frames - item.sentence_frames] for item in items])
        flat.exclude(EOS, np.broadcast_to(depths < missing, (len(items), rows)).reshape(-1))
        return keep(flat, self.settings(items, rows)), finite

    def end(self, items: list[Item], finite: NDArray[np.bool_]) -> None:
        """Finish the items without finite logits, and free the slots of sentences that have ended."""
        if not finite.all():
            for row in np.flatnonzero(~finite):
                self._pool.finish(items[row], "error", NON_FINITE)
        for item in items:
            if item.stage is Stage.FLUSH:
                self._pool.drop_slot(item)


def counters(items: list[Item]) -> NDArray[np.uint64]:
    """Where each item stands in its stream of random numbers: sentence and token."""
    return np.array([(item.sentence_index << 32) + item.sentence_frames for item in items], dtype=np.uint64)
