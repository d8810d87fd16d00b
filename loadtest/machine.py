"""How fast the machine is just now: a virtual one loses half its speed while its neighbours are busy."""

from __future__ import annotations

import time

import numpy as np

SIZE = 2048
TRIES = 3


def gigaflops() -> float:
    """10^9 operations a second of the best of some float32 matrix products, on all cores; a third of a second."""
    values = np.random.default_rng(0).random((SIZE, SIZE), dtype=np.float32)
    best = float("inf")
    for _ in range(TRIES):
        began = time.perf_counter()
        values @ values
        best = min(best, time.perf_counter() - began)
    return round(2 * SIZE**3 / best / 1e9)
