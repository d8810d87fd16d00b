"""The language model's graph over the slots of the key-value cache: one call for prefill, decode and verification."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tts_engine.config import EngineConfig
from tts_engine.kv_cache import KVCache
from tts_engine.prompt import CHANNELS
from tts_engine.session import Session, empty
from tts_engine.voice import Voice

MASKED = np.float32(-1e30)


class LanguageModel:
    """`forward` runs n positions for a range of slots; arrays stay bound while shapes and slots stay the same."""

    def __init__(self, voice: Voice, config: EngineConfig) -> None:
        self.cache = KVCache(voice.layers, config.capacity, voice.kv_heads, voice.head_dim, voice.max_positions)
        past = [f"past_{kind}.{layer}" for layer in range(voice.layers) for kind in "kv"]
        present = [name.replace("past", "present") for name in past]
        small = ("tokens", "position_ids", "write_idx", "bias", "logit_idx")
        self._cache_names = list(zip(past, present, strict=True))
        self.session = Session(voice.files["lm"], config, [*small, *past], ["logits", "hidden", *present])
        self._logit_count = voice.vocabulary.logit_count
        self._hidden_size = voice.hidden_size
        self._batch: LanguageModelBatch | None = None

    def batch(self, start: int, stop: int, n: int, m: int) -> LanguageModelBatch:
        """Bound arrays for slots start … stop - 1, n positions and m logit rows each; the last one is reused."""
        key = (start, stop, n, m, self.cache.generation)
        if self._batch is None or self._batch.key != key:
            self._batch = LanguageModelBatch(self, key)
        return self._batch


class LanguageModelBatch:
    """Input and output arrays of one batch shape, bound to the graph. Fill the inputs, `run()`, read the outputs.

    `tokens` int64 [B, n, C] and `position_ids` int64 [B, n], `bias` float32 [B, 1, n, T], `logit_idx` int64 [B, m];
    `write_idx` is the cache's own `lengths`. `logits` float32 [B, m, V] and `hidden` float32 [B, m, H] are
    overwritten by the next run.
    """

    def __init__(self, model: LanguageModel, key: tuple[int, int, int, int, int]) -> None:
        start, stop, n, m, _ = key
        cache, rows = model.cache, stop - start
        self.key = key
        self.rows = rows
        self.lengths = cache.lengths[start:stop]
        self.tokens = np.zeros((rows, n, CHANNELS), dtype=np.int64)
        self.position_ids = np.zeros((rows, n), dtype=np.int64)
        self.bias = np.zeros((rows, 1, n, cache.positions), dtype=np.float32)
        self.logit_idx = np.zeros((rows, m), dtype=np.int64)
        self.logits = empty(rows, m, model._logit_count)
        self.hidden = empty(rows, m, model._hidden_size)
        self._columns = np.arange(cache.positions)
        self._binding = model.session.binding()
        for name in ("tokens", "position_ids", "bias", "logit_idx"):
            self._binding.input(name, getattr(self, name))
        self._binding.input("write_idx", self.lengths)
        self._binding.output("logits", self.logits)
        self._binding.output("hidden", self.hidden)
        for (past, present), layer in zip(model._cache_names, cache.layers(start, stop), strict=True):
            self._binding.input(past, layer)
            self._binding.output(present, layer)

    def see_context(self, visible: NDArray[np.bool_]) -> None:
        """Fill `bias`: every position sees the slot's written context and, of the n new positions, `visible`.

        visible: bool, broadcastable to [B, n, n]; row i says which new positions new position i attends to (itself
        and its ancestors). A chain is the lower triangle.
        """
        n = self.tokens.shape[1]
        context = self._columns < self.lengths[:, None]
        np.multiply(~context[:, None, None, :], MASKED, out=self.bias)
        if n == 1:
            self.bias[np.arange(self.rows), 0, 0, self.lengths] = 0
            return
        shape = (self.rows, n, n)
        columns = np.broadcast_to(self.lengths[:, None, None] + np.arange(n), shape)
        values = np.where(np.broadcast_to(visible, shape), np.float32(0), MASKED)
        np.put_along_axis(self.bias[:, 0], columns, values, axis=2)

    def run(self) -> None:
        """One forward pass; the cache's slots are extended in place behind `lengths`, which stay as they are."""
        self._binding.run()
