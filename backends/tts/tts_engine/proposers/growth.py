"""Growth: a tree for every row, from candidates that come level by level; what is likeliest to be accepted stays."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int64]
SMALLEST = 1e-12  # chance: its logarithm is a number


class Growth:
    """The trees of B rows, whose shapes differ: a row that is sure of its draft goes deep, one that is not goes wide.

    No node is likelier than its parent, so the likeliest nodes of all levels are a tree, the best of its size among
    what was offered. Until then a node is named by its place in the order of coming, -1 the committed token.
    """

    def __init__(self, rows: int) -> None:
        self._tokens: list[Ids] = []
        self._parents: list[Ids] = []
        self._scores: list[NDArray[np.float64]] = []  # log of the chance that the whole path is accepted
        self._open = np.full((rows, 1), -1)  # nodes that the next candidates stand behind
        self._above = np.zeros((rows, 1))  # their scores
        self._count = 0

    def offer(self, tokens: Ids, chances: NDArray[np.float64]) -> None:
        """Candidates behind the open nodes: tokens int64, chances float64 in [0, 1], both [B, open nodes, R]."""
        rows, _, self._ranks = tokens.shape
        self._tokens.append(tokens.reshape(rows, -1))
        self._parents.append(np.repeat(self._open, self._ranks, axis=1))
        scores = self._above[:, :, None] + np.log(np.maximum(chances, SMALLEST))
        self._scores.append(scores.reshape(rows, -1))

    def open(self, width: int) -> tuple[Ids, Ids]:
        """Opens the likeliest `width` of the last candidates; (their tokens, which open node they stood behind)."""
        scores = self._scores[-1]
        places = np.argsort(-scores, axis=1, kind="stable")[:, :width]
        self._open = self._count + places
        self._above = np.take_along_axis(scores, places, axis=1)
        self._count += scores.shape[1]
        return np.take_along_axis(self._tokens[-1], places, axis=1), places // self._ranks

    def settled(self, nodes: int) -> bool:
        """Whether no child of the last candidates can be among any row's likeliest `nodes`."""
        scores = np.concatenate(self._scores, axis=1)
        if scores.shape[1] < nodes:
            return False
        least = -np.partition(-scores, nodes - 1, axis=1)[:, nodes - 1]
        return bool((self._scores[-1].max(axis=1) <= least).all())

    def trees(self, nodes: int) -> tuple[Ids, Ids]:
        """The likeliest `nodes` nodes: (tokens, parents), int64 [B, nodes], the likeliest first."""
        scores, parents = np.concatenate(self._scores, axis=1), np.concatenate(self._parents, axis=1)
        # Stable: of equally likely nodes the parent came before its child, and so it stays.
        best = np.argsort(-scores, axis=1, kind="stable")[:, :nodes]
        named = np.full((len(best), scores.shape[1] + 1), -1)  # the last column is -1's
        np.put_along_axis(named, best, np.arange(nodes), axis=1)
        above = np.take_along_axis(parents, best, axis=1)
        return (
            np.take_along_axis(np.concatenate(self._tokens, axis=1), best, axis=1),
            np.take_along_axis(named, above, axis=1),
        )
