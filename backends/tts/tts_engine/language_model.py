"""A language model's graph over the slots of the key-value cache: one call for prefill, decode and verification."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tts_engine.config import EngineConfig
from tts_engine.errors import VoiceError
from tts_engine.kv_cache import BLOCK, KVCache
from tts_engine.lanes import Lanes, cuts
from tts_engine.prompt import CHANNELS
from tts_engine.sampling import NARROW, Scores
from tts_engine.session import Binding, Session, empty
from tts_engine.voice import Voice

MASKED = np.float32(-1e30)
# Positions that are worth a run of their own beside others (int8, 12.7 M parameters, one token of 8, 16, 32 rows:
# 0.88, 1.56, 3.11 ms whole and 0.66, 1.00, 1.87 in halves).
PART = 8
# Positions of a run, and these times T, at most. Beyond, activations fall out of a core's cache (1 / 3 / 6 / 10 rows of
# 45 positions: 5.5, 14.5, 29, 55 ms); scores of attention are so many a head; and ONNX Runtime keeps the memory of its
# widest run for good.
WIDE = 256
CELLS = 1 << 15
LONG_PROMPT = 2 * BLOCK  # positions that there is room for from the start
BYTES_KEPT = 8 << 20  # of bound batches, their logits left out; binding one takes some 0.3 ms
WIDEST = 65  # positions a slot that the shared logits have room for: a verification of the largest tree


class LanguageModel:
    """The LM, or a draft's graph of the same interface: its layers lie in the cache from `first_layer` on.

    `batch` binds arrays for n positions of a range of slots; those used last stay bound, by the cache's memory.
    first_name: the number of the first layer in the graph's names. states: whether it reads hidden states (an MTP
    module, which may read no tokens) instead of giving the last ones.
    """

    def __init__(
        self,
        path: Path,
        voice: Voice,
        config: EngineConfig,
        cache: KVCache,
        lanes: Lanes,
        layers: int,
        first_layer: int = 0,
        first_name: int = 0,
        states: bool = False,
    ) -> None:
        self.cache, self.lanes = cache, lanes
        past = [f"past_{kind}.{first_name + layer}" for layer in range(layers) for kind in "kv"]
        present = [name.replace("past", "present") for name in past]
        small = ("position_ids", "write_idx", "bias", "logit_idx")
        self.tensors = slice(2 * first_layer, 2 * (first_layer + layers))  # of the cache
        self.cache_names = list(zip(past, present, strict=True))
        reads, self.gives = ("hidden", "next_hidden") if states else ("tokens", "hidden")
        outputs = ["logits", "top_logits", "top_ids", self.gives, *present]
        main = path == voice.files["lm"]
        threads = config.graph_threads if main else 1
        self.session = Session(path, config, [*small, reads, *past], outputs, threads, arena=main)
        self.inputs = [*small, *({"tokens", "hidden"} & set(self.session.input_shapes))]
        self.reads_states = states
        self.logit_count = voice.vocabulary.logit_count
        self.top = int(self.session.output_shapes["top_ids"][-1])
        if self.top < min(NARROW + 1, self.logit_count):  # one more, as the end of a sentence may not count
            raise VoiceError(
                f"graph {path} names the {self.top} largest logits, not {NARROW + 1}; run the export again"
            )
        self.hidden_size = voice.hidden_size
        self._batches: dict[tuple[int, ...], LanguageModelBatch] = {}  # the one used last is the last
        self._scores = self._allocate(config.capacity * WIDEST)  # pages that are never written cost no memory
        self._fresh = np.empty((0, 0), dtype=np.float32)

    def batch(self, start: int, stop: int, n: int, m: int, fresh: bool = False) -> LanguageModelBatch:
        """Bound arrays for slots start … stop - 1, n positions and m logit rows each, tokens and states zero.

        fresh: nothing is written in these slots yet, so that T is n and attention does not pay for others' contexts.
        """
        key = (self.cache.generation, start, stop, n, m, fresh)
        batch = self._batches.pop(key, None)
        if batch is None:
            kept = self.cache.generations  # the others' memory is only alive because it is bound
            self._batches = {key: one for key, one in self._batches.items() if key[0] in kept}
            batch = LanguageModelBatch(self, start, stop, n, m, fresh)
            room = BYTES_KEPT - batch.bytes - sum(one.bytes for one in self._batches.values())
            while room < 0 and self._batches:
                room += self._batches.pop(next(iter(self._batches))).bytes
        else:
            batch.tokens[:] = 0  # what somebody left here would be read for rows that nobody fills
            batch.states[:] = 0
        self._batches[key] = batch
        batch.write_idx[:] = self.cache.lengths[start:stop]
        return batch

    def scores(self, start: int, stop: int, m: int) -> Scores:
        """Memory for m positions of these slots, the same for all batches: the next run over them overwrites it."""
        if m > WIDEST:
            return self._allocate((stop - start) * m).reshape(stop - start, m)
        return self._scores[start * m : stop * m].reshape(stop - start, m)

    def fresh_layers(self, start: int, stop: int, n: int) -> list[NDArray[np.float32]]:
        """As `KVCache.layers`, but with T = n: where a fresh batch's keys and values lie until they are in the cache.

        The same memory for all batches, as new pages are dear.
        """
        tensors, capacity, heads, _, size = self.cache.memory[self.tensors].shape
        if self._fresh.shape[1] < capacity * n * heads * size:
            self._batches = {key: batch for key, batch in self._batches.items() if not batch.fresh}
            longest = max(LONG_PROMPT, -(-n // BLOCK) * BLOCK)
            # Written now, so that a server that has served all slots is no larger than one that has not.
            self._fresh = np.full((tensors, capacity * longest * heads * size), 0, dtype=np.float32)
        slot = self._fresh.shape[1] // capacity
        shape = (stop - start, heads, n, size)
        return [layer[start * slot :][: math.prod(shape)].reshape(shape) for layer in self._fresh]

    @staticmethod
    def widest_run(columns: int) -> int:
        """Positions, of all its rows, that one run takes where T is `columns`; a single row may have more."""
        return min(WIDE, CELLS // columns)

    def run(self, batches: Sequence[LanguageModelBatch]) -> None:
        """Batches of different slots at once; a single one is cut into parts instead."""
        if len(batches) == 1:
            batches[0].run()
        else:
            self.lanes.share([partial(batch.run, 1) for batch in batches])

    def warm_up(self) -> None:
        """Run the widest there is, once a lane."""
        n = min(CELLS // WIDE, self.cache.max_positions)
        lanes = self.lanes.parts(self.cache.capacity)
        rows = min(WIDE // n, self.cache.capacity // lanes)
        self.cache.reserve(n)
        batches = [self.batch(first, first + rows, n, 1, fresh=True) for first in range(0, lanes * rows, rows)]
        for batch in batches:
            batch.see_context(np.tri(n, dtype=bool))
        for _ in range(2):  # as `Lanes.warm_up`
            self.run(batches)

    def _allocate(self, positions: int) -> Scores:
        ids = np.empty((positions, self.top), dtype=np.int64)
        return Scores(empty(positions, self.logit_count), empty(positions, self.top), ids)


class LanguageModelBatch:
    """Input and output arrays of one batch shape, bound to the graph. Fill the inputs, `run()`, read the outputs.

    `tokens` int64 [B, n, C] and `position_ids` int64 [B, n], `bias` float32 [B, 1, n, T], `logit_idx` int64 [B, m];
    `write_idx` int64 [B], where the first new position is written: the slots' lengths unless changed. MTP modules
    also read `states` float32 [B, n, H]. `scores` of [B, m] positions are overwritten by the model's next run over
    these slots, `hidden` float32 [B, m, H] (MTP: [B, n, H]) by the next of this batch.
    """

    def __init__(self, model: LanguageModel, start: int, stop: int, n: int, m: int, fresh: bool) -> None:
        cache, rows = model.cache, stop - start
        self.rows, self.start = rows, start
        self.positions = n if fresh else cache.positions  # T
        self.fresh = model.fresh_layers(start, stop, n) if fresh else []
        self._model = model
        self.lengths = cache.lengths[start:stop]
        self.tokens = np.zeros((rows, n, CHANNELS), dtype=np.int64)
        self.position_ids = np.zeros((rows, n), dtype=np.int64)
        self.write_idx = np.zeros(rows, dtype=np.int64)
        self.bias = np.zeros((rows, 1, n, self.positions), dtype=np.float32)
        self.logit_idx = np.zeros((rows, m), dtype=np.int64)
        self.scores = model.scores(start, stop, m)
        self.hidden = empty(rows, n if model.reads_states else m, model.hidden_size)
        self.states = np.zeros((rows, n, model.hidden_size) if model.reads_states else 0, dtype=np.float32)
        self.bytes = self.bias.nbytes + self.hidden.nbytes + self.states.nbytes
        self._columns = np.arange(self.positions)
        self._seen = np.full(rows, -2)  # `write_idx` that a bias of single positions was last filled for
        self._bindings: dict[int, list[Binding]] = {}  # by the number of parts

    def see_context(self, visible: NDArray[np.bool_]) -> None:
        """Fill `bias`: every position sees what lies before `write_idx` and, of the n new positions, `visible`.

        visible: bool, broadcastable to [B, n, n]; row i says which new positions new position i attends to (itself
        and its ancestors). A chain is the lower triangle.
        """
        n = self.tokens.shape[1]
        if n == 1:
            rows = np.arange(self.rows)
            if not np.array_equal(self.write_idx, self._seen + 1):  # else one more column than last time, and no more
                np.multiply(self._columns >= self.write_idx[:, None], MASKED, out=self.bias[:, 0, 0])
            self.bias[rows, 0, 0, self.write_idx] = 0
            self._seen = self.write_idx.copy()
            return
        context = self._columns < self.write_idx[:, None]
        np.multiply(~context[:, None, None, :], MASKED, out=self.bias)
        shape = (self.rows, n, n)
        columns = np.broadcast_to(self.write_idx[:, None, None] + np.arange(n), shape)
        values = np.where(np.broadcast_to(visible, shape), np.float32(0), MASKED)
        np.put_along_axis(self.bias[:, 0], columns, values, axis=2)

    def run(self, parts: int = 0) -> None:
        """One forward pass; the cache's slots are extended in place from `write_idx` on, their lengths stay.

        parts: runs that it is cut into; 0: as many as are worth it, or as make none too wide.
        """
        rows, n = self.position_ids.shape
        if not parts:
            narrow = -(-rows // max(1, self._model.widest_run(self.positions) // n))
            lanes = self._model.lanes.parts(min(rows, rows * n // PART))
            parts = min(rows, -(-narrow // lanes) * lanes)  # as many for each lane
        if parts not in self._bindings:
            self._bindings[parts] = [self._bind(*edge) for edge in pairwise(cuts(rows, parts))]
        self._model.lanes.share([binding.run for binding in self._bindings[parts]])
        if self.fresh:
            for layer, fresh in zip(self._layers(0, rows), self.fresh, strict=True):
                layer[:, :, :n] = fresh

    def _bind(self, first: int, last: int) -> Binding:
        """Rows first … last - 1."""
        model, part = self._model, slice(first, last)
        binding = model.session.binding()
        for name in model.inputs:
            binding.input(name, (self.states if name == "hidden" else getattr(self, name))[part])
        binding.output("logits", self.scores.logits[part])
        binding.output("top_logits", self.scores.values[part])
        binding.output("top_ids", self.scores.ids[part])
        binding.output(model.gives, self.hidden[part])
        layers = [fresh[part] for fresh in self.fresh] or self._layers(first, last)
        for (past, present), layer in zip(model.cache_names, layers, strict=True):
            binding.input(past, layer)
            binding.output(present, layer)
        return binding

    def _layers(self, first: int, last: int) -> list[NDArray[np.float32]]:
        """The cache of rows first … last - 1."""
        return self._model.cache.layers(self.start + first, self.start + last)[self._model.tensors]
