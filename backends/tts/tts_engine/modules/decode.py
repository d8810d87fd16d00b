"""Decode: one forward pass for every item that speaks, over the contiguous slots of the key-value cache."""

from __future__ import annotations

import time

import numpy as np
from numpy.typing import NDArray

from tts_engine.item import Item
from tts_engine.language_model import LanguageModel
from tts_engine.modules.sampler import Sampler
from tts_engine.modules.speculation import Speculation
from tts_engine.proposers.proposer import Proposer
from tts_engine.sampling import Scores
from tts_engine.voice import Voice


class Decode:
    """One token a step for each item, or several where items want drafts; `forward` takes chains and trees of any n."""

    def __init__(
        self, voice: Voice, model: LanguageModel, sampler: Sampler, proposers: dict[str, Proposer] | None = None
    ) -> None:
        self._model = model
        self._sampler = sampler
        self._logit_offset = voice.vocabulary.logit_offset
        self.speculation = Speculation(voice, model, sampler, proposers or {}, self.forward)

    def run(self, items: list[Item]) -> None:
        """items: in slot order, their slots neighbours (the pool's `decoding`, or one of them)."""
        nodes = self.speculation.nodes(items) if self.speculation.wanted(items) else None
        if nodes is None:
            self._plain(items)
            return
        began = time.perf_counter()
        if any(nodes):
            self.speculation.run(items, nodes)
        else:
            self._plain(items, speculating=True)
        self.speculation.took(items, max(nodes), time.perf_counter() - began)

    def measure(self, items: list[Item]) -> None:
        """Let speculation learn what steps cost; `items` hold all slots and are not heard by anyone."""
        self.speculation.measure(items, lambda mine: self._plain(mine, speculating=True))

    def _plain(self, items: list[Item], speculating: bool = False) -> None:
        start = items[0].slot
        tokens = np.array([[item.last_token] for item in items], dtype=np.int64)
        scores, hidden = self.forward(start, tokens)
        for item in items:
            item.decode_steps += 1
        drawn = self._sampler.draw(items, scores[:, 0])
        if speculating:
            self.speculation.stepped(items, hidden, drawn.tokens)
        self._model.cache.lengths[start : start + len(items)] += 1
        self._sampler.take(items, drawn)

    def forward(
        self,
        start: int,
        tokens: NDArray[np.int64],
        depths: NDArray[np.int64] | None = None,
        visible: NDArray[np.bool_] | None = None,
    ) -> tuple[Scores, NDArray[np.float32]]:
        """Scores after each of n new tokens a slot; keys and values are written behind the slots' lengths.

        Args:
            start: first slot; B neighbouring slots are read.
            tokens: int64 [B, n], logit indices (1 + code).
            depths: int64 [n] or [B, n], distance of each token behind the context (siblings share one);
                default 0 … n - 1.
            visible: bool [n, n] or [B, n, n], which new tokens each one attends to (itself and its ancestors);
                default a chain.

        Returns:
            scores of [B, n] positions, hidden float32 [B, n, H]: overwritten by the next call.
        """
        rows, n = tokens.shape
        cache = self._model.cache
        cache.reserve(int(cache.lengths[: cache.count].max()) + n)
        batch = self._model.batch(start, start + rows, n, n)
        columns = np.arange(n)
        np.add(tokens, self._logit_offset, out=batch.tokens[:, :, 0])
        np.add(batch.lengths[:, None], columns if depths is None else depths, out=batch.position_ids)
        batch.see_context(np.tri(n, dtype=bool) if visible is None else visible)
        batch.logit_idx[:] = columns
        batch.run()
        return batch.scores, batch.hidden
