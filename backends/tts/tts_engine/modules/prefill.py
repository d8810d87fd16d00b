"""Prefill: the prompts of all items that wait, right-padded into one batch over their new slots."""

from __future__ import annotations

import time

import numpy as np

from tts_engine.item import Item, Stage
from tts_engine.language_model import MASKED, LanguageModel
from tts_engine.modules.sampler import Sampler
from tts_engine.modules.speculation import Speculation
from tts_engine.pool import Pool
from tts_engine.sampling import Scores


class Prefill:
    """PREFILL -> DECODE, with the first audio token of each sentence sampled."""

    def __init__(self, model: LanguageModel, pool: Pool, sampler: Sampler, speculation: Speculation) -> None:
        self._model = model
        self._pool = pool
        self._sampler = sampler
        self._speculation = speculation

    def run(self, items: list[Item]) -> None:
        """One forward pass over [B, longest prompt]; padding is written behind a prompt, masked, overwritten later."""
        started = time.perf_counter()
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
        prompts = [item.prompt for item in items if item.prompt is not None]
        lengths = np.array([len(prompt) for prompt in prompts])
        n = int(lengths.max())
        cache = self._model.cache
        cache.reserve(max(n + 1, int(cache.lengths[: cache.count].max()) + 1))
        drafting = self._speculation.begins(items, cache.count)
        whole = drafting and self._speculation.needs_all_hidden(items)
        batch = self._model.batch(start, start + len(items), n, n if whole else 1)
        for row, prompt in enumerate(prompts):
            batch.tokens[row, : len(prompt)] = prompt
        batch.position_ids[:] = np.arange(n)
        batch.bias[:] = np.where(np.arange(cache.positions) <= np.arange(n)[:, None], np.float32(0), MASKED)
        # The last column is the prompt's end, also where all are wanted: padding is of no use there.
        batch.logit_idx[:] = np.arange(n) if whole else 0
        batch.logit_idx[:, -1] = lengths - 1
        batch.run()
        batch.lengths[:] = lengths
        if drafting:
            self._speculation.prefilled(items, start, batch.tokens, batch.hidden)
        return batch.scores[:, -1]
