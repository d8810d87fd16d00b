"""Drawing tokens from weights with random numbers that are passed in."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def draw(weights: NDArray[np.floating], uniforms: NDArray[np.float64]) -> NDArray[np.int64]:
    """Inverse CDF in the order of the indices; an index of weight zero is never drawn.

    Args:
        weights: float [R, V], not negative, each row with a positive sum (which need not be one).
        uniforms: float64 [R] or [R, k > 0] in [0, 1).

    Returns:
        int64, as `uniforms`.
    """
    cumulative = weights.cumsum(axis=1, dtype=np.float64)
    # In float64 the product stays below the row's total, so that the place of a positive weight is found.
    goals = (uniforms.T * cumulative[:, -1]).T
    if uniforms.ndim == 1:
        return (cumulative <= goals[:, None]).sum(axis=1, dtype=np.int64)
    return np.stack([(cumulative <= goal[:, None]).sum(axis=1, dtype=np.int64) for goal in goals.T], axis=1)
