"""Lanes: graph runs side by side, each on few threads; a batch is cut into as many parts as lanes are idle."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from tts_engine import denormals
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
        self._threads = ThreadPoolExecutor(max(1, self._beside), "tts-lane", denormals.flush)
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

        Idle lanes take them from the first on; the caller takes what they have not begun, from the last on.
        """
        results: dict[int, T] = {}
        errors: list[Exception] = []

        def attempt(place: int, run: Callable[[], T]) -> None:
            try:
                results[place] = run()
            except Exception as error:
                errors.append(error)

        futures = [self.begin(run) for run in runs[1:]]
        attempt(0, runs[0])
        begun = []
        for place in range(len(futures), 0, -1):
            if futures[place - 1].cancel():
                attempt(place, runs[place])
            else:
                begun.append(place)
        for place in begun:
            attempt(place, futures[place - 1].result)
        if errors:
            raise errors[0]
        return [results[place] for place in range(len(runs))]

    def warm_up(self, run: Callable[[], object]) -> None:
        """Do this in every lane at once. Twice: the first run of a shape is where ONNX Runtime plans its memory."""
        for _ in range(2):
            self.share([run] * self.parts(1 + self._beside))


def cuts(rows: int, parts: int) -> list[int]:
    """Where `parts` nearly equal parts of `rows` rows begin, and the end."""
    return [rows * part // parts for part in range(parts + 1)]


def balanced(lengths: Sequence[int], parts: int, most: int) -> list[int]:
    """Where to cut ascending lengths so that the parts, each padded to its longest, cost as little as can be where the
    dearest counts; 0 and the end included.

    most: padded positions of a part (a single row may have more). Where there are more, `parts` more are cut, and so
    on, that all lanes have as much to do: a runtime keeps the memory of its widest run for good, and beyond some size
    wider ones are no cheaper.
    """
    for count in range(parts, len(lengths), parts):
        # Each bound fills the parts from the front; the least one that they all fit under.
        bounds = range(lengths[-1], min(max(most, lengths[-1]), len(lengths) * lengths[-1]) + 1)
        least = bisect_left(bounds, True, key=lambda bound: len(_filled(lengths, bound)) <= count + 1)
        if least < len(bounds):
            return _filled(lengths, bounds[least])
    return list(range(len(lengths) + 1))


def _filled(lengths: Sequence[int], bound: int) -> list[int]:
    """Edges of parts that take rows as long as they stay within so many padded positions, one row at least each."""
    edges = [0]
    for row in range(1, len(lengths)):
        if (row + 1 - edges[-1]) * lengths[row] > bound:
            edges.append(row)
    return [*edges, len(lengths)]
