"""How fast the machine is just now: a virtual one loses half its speed while its neighbours are busy."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

import numpy as np

SIZE = 2048
CACHED = 3 << 20  # numbers, 12 MB: as large as the shipped language model, which every decoding step reads once
TRIES = 3


def speed() -> dict[str, float]:
    """`gigaflops`: 10^9 operations a second of the best of some float32 matrix products, on all cores; `cache_gb_s`:
    10^9 bytes a second that one core reads of what has room in the last cache. Takes a third of a second.
    """
    values = np.random.default_rng(0).random((SIZE, SIZE), dtype=np.float32)
    product = min(_times(lambda: values @ values, TRIES))
    cached = np.ones(CACHED, dtype=np.float32)
    read = median(_times(cached.max, 10 * TRIES))
    return {"gigaflops": round(2 * SIZE**3 / product / 1e9), "cache_gb_s": round(cached.nbytes / read / 1e9, 1)}


def _times(run: Callable[[], object], times: int) -> list[float]:
    seconds = []
    for _ in range(times):
        began = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - began)
    return seconds
