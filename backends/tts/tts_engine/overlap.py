"""Overlap: the vocoder's graph runs beside the loop while the language model goes on; both release the lock."""

from __future__ import annotations

import time
from concurrent.futures import Future
from functools import partial

import numpy as np

from tts_engine.item import Item
from tts_engine.lanes import Lanes
from tts_engine.modules.vocoder import Vocoder, VocoderJob


class Overlap:
    """At most one run at a time. Everything but the graph run happens in the caller's thread.

    seconds: how long callers have waited for a run (`StepClock` counts it as time inside the runtime). took: seconds
    of the last run in the graph.
    """

    def __init__(self, vocoder: Vocoder, lanes: Lanes) -> None:
        self.seconds = self.took = 0.0
        self._vocoder = vocoder
        self._lanes = lanes
        self._running: tuple[VocoderJob, Future[dict[str, np.ndarray]]] | None = None

    @property
    def busy(self) -> bool:
        return self._running is not None

    @property
    def done(self) -> bool:
        """A run is over and not collected."""
        return self._running is not None and self._running[1].done()

    def begin(self, items: list[Item]) -> None:
        """Start a run for items with frames ready; nothing may be running."""
        assert self._running is None
        job = self._vocoder.begin(items)
        self._running = job, self._lanes.begin(partial(self._timed, job))

    def collect(self, wait: bool = False) -> list[Item]:
        """Finish the run if it is over, or once it is with `wait`; its items, or none. Raises what the run raised."""
        if self._running is None or not (wait or self._running[1].done()):
            return []
        job, future = self._running
        began = time.perf_counter()
        try:
            outputs = future.result()
        finally:
            self.seconds += time.perf_counter() - began
            self._running = None
        self._vocoder.finish(job, outputs)
        return job.items

    def _timed(self, job: VocoderJob) -> dict[str, np.ndarray]:
        began = time.perf_counter()
        outputs = self._vocoder.compute(job)
        self.took = time.perf_counter() - began
        return outputs

    @property
    def items(self) -> list[Item]:
        """Those in the run."""
        return self._running[0].items if self._running else []
