"""Depth: how many tokens to draft this step, from what a step costs and what drafting has brought."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

NODES = (0, 1, 2, 3, 4, 6, 8, 12, 16)
MEMORY = 0.05  # share of a new observation in a running mean
FORGET = 0.9999  # a step: what has not been tried for long looks slowly better, until it is tried again
MARGIN = 1.03  # drafting has to promise this much more than not drafting: costs are measured, with noise


class Depth:
    """The load-adaptive choice: tokens a second are the expected accepted ones, plus one, over the step's seconds.

    The seconds of a step of B items and n nodes start as measured at warm-up and follow what steps really take. The
    expectation starts as the proposer's calibrated chances and follows what is accepted, a factor a rule: rules accept
    more or less than calibration assumed.
    """

    def __init__(
        self,
        batches: Sequence[int],
        costs: Mapping[str, NDArray[np.float64]],
        chances: Mapping[str, NDArray[np.float64]],
    ) -> None:
        """By proposer: costs float64 [len(batches), len(NODES)], seconds, inf where n is not to be used; chances
        float64 [most], of the path to each node. batches: B of each row of costs, ascending."""
        self._batches = list(batches)
        self._costs = {name: array.copy() for name, array in costs.items()}
        self._factors: dict[tuple[str, str], float] = {}
        self._expected = {}
        for name, path in chances.items():
            total = np.concatenate([[0.0], path.cumsum()])
            self._expected[name] = np.array([total[min(nodes, len(path))] for nodes in NODES])

    def choose(self, batch: int, proposer: str, rule: str) -> int:
        """Nodes a row that promise most tokens a second for `batch` items; 0 where drafting does not pay."""
        gains = 1 + self._expected[proposer] * self._factors.get((proposer, rule), 1.0)
        speed = gains / self._costs[proposer][self._row(batch)]
        speed[0] *= MARGIN
        return NODES[int(speed.argmax())]

    def accepted(self, proposer: str, rule: str, nodes: int, mean: float) -> None:
        """On average `mean` of the drafted tokens were accepted in a step of `nodes` nodes."""
        expected = float(self._expected[proposer][NODES.index(nodes)])
        if expected > 0:
            old = self._factors.get((proposer, rule), 1.0)
            self._factors[proposer, rule] = old + MEMORY * (mean / expected - old)

    def took(self, batch: int, proposer: str, nodes: int, seconds: float) -> None:
        """A step of `batch` items with `nodes` nodes took `seconds`; outliers count as twice the mean."""
        costs, column = self._costs[proposer][self._row(batch)], NODES.index(nodes)
        old = costs[column]
        costs *= FORGET
        costs[column] = old + MEMORY * (min(seconds, 2 * old) - old)

    def _row(self, batch: int) -> int:
        return min(bisect_left(self._batches, batch), len(self._batches) - 1)
