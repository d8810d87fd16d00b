"""Prefill: the prompts of all items that wait, over their new slots."""

from __future__ import annotations

import time
from itertools import pairwise

import numpy as np

from tts_engine.item import Item, Stage
from tts_engine.lanes import balanced
from tts_engine.language_model import MASKED, LanguageModel, LanguageModelBatch
from tts_engine.modules.sampler import Sampler
from tts_engine.modules.speculation import Speculation
from tts_engine.pool import Pool
from tts_engine.sampling import Scores


class Prefill:
    """PREFILL -> DECODE, with the first audio token of each sentence sampled.

    Prompts are padded to the right, behind themselves: masked, and overwritten later. The shortest take the first
    slots, so that each lane pads its own ones only.
    """

    def __init__(self, model: LanguageModel, pool: Pool, sampler: Sampler, speculation: Speculation) -> None:
        self._model = model
        self._pool = pool
        self._sampler = sampler
        self._speculation = speculation

    def run(self, items: list[Item]) -> None:
        started = time.perf_counter()
        items = sorted(items, key=_length)
        start = self._pool.add_slots(items)
        try:
            scores = self._forward(items, start)
            for item in items:
                item.prefill_seconds += time.perf_counter() - started
                item.stage = Stage.DECODE
            self._sampler.take(items, self._sampler.draw(items, scores))
        except Exception:
            for item in reversed(items):  # as they were, so that each can be tried alone
                self._pool.drop_slot(item, scrub=True)
                item.stage = Stage.PREFILL
            raise

    def _forward(self, items: list[Item], start: int) -> Scores:
        """Scores at the prompts' ends, [B]."""
        lengths = [_length(item) for item in items]
        cache = self._model.cache
        cache.reserve(max(lengths[-1] + 1, int(cache.lengths[: cache.count].max()) + 1))
        drafting = self._speculation.begins(items, cache.count)
        whole = drafting and self._speculation.needs_all_hidden(items)
        # Drafts read one batch; else one a lane.
        lanes, most = self._model.lanes.parts(len(items)), self._model.widest_run(lengths[-1])
        edges = [0, len(items)] if drafting else balanced(lengths, lanes, most)
        parts = [self._batch(items[first:last], start + first, whole) for first, last in pairwise(edges)]
        self._model.run(parts)
        cache.lengths[start : start + len(items)] = lengths
        if drafting:
            self._speculation.prefilled(items, start, parts[0].tokens, parts[0].hidden)
            return parts[0].scores[:, -1]
        return self._model.scores(start, start + len(items), 1)[:, 0]

    def _batch(self, items: list[Item], start: int, whole: bool) -> LanguageModelBatch:
        """Neighbouring items' prompts, ready to run; hidden states of all positions with `whole`."""
        prompts = [item.prompt for item in items if item.prompt is not None]
        n = len(prompts[-1])
        batch = self._model.batch(start, start + len(items), n, n if whole else 1, fresh=True)
        for row, prompt in enumerate(prompts):
            batch.tokens[row, : len(prompt)] = prompt
        batch.position_ids[:] = np.arange(n)
        batch.bias[:] = np.where(np.tri(n, dtype=bool), np.float32(0), MASKED)
        # The last column is the prompt's end, also where all are wanted: padding is of no use there.
        batch.logit_idx[:] = np.arange(n) if whole else 0
        batch.logit_idx[:, -1] = [len(prompt) - 1 for prompt in prompts]
        return batch


def _length(item: Item) -> int:
    return 0 if item.prompt is None else len(item.prompt)
