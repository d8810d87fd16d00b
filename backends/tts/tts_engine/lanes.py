"""Lanes: graph runs side by side, each on few threads; a batch is cut into as many parts as lanes are idle."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from tts_engine.config import EngineConfig

T = TypeVar("T")


class Lanes:
    """`threads` / `graph_threads` of them, the loop's own thread first (on a GPU one: there a run fills the device).

    Cutting a batch is worth more than threads inside a graph, which meet after every operator: four prompts 4.5 ms in
    two parts, 6.5 ms with two threads, 7.8 ms with one. A row's result does not depend on its company, so parts give
    what the whole does. All but the runs themselves belongs to the loop.
    """

    def __init__(self, config: EngineConfig) -> None:
        self._beside = config.threads // config.graph_threads - 1 if config.provider == "cpu" else 0
        # One thread at least: what runs beside the loop (`Overlap`) shares its core where there is only one.
        self._threads = ThreadPoolExecutor(max(1, self._beside), thread_name_prefix="tts-lane")
        self._begun: list[Future[Any]] = []

    def begin(self, run: Callable[[], T]) -> Future[T]:
        """Start something beside the loop."""
        future = self._threads.submit(run)
        self._begun = [*(other for other in self._begun if not other.done()), future]
        return future

    def parts(self, rows: int) -> int:
        """In how many parts a batch of `rows` runs fastest now."""
        idle = self._beside - sum(not future.done() for future in self._begun)
        return max(1, min(rows, 1 + idle))

    def share(self, runs: Sequence[Callable[[], T]]) -> list[T]:
        """Do all of these at once, the first in the caller's thread, and return what they return; raises what one of
        them raised, after all ended.

        A lane that is slow to wake loses its part to the caller.
        """
        futures = [self.begin(run) for run in runs[1:]]
        results: list[T] = []
        errors: list[Exception] = []
        for run, future in zip(runs, [None, *futures], strict=True):
            try:
                results.append(run() if future is None or future.cancel() else future.result())
            except Exception as error:
                errors.append(error)
        if errors:
            raise errors[0]
        return results

    def warm_up(self, run: Callable[[], object]) -> None:
        """Do this in every lane at once. Twice: the first run of a shape is where ONNX Runtime plans its memory."""
        for _ in range(2):
            self.share([run] * self.parts(1 + self._beside))


def cuts(rows: int, parts: int) -> list[int]:
    """Where `parts` nearly equal parts of `rows` rows begin, and the end."""
    return [rows * part // parts for part in range(parts + 1)]


def balanced(lengths: Sequence[int], parts: int, most: int) -> list[int]:
    """Where to cut ascending lengths so that the parts, each padded to its longest, cost about the same; 0 and the end
    included. Two parts at most are balanced so, more are of equal numbers.

    most: padded positions of a part. Where there are more, further cuts follow: a runtime keeps the memory of its
    widest run for good, and beyond some size wider ones are no cheaper.
    """
    count = len(lengths)
    edges = cuts(count, parts)
    if parts == 2:
        edges[1] = min(range(1, count), key=lambda cut: max(cut * lengths[cut - 1], (count - cut) * lengths[-1]))
    bounded = [0]
    for last in edges[1:]:
        for row in range(bounded[-1] + 1, last):
            if (row + 1 - bounded[-1]) * lengths[row] > most:
                bounded.append(row)
        bounded.append(last)
    return bounded
