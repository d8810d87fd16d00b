"""Depth: the choice that promises most, and how it follows what steps cost and bring."""

from __future__ import annotations

import numpy as np

from tts_engine.speculative.depth import NODES, Depth

CHANCES = {"medusa": np.array([0.7, 0.5, 0.3, 0.2, 0.15, 0.1, 0.05, 0.05])}


def costs(step: float, node: float) -> dict[str, np.ndarray]:
    """Linear: a step and each of its nodes."""
    nodes = np.array(NODES, dtype=np.float64)
    return {"medusa": np.stack([step + node * nodes, 4 * (step + 10 * node * nodes)])}


def test_cheap_nodes_are_drafted_and_dear_ones_are_not() -> None:
    assert Depth([1, 16], costs(1.0, 1e-6), CHANCES).choose(1, "medusa", "exact") == 8
    assert Depth([1, 16], costs(1.0, 0.25), CHANCES).choose(1, "medusa", "exact") == 2
    assert Depth([1, 16], costs(1.0, 1.0), CHANCES).choose(1, "medusa", "exact") == 0


def test_a_larger_batch_has_its_own_costs() -> None:
    depth = Depth([1, 16], costs(1.0, 0.2), CHANCES)
    assert depth.choose(1, "medusa", "exact") > 0
    assert depth.choose(2, "medusa", "exact") == depth.choose(16, "medusa", "exact") == 0
    assert depth.choose(99, "medusa", "exact") == 0


def test_it_follows_acceptance_a_rule() -> None:
    depth = Depth([1], {"medusa": costs(1.0, 0.2)["medusa"][:1]}, CHANCES)
    for _ in range(200):
        depth.accepted("medusa", "exact", 2, 0.1)
        depth.accepted("medusa", "tolerance", 2, 2.0)
    assert depth.choose(1, "medusa", "exact") == 0
    assert depth.choose(1, "medusa", "tolerance") > 2


def test_it_follows_what_steps_take_and_tries_again_after_long() -> None:
    depth = Depth([1], {"medusa": costs(1.0, 0.1)["medusa"][:1]}, CHANCES)
    first = depth.choose(1, "medusa", "exact")
    steps = 0
    while depth.choose(1, "medusa", "exact"):
        depth.took(1, "medusa", depth.choose(1, "medusa", "exact"), 3.0)
        steps += 1
        assert steps < 1000
    assert first > 0
    assert steps > 3
    for _ in range(20_000):
        depth.took(1, "medusa", 0, 1.0)
        if depth.choose(1, "medusa", "exact"):
            return
    raise AssertionError("what was once slow is never tried again")
