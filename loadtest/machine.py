"""How fast the machine is just now: a virtual one loses half its speed while its neighbours are busy.

python -m loadtest.machine                             # one JSON line, in half a second
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np

SIZE = 2048
CACHED = 3 << 20  # numbers, 12 MB: as large as the shipped language model, which every decoding step reads once
TRIES = 3


def speed() -> dict[str, float]:
    """`gigaflops`: 10^9 operations a second of the best of some float32 matrix products, on all cores; `cache_gb_s`:
    10^9 bytes a second that one core reads of what has room in the last cache.

    In a process of its own, as the threads of a product spin for 0.1 s after it, on cores that what is measured next
    needs: the first burst of 32 after it took 136 instead of 106 ms.
    """
    command = [sys.executable, "-m", __name__]
    root = Path(__file__).parents[1]
    return dict(json.loads(subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout))


def main() -> None:
    values = np.random.default_rng(0).random((SIZE, SIZE), dtype=np.float32)
    product = min(_times(lambda: values @ values, TRIES))
    cached = np.ones(CACHED, dtype=np.float32)
    read = median(_times(cached.max, 10 * TRIES))
    figures = {"gigaflops": round(2 * SIZE**3 / product / 1e9), "cache_gb_s": round(cached.nbytes / read / 1e9, 1)}
    print(json.dumps(figures))


def _times(run: Callable[[], object], times: int) -> list[float]:
    seconds = []
    for _ in range(times):
        began = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - began)
    return seconds


if __name__ == "__main__":
    main()
