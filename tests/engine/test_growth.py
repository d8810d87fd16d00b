"""Grown trees are the best there are, each row's its own."""

from __future__ import annotations

import numpy as np
import pytest

from training.sparse_tree import grow
from tts_engine.proposers.growth import Growth

RANKS = 4


def grown(chances: np.ndarray, nodes: int, widths: tuple[int, ...] = (RANKS, RANKS**2)) -> tuple[np.ndarray, ...]:
    """Trees of chances float [B, depth, R] that hold behind every node of a depth; token = 100 * depth + rank."""
    growth = Growth(len(chances))
    for depth, width in zip(range(chances.shape[1]), (1, *widths), strict=True):
        shape = (len(chances), width, RANKS)
        if depth:
            token, behind = growth.open(width)
            assert token.shape == behind.shape == (len(chances), width)
        growth.offer(
            np.broadcast_to(100 * depth + np.arange(RANKS), shape), np.broadcast_to(chances[:, depth, None], shape)
        )
    return growth.trees(nodes)


@pytest.mark.parametrize("nodes", [1, 5, 12])
def test_with_everything_open_it_is_the_greedy_builders_tree(nodes: int) -> None:
    chances = np.sort(np.random.default_rng(nodes).random((6, 3, RANKS)))[:, :, ::-1]
    tokens, parents = grown(chances, nodes)
    for row, one in enumerate(chances):
        tree = grow(one, nodes)
        assert parents[row].tolist() == list(tree.parents)
        assert (tokens[row] % 100).tolist() == list(tree.ranks)


def test_rows_are_the_same_in_company_and_alone() -> None:
    chances = np.random.default_rng(0).random((5, 3, RANKS))
    together = grown(chances, 9, (2, 3))
    for row in range(5):
        for one, all_rows in zip(grown(chances[row : row + 1], 9, (2, 3)), together, strict=True):
            assert (one[0] == all_rows[row]).all()


@pytest.mark.parametrize("chance", [0.0, 1.0])
def test_of_equally_likely_nodes_the_parent_comes_first(chance: float) -> None:
    _, parents = grown(np.full((2, 3, RANKS), chance), 10)
    assert (parents < np.arange(10)).all()


def test_settled_says_that_deeper_candidates_change_nothing() -> None:
    """Whatever chances they had: even certain ones stand behind what is there already."""
    seen = set()
    for seed, nodes in [(seed, nodes) for seed in range(20) for nodes in (1, 3, 8)]:
        chances = np.random.default_rng(seed).dirichlet(np.full(RANKS, 0.4), size=(2, 2))
        growth, deeper = Growth(2), np.ones((2, 1, RANKS))
        growth.offer(np.tile(np.arange(RANKS), (2, 1, 1)), chances[:, :1])
        before = growth.settled(nodes)
        seen.add(before)
        known = growth.trees(nodes) if before else None
        growth.open(2)
        growth.offer(np.tile(100 + np.arange(RANKS), (2, 2, 1)), np.repeat(deeper, 2, axis=1))
        if known is None:  # then something would change
            assert (growth.trees(nodes)[1] >= 0).any()
        else:
            np.testing.assert_array_equal(known, growth.trees(nodes))
    assert seen == {False, True}
