"""When requests are sent: arrival times in seconds since the start, reproducible by seed."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

DISTRIBUTIONS = ("poisson", "constant")


def arrivals(rate: float, count: int, distribution: str = "poisson", seed: int = 0) -> NDArray[np.float64]:
    """float64 [count], ascending: `rate` requests a second, with exponential or equal gaps; the first gap comes first.

    ValueError for a rate that is not positive or an unknown distribution.
    """
    if not rate > 0:
        raise ValueError(f"the rate must be above 0 requests a second, not {rate}")
    if distribution not in DISTRIBUTIONS:
        raise ValueError(f"the distribution must be one of {', '.join(DISTRIBUTIONS)}, not {distribution!r}")
    if distribution == "constant":
        return (np.arange(count) + 1) / rate
    return np.cumsum(np.random.default_rng(seed).exponential(1 / rate, count))
