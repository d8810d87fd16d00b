"""Drawing tokens from weights with random numbers that are passed in."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def draw(weights: NDArray[np.floating], uniforms: NDArray[np.float64]) -> NDArray[np.int64]:
    """Inverse CDF in the order of the indices; an index of weight zero is never drawn.

    Args:
        weights: float [R, V], not negative, each row with a positive sum (which need not be one).
        uniforms: float64 [R] or [R, k] in [0, 1).

    Returns:
        int64, as `uniforms`.
    """
    cumulative = weights.cumsum(axis=1, dtype=np.float64)
    total = cumulative[:, -1]
    if uniforms.ndim == 1:
        return _index(cumulative, uniforms * total, total)
    columns = [_index(cumulative, column * total, total) for column in uniforms.T]
    return np.stack(columns, axis=1) if columns else np.empty(uniforms.shape, dtype=np.int64)


def _index(cumulative: NDArray[np.float64], goal: NDArray[np.float64], total: NDArray[np.float64]) -> NDArray[np.int64]:
    goal = np.minimum(goal, np.nextafter(total, 0))  # the product can round up to the total
    return (cumulative <= goal[:, None]).sum(axis=1, dtype=np.int64)
