"""A closed loop of callers: `concurrent` texts are in flight until none are left. The same for every server."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from tqdm import tqdm

Stream = Callable[[str, int], Iterable[np.ndarray]]  # (text, seed) -> pieces of audio float32 [samples], as they come


@dataclass(frozen=True)
class Heard:
    """One text as its listener heard it. Times by time.perf_counter(); `samples` of audio in all."""

    started: float
    first: float
    last: float
    samples: int


@dataclass(frozen=True)
class Load:
    """A finished run of texts."""

    concurrent: int
    seconds: float
    heard: Sequence[Heard]

    @property
    def samples(self) -> int:
        return sum(one.samples for one in self.heard)

    def first_chunk_ms(self, percentile: float) -> float:
        """Percentile of submit to first audio, milliseconds."""
        return float(np.percentile([1e3 * (one.first - one.started) for one in self.heard], percentile))

    def last_chunk_ms(self, percentile: float) -> float:
        """Percentile of submit to last audio, milliseconds."""
        return float(np.percentile([1e3 * (one.last - one.started) for one in self.heard], percentile))


def listen(stream: Stream, text: str, seed: int, started: float | None = None) -> Heard:
    """Consume one stream; `started` sets the clock's zero (None: now). RuntimeError when no audio came."""
    started = time.perf_counter() if started is None else started
    first, samples = None, 0
    for piece in stream(text, seed):
        if len(piece) and first is None:
            first = time.perf_counter()
        samples += len(piece)
    if first is None:
        raise RuntimeError(f"no audio came for {text!r}")
    return Heard(started, first, time.perf_counter(), samples)


def closed_loop(stream: Stream, texts: Sequence[str], concurrent: int, label: str) -> Load:
    """Speak all texts, `concurrent` at a time, text i with seed i; each caller's clock starts as it submits."""
    started = time.perf_counter()
    with ThreadPoolExecutor(concurrent) as callers, tqdm(total=len(texts), desc=label, leave=False) as bar:
        jobs = [callers.submit(listen, stream, text, seed) for seed, text in enumerate(texts)]
        heard = []
        for job in jobs:
            heard.append(job.result())
            bar.update()
    return Load(concurrent, time.perf_counter() - started, heard)


def bursts(stream: Stream, texts: Sequence[str], together: int, rounds: int, label: str) -> Load:
    """`rounds` times, `together` texts at the same instant, which is zero on all their clocks; silence in between."""
    started = time.perf_counter()
    heard = []
    with ThreadPoolExecutor(together) as callers:
        list(callers.map(time.sleep, [0.01] * together))  # the threads exist before the first instant
        for number in tqdm(range(rounds), desc=label, leave=False):
            batch = [texts[(number * together + i) % len(texts)] for i in range(together)]
            instant = time.perf_counter()
            jobs = [callers.submit(listen, stream, text, number, instant) for text in batch]
            heard += [job.result() for job in jobs]
    return Load(together, time.perf_counter() - started, heard)
