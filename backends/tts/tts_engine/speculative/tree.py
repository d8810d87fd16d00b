"""Tree: how the nodes of a draft follow each other, with everything that is derived from it, built once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Tree:
    """n draft nodes behind the last committed token, which is the root and counts as node -1.

    Arrays with 1 + n rows are indexed by `node + 1`, the order of `Decode.forward`: the root first, then the nodes;
    `depths` and `visible` go there as they are. `...` is nothing (one tree for the whole batch) or B (a tree a row).
    All arrays are read-only.

    Attributes:
        parents: int64 [..., n], each node's parent, -1 for the root; a parent comes before its children.
        depths: int64 [..., 1 + n], 0 at the root.
        visible: bool [..., 1 + n, 1 + n], row i attends to column j: itself and its ancestors.
        children: int64 [..., 1 + n, W], each node's children from left to right, -1 where there are no more.
        paths: int64 [..., 1 + n, D], the nodes from below the root to each node, itself included, -1 behind it.
        leaves: bool [..., 1 + n], nodes without children.
    """

    parents: NDArray[np.int64]
    depths: NDArray[np.int64]
    visible: NDArray[np.bool_]
    children: NDArray[np.int64]
    paths: NDArray[np.int64]
    leaves: NDArray[np.bool_]

    @classmethod
    def of(cls, parents: NDArray[np.int64]) -> Tree:
        """The tree of these parents; the last ones are kept, so that a step's, or a fixed one, is built once.

        Raises:
            ValueError: parents are not int64 [n] or [B, n], or one does not come before its child.
        """
        if parents.ndim not in (1, 2) or parents.dtype != np.int64:
            raise ValueError(f"parents must be int64 [n] or [B, n], not {parents.dtype} {list(parents.shape)}")
        return _kept(parents.tobytes(), parents.shape)

    @property
    def size(self) -> int:
        """n, the number of draft nodes."""
        return self.parents.shape[-1]

    @property
    def depth(self) -> int:
        """D, the nodes on the longest path: the most tokens that one verification can accept."""
        return self.paths.shape[-1]

    def pick(self, array: NDArray[Any], rows: NDArray[np.int64], nodes: NDArray[np.int64]) -> NDArray[Any]:
        """What one of the arrays with 1 + n rows says about a node (-1: the root) of each batch row; both [R]."""
        return array[nodes + 1] if self.parents.ndim == 1 else array[rows, nodes + 1]

    @property
    def is_chain(self) -> bool:
        """Nobody has siblings: a tree of width one."""
        return self.children.shape[-1] <= 1


@lru_cache(maxsize=64)
def _kept(parents: bytes, shape: tuple[int, ...]) -> Tree:
    return _build(np.frombuffer(parents, dtype=np.int64).reshape(shape))


def _build(given: NDArray[np.int64]) -> Tree:
    parents = np.atleast_2d(given)
    rows, n = parents.shape
    bad = np.argwhere((parents < -1) | (parents >= np.arange(n)))
    if bad.size:
        row, node = bad[0]
        raise ValueError(
            f"node {node} has parent {parents[row, node]}: give -1 (the root) or a node that comes before its child"
        )
    every = np.arange(rows)
    seen = np.tile(np.eye(1 + n, dtype=np.float32), (rows, 1, 1))
    seen[every[:, None], np.arange(1, 1 + n), parents + 1] = 1
    for _ in range(int(n).bit_length()):  # ancestors 1, then up to 2, 4, … generations above
        seen = np.minimum(seen @ seen, 1)
    visible = seen > 0
    depths = visible.sum(axis=2) - 1
    # The place of a node among its siblings: how many nodes before it have the same parent.
    place = np.tril(parents[:, :, None] == parents[:, None, :], -1).sum(axis=2)
    children = np.full((rows, 1 + n, int(place.max(initial=-1)) + 1), -1, dtype=np.int64)
    children[every[:, None], parents + 1, place] = np.arange(n)
    paths = np.full((rows, 1 + n, int(depths.max())), -1, dtype=np.int64)
    row, node, ancestor = np.nonzero(visible[:, :, 1:])
    paths[row, node, depths[row, ancestor + 1] - 1] = ancestor
    arrays = (parents.copy(), depths, visible, children, paths, (children < 0).all(axis=2))
    if given.ndim == 1:
        arrays = tuple(array[0] for array in arrays)
    for array in arrays:
        array.setflags(write=False)
    return Tree(*arrays)
