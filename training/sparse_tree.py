"""The sparse tree of a draft: which candidates of which head are worth a place in one verification.

MEDUSA's greedy algorithm, as VADUSA uses it (section II-D): with a[d, r] the probability that candidate r of position
d is accepted, a node's path is accepted with the product of a along it, and every accepted node is one token more.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from heapq import heappop, heappush
from pathlib import Path

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class SparseTree:
    """Nodes in falling order of acceptance: the first n of them are the best tree of n nodes.

    parents: each node's parent, -1 for the root (the last committed token); a parent comes before its children.
    ranks: which candidate of its depth a node is, 0 the most probable.
    expected_acceptance_length: tokens a step, the LM's own included.
    """

    parents: tuple[int, ...]
    ranks: tuple[int, ...]
    expected_acceptance_length: float

    @property
    def depth(self) -> int:
        """Nodes on the longest path."""
        depths: list[int] = []
        for parent in self.parents:
            depths.append(1 + (depths[parent] if parent >= 0 else 0))
        return max(depths, default=0)

    def save(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self)) + "\n")

    @classmethod
    def load(cls, path: Path) -> SparseTree:
        fields = json.loads(path.read_text())
        return cls(tuple(fields["parents"]), tuple(fields["ranks"]), float(fields["expected_acceptance_length"]))


def grow(acceptance: NDArray[np.float64], nodes: int) -> SparseTree:
    """The tree of `nodes` nodes with the largest expected acceptance length.

    No node is likelier than its parent, so taking the likeliest node whose parent is in the tree is optimal.

    Args:
        acceptance: float [k, R] in [0, 1]: candidate r of position i is accepted, given that all before it were.
        nodes: at least 1.

    Raises:
        ValueError: acceptance is no such matrix, or the full tree of k levels and R candidates has fewer nodes.
    """
    if acceptance.ndim != 2 or not ((acceptance >= 0) & (acceptance <= 1)).all():
        raise ValueError("acceptance must be a matrix [positions, ranks] of probabilities")
    depth, width = acceptance.shape
    if not 1 <= nodes <= sum(width**level for level in range(1, depth + 1)):
        raise ValueError(
            f"{depth} positions of {width} candidates make no tree of {nodes} nodes; ask for 1 or more, fewer"
        )
    parents: list[int] = []
    ranks: list[int] = []
    total = 1.0
    # (-probability, depth, rank, parent): of equally likely nodes the shallower and better ranked first.
    frontier: list[tuple[float, int, int, int]] = []

    def open_children(node: int, probability: float, level: int) -> None:
        if level < depth:
            for rank in range(width):
                heappush(frontier, (-probability * float(acceptance[level, rank]), level, rank, node))

    open_children(-1, 1.0, 0)
    while len(parents) < nodes:
        negative, level, rank, parent = heappop(frontier)
        parents.append(parent)
        ranks.append(rank)
        total -= negative
        open_children(len(parents) - 1, -negative, level + 1)
    return SparseTree(tuple(parents), tuple(ranks), total)
