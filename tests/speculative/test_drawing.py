"""Drawing at the edges: no weight, no draw."""

from __future__ import annotations

import numpy as np
import pytest

from tts_engine.speculative import exact
from tts_engine.speculative.drawing import draw

LAST = np.nextafter(1, 0)  # the largest random number there is


@pytest.mark.parametrize("scale", [1.0, 0.1, 1e-30, 3.0, 1e30])
def test_the_ends_of_the_range_draw_the_outermost_positive_weights(scale: float) -> None:
    weights = scale * np.array([[0, 0, 0.3, 0, 0.7, 0, 0]])
    assert draw(weights, np.array([[0.0, 0.29, 0.31, LAST]])).tolist() == [[2, 2, 4, 4]]
    assert draw(weights, np.array([0.0])).tolist() == [2]


def test_the_largest_random_number_stays_inside() -> None:
    weights = np.random.default_rng(50).random((20_000, 3))
    weights[:, 2] = 0
    assert (draw(weights, np.full(len(weights), LAST)) == 1).all()


def test_a_residual_that_rounding_empties_is_the_target() -> None:
    target, draft = np.array([[0.5, 0.5], [0.2, 0.8]]), np.array([[0.5, 0.5 + 1e-16], [0.5, 0.5]])
    draft[0, 1] = np.nextafter(0.5, 1)
    np.testing.assert_allclose(exact.residual(target, draft), [[0.5, 0.5], [0.0, 0.3]])
