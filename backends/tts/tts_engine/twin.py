"""The non-incremental twin: the same modules, served the conventional way, to measure the pooled engine against."""

from __future__ import annotations

import time

from tts_engine.engine import Engine
from tts_engine.item import Item, Stage


class BatchedEngine(Engine):
    """Requests of a short window form a batch, which runs through all modules to its end (incremental_tts 3.1).

    Who comes later waits for the next batch; every request is answered once, with its whole waveform. Kinder to itself
    than the paper's twin: whoever has ended leaves the decoder's batch instead of padding it.
    """

    def step(self) -> bool:
        """One run of each module that the batch is at: frontend and prefill, a decoding step, or the vocoder."""
        if not self.pool.items:
            self._gather()
        with self._clock:
            self._dismiss()
            if not self.pool.items:
                self._admit()
            self._run("frontend", self.frontend, self.pool.waiting(Stage.FRONTEND))
            self._run("prefill", self.prefill, self.pool.waiting(Stage.PREFILL))
            self._run("decode", self.decode, self.pool.decoding)
            if all(item.stage is Stage.FLUSH for item in self.pool.items):  # whole sentences, all at once
                for item in self.pool.items:
                    item.chunk_frames = len(item.pending)
                self._run("vocoder", self.vocoder, self.pool.items)
            self._emit()
        return not self.pool.idle

    def _gather(self) -> None:
        """Wait until the window that the oldest waiting request opened has passed."""
        oldest = self.pool.oldest_arrival
        if oldest is not None:
            time.sleep(max(0.0, oldest + self.config.batch_window_ms / 1e3 - time.perf_counter()))

    def _audible(self) -> list[Item]:
        return list(self.pool.finished)


ENGINES: dict[str, type[Engine]] = {"pooled": Engine, "batched": BatchedEngine}  # by EngineConfig.serving
