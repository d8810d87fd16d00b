"""Depth: how many tokens to draft this step, from what a step costs and what drafting has brought."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

NODES = (0, 1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32)
MEMORY = 0.05  # share of a new observation in a running mean
FORGET = 0.9999  # a step: what has not been tried for long looks slowly better, until it is tried again


class Depth:
    """The load-adaptive choice: tokens a second are the expected accepted ones, plus one, over the step's seconds.

    The seconds of a step of B items and n nodes start as measured at warm-up (graph runs only, so that everything
    looks a little better than it is and gets tried) and follow what steps really take. The expectation starts as the
    proposer's calibrated chances and follows what is accepted, a factor a rule: rules accept more or less than
    calibration assumed.
    """

    def __init__(self, batches: Iterable[int], costs: NDArray[np.float64]) -> None:
        """batches: B of each row of `costs` float64 [rows, len(NODES)], seconds; inf where n is not to be used."""
        self._batches = list(batches)
        self._costs = costs.copy()
        self._tried = np.zeros(costs.shape, dtype=np.int64)
        self._factors: dict[tuple[str, str], float] = {}
        self._expected: dict[str, NDArray[np.float64]] = {}

    def know(self, proposer: str, chances: NDArray[np.float64]) -> None:
        """chances: float64 [most], of the path to each node."""
        total = np.concatenate([[0.0], chances.cumsum()])
        sums = [total[nodes] if nodes < len(total) else -1.0 for nodes in NODES]  # -1: more than it can draft
        self._expected[proposer] = np.array(sums)

    def choose(self, batch: int, proposer: str, rule: str) -> int:
        """Nodes a row that promise most tokens a second for `batch` items; 0 where drafting does not pay."""
        gains = 1 + self._expected[proposer] * self._factors.get((proposer, rule), 1.0)
        speed = np.where(self._expected[proposer] >= 0, gains, 0) / self._costs[self._row(batch)]
        return NODES[int(speed.argmax())]

    def accepted(self, proposer: str, rule: str, nodes: int, mean: float) -> None:
        """On average `mean` of the drafted tokens were accepted in a step of `nodes` nodes."""
        expected = float(self._expected[proposer][bisect_left(NODES, nodes)])
        if expected <= 0:
            return
        old = self._factors.get((proposer, rule), 1.0)
        self._factors[proposer, rule] = old + MEMORY * (mean / expected - old)

    def took(self, batch: int, nodes: int, seconds: float) -> None:
        """A step of `batch` items with `nodes` nodes took `seconds`; outliers count as three times the mean."""
        row, column = self._row(batch), bisect_left(NODES, nodes)
        old = self._costs[row, column]
        share = max(MEMORY, 1 / (2 + self._tried[row, column]))
        self._tried[row, column] += 1
        self._costs[row] *= FORGET
        self._costs[row, column] = old + share * (min(seconds, 3 * old) - old)

    def _row(self, batch: int) -> int:
        return min(bisect_left(self._batches, batch), len(self._batches) - 1)
