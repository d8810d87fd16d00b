"""Trees are what their parents say, and drafts that make no sense are refused."""

from __future__ import annotations

import numpy as np
import pytest

from tests.speculative.toy import sprout
from tts_engine.speculative import Accepted, Draft, Tree


def test_a_tree_of_four_nodes() -> None:
    #   root ── 0 ── 2
    #      └─── 1 ── 3
    tree = Tree.of(np.array([-1, -1, 0, 1]))
    assert tree.depths.tolist() == [0, 1, 1, 2, 2]
    assert tree.visible.astype(int).tolist() == [
        [1, 0, 0, 0, 0],
        [1, 1, 0, 0, 0],
        [1, 0, 1, 0, 0],
        [1, 1, 0, 1, 0],
        [1, 0, 1, 0, 1],
    ]
    assert tree.children.tolist() == [[0, 1], [2, -1], [3, -1], [-1, -1], [-1, -1]]
    assert tree.paths.tolist() == [[-1, -1], [0, -1], [1, -1], [0, 2], [1, 3]]
    assert tree.leaves.tolist() == [False, False, False, True, True]
    assert (tree.size, tree.depth, tree.is_chain) == (4, 2, False)


def test_a_chain_is_a_tree_of_width_one() -> None:
    tree = Draft.chain(np.array([[5, 6, 7]])).tree
    assert tree.is_chain
    assert tree.depths.tolist() == [0, 1, 2, 3]
    np.testing.assert_array_equal(tree.visible, np.tri(4, dtype=bool))
    assert tree.paths[3].tolist() == [0, 1, 2]


def test_no_nodes_at_all() -> None:
    tree = Draft.chain(np.empty((2, 0), dtype=np.int64)).tree
    assert (tree.size, tree.depth, tree.is_chain, tree.leaves.tolist()) == (0, 0, True, [True])


def test_a_shared_shape_is_built_once() -> None:
    assert Tree.of(np.array([-1, 0, 0])) is Tree.of(np.array([-1, 0, 0]))
    with pytest.raises(ValueError, match="read-only"):
        Tree.of(np.array([-1, 0, 0])).depths[0] = 1


def test_a_tree_a_row_equals_each_row_alone() -> None:
    parents = sprout(3, 20, 9, shared=False).parents
    together = Tree.of(parents)
    for row, alone in enumerate(map(Tree.of, parents)):
        np.testing.assert_array_equal(together.depths[row], alone.depths)
        np.testing.assert_array_equal(together.visible[row], alone.visible)
        np.testing.assert_array_equal(together.leaves[row], alone.leaves)
        np.testing.assert_array_equal(together.paths[row, :, : alone.depth], alone.paths)
        assert (together.paths[row, :, alone.depth :] == -1).all()
        width = alone.children.shape[1]
        np.testing.assert_array_equal(together.children[row, :, :width], alone.children)
        assert (together.children[row, :, width:] == -1).all()


IDS = np.array([[1, 2], [3, 0]])
CHAIN = np.array([-1, 0])


@pytest.mark.parametrize(
    ("ids", "parents", "probs", "message"),
    [
        (IDS.astype(np.int32), CHAIN, None, "token_ids must be int64"),
        (IDS[0], CHAIN, None, r"token_ids must be int64 \[B, n\], not int64 \[2\]"),
        (-IDS, CHAIN, None, "not be negative"),
        (IDS, np.array([-1, 0, 1]), None, r"parents must be \[2\] or \[2, 2\], not \[3\]"),
        (IDS, CHAIN.astype(np.int32), None, "parents must be int64"),
        (IDS, np.array([-1, 1]), None, "node 1 has parent 1: give -1"),
        (IDS, np.array([[-1, 0], [-2, 0]]), None, "node 0 has parent -2"),
        (IDS, CHAIN, np.ones((2, 3, 4)), r"probs must be \[2, 2, V\], not \[2, 3, 4\]"),
        (IDS, CHAIN, np.ones((2, 2, 3)), "below the 3 tokens"),
        (IDS, CHAIN, np.eye(4)[[[1, 2], [2, 0]]], "no probability in probs"),
    ],
)
def test_bad_drafts_are_refused(ids: np.ndarray, parents: np.ndarray, probs: np.ndarray | None, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Draft(ids, parents, probs)


@pytest.mark.parametrize(
    ("target", "uniforms", "message"),
    [
        ((2, 2, 4), (2, 3, 2), r"target_probs must be \[2, 3, V\]"),
        ((2, 3, 3), (2, 3, 2), "below the 3 tokens"),
        ((2, 3, 4), (2, 2, 2), r"uniforms must be \[2, 3, 2 or more\]"),
        ((2, 3, 4), (2, 3, 1), r"uniforms must be \[2, 3, 2 or more\]"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(target: tuple[int, ...], uniforms: tuple[int, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Draft(IDS, CHAIN).check(np.ones(target), np.zeros(uniforms), 2)


def test_what_was_accepted_in_words_of_metrics() -> None:
    """Rows that stop at the root, in the middle, and at the end of the chain 0 - 1 - 2."""
    draft = Draft.chain(np.array([[5, 6, 7]] * 3))
    outcome = Accepted.at(draft, np.array([-1, 0, 2]), np.array([8, 8, 9]))
    assert outcome.lengths.tolist() == [0, 1, 3]
    assert outcome.nodes.tolist() == [[-1, -1, -1], [0, -1, -1], [0, 1, 2]]
    assert outcome.tokens.tolist() == [[8, -1, -1, -1], [5, 8, -1, -1], [5, 6, 7, 9]]
    assert outcome.bonus.tolist() == [False, False, True]
    assert outcome.accepted.sum(axis=0).tolist() == [2, 1, 1]
    assert outcome.tested.sum(axis=0).tolist() == [3, 2, 1]
