"""Arrival times: reproducible, of the asked rate."""

from __future__ import annotations

import numpy as np
import pytest

from loadtest.schedule import arrivals


def test_the_same_seed_gives_the_same_poisson_process() -> None:
    first, again, other = (arrivals(5, 100, seed=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert (first != other).all()
    assert (np.diff(first) > 0).all() and first[0] > 0


def test_poisson_gaps_are_exponential_with_the_rate() -> None:
    gaps = np.diff(arrivals(4, 20_000, seed=3))
    assert gaps.mean() == pytest.approx(1 / 4, rel=0.03)
    assert gaps.std() == pytest.approx(1 / 4, rel=0.03)


def test_constant_gaps_are_equal() -> None:
    np.testing.assert_allclose(arrivals(4, 5, "constant"), [0.25, 0.5, 0.75, 1.0, 1.25])


@pytest.mark.parametrize(
    ("rate", "distribution"), [(0, "poisson"), (-1, "constant"), (float("nan"), "poisson"), (1, "even")]
)
def test_nonsense_is_refused(rate: float, distribution: str) -> None:
    with pytest.raises(ValueError, match="must be"):
        arrivals(rate, 3, distribution)
