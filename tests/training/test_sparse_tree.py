"""The sparse tree: closed under parents, the best of its size, larger trees extend smaller ones."""

from __future__ import annotations

from itertools import combinations, product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from training.sparse_tree import SparseTree, grow
from tts_engine.speculative.tree import Tree

Matrix = NDArray[np.float64]


def matrices(depth: int, width: int) -> st.SearchStrategy[Matrix]:
    return st.tuples(st.integers(1, depth), st.integers(1, width)).flatmap(
        lambda shape: arrays(np.float64, shape, elements=st.floats(0, 1))
    )


def size(matrix: Matrix) -> int:
    depth, width = matrix.shape
    return sum(width**level for level in range(1, depth + 1))


def branches(tree: SparseTree) -> list[tuple[int, ...]]:
    """Every node as the ranks on its path; fails where a parent does not come first."""
    found: list[tuple[int, ...]] = []
    for node, (parent, rank) in enumerate(zip(tree.parents, tree.ranks, strict=True)):
        assert -1 <= parent < node
        found.append((*(found[parent] if parent >= 0 else ()), rank))
    return found


def chance(matrix: Matrix, path: tuple[int, ...]) -> float:
    return float(np.prod([matrix[level, rank] for level, rank in enumerate(path)]))


@settings(max_examples=60, deadline=None)
@given(matrices(4, 5), st.data())
def test_nodes_are_distinct_and_stand_behind_their_parents(matrix: Matrix, data: st.DataObject) -> None:
    nodes = data.draw(st.integers(1, min(size(matrix), 40)))
    tree = grow(matrix, nodes)
    paths = branches(tree)
    assert len(set(paths)) == nodes
    assert all(rank < matrix.shape[1] for path in paths for rank in path)
    assert tree.expected_acceptance_length == pytest.approx(1 + sum(chance(matrix, path) for path in paths))


@settings(max_examples=40, deadline=None)
@given(matrices(2, 3), st.data())
def test_no_tree_of_the_size_is_better(matrix: Matrix, data: st.DataObject) -> None:
    depth, width = matrix.shape
    nodes = data.draw(st.integers(1, min(size(matrix), 4)))
    every = [path for level in range(1, depth + 1) for path in product(range(width), repeat=level)]
    best = max(
        1 + sum(chance(matrix, path) for path in chosen)
        for chosen in combinations(every, nodes)
        if all(len(path) == 1 or path[:-1] in chosen for path in chosen)
    )
    assert grow(matrix, nodes).expected_acceptance_length == pytest.approx(best)


@settings(max_examples=60, deadline=None)
@given(matrices(4, 4), st.data())
def test_a_larger_tree_extends_the_smaller(matrix: Matrix, data: st.DataObject) -> None:
    large = data.draw(st.integers(1, min(size(matrix), 40)))
    small = data.draw(st.integers(1, large))
    a, b = grow(matrix, small), grow(matrix, large)
    assert (b.parents[:small], b.ranks[:small]) == (a.parents, a.ranks)
    assert 1 <= a.expected_acceptance_length <= b.expected_acceptance_length


def test_a_worked_example() -> None:
    tree = grow(np.array([[0.6, 0.3], [0.5, 0.1]]), 4)
    # 0.6; then its best child and the second candidate, 0.3 each; then that one's best child, 0.15
    assert (tree.parents, tree.ranks) == ((-1, -1, 0, 1), (0, 1, 0, 0))
    assert tree.depth == 2
    assert tree.expected_acceptance_length == pytest.approx(1 + 0.6 + 0.3 + 0.3 + 0.15)


def test_the_engine_reads_the_file(tmp_path: Path) -> None:
    made = grow(np.array([[0.6, 0.3, 0.05], [0.5, 0.1, 0.05]]), 8)
    made.save(tmp_path / "tree_8.json")
    loaded = SparseTree.load(tmp_path / "tree_8.json")
    assert loaded == made
    tree = Tree.of(np.array(loaded.parents, np.int64))
    assert (tree.size, tree.depth) == (8, 2)


@pytest.mark.parametrize("nodes", [0, 7])
def test_a_size_that_no_tree_has_is_refused(nodes: int) -> None:
    with pytest.raises(ValueError, match=f"make no tree of {nodes} nodes"):
        grow(np.full((2, 2), 0.5), nodes)


@pytest.mark.parametrize("wrong", [np.array([[1.1]]), np.array([0.5]), np.array([[np.nan]])])
def test_only_probabilities_make_a_tree(wrong: Matrix) -> None:
    with pytest.raises(ValueError, match="matrix"):
        grow(wrong, 1)
