"""Proposer: drafts tokens behind each item's last committed token, and hears what became of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tts_engine.item import Item
from tts_engine.sampling import Kept, SamplingBatch
from tts_engine.session import Session


@dataclass(frozen=True, eq=False)
class Proposal:
    """n drafted tokens a row: tokens int64 [B, n] (logit indices), parents int64 [n] or [B, n] (-1: committed token).

    kept: the distributions the tokens were drawn from, rows in the order of tokens.reshape(-1); None: deterministic.
    """

    tokens: NDArray[np.int64]
    parents: NDArray[np.int64]
    kept: Kept | None = None

    def first(self, nodes: int) -> Proposal:
        """The same with the first `nodes` nodes only, for rows that asked for that many."""
        n = self.tokens.shape[1]
        if nodes == n:
            return self
        kept = None
        if self.kept is not None:
            width = self.kept.tokens.shape[1]
            tokens = self.kept.tokens.reshape(-1, n, width)[:, :nodes]
            kept = Kept(tokens.reshape(-1, width), self.kept.probs.reshape(-1, n, width)[:, :nodes].reshape(-1, width))
        return Proposal(self.tokens[:, :nodes], self.parents[..., :nodes], kept)


class Proposer(Protocol):
    """One for all items, batched over them. Its caches lie in the LM's slots, its other state in the items' rows.

    name: as in `speculative.PROPOSERS`. most: nodes it can draft. needs_all_hidden: of the prompt, not only of its
    last position. sessions: its graphs, by name. chances: float64 [most], the calibrated probability that the path to
    each node is accepted: the first n say what is to be expected of n nodes.
    """

    name: str
    most: int
    needs_all_hidden: bool
    sessions: dict[str, Session]
    chances: NDArray[np.float64]

    def prefilled(self, items: list[Item], start: int, tokens: NDArray[np.int64], hidden: NDArray[np.float32]) -> None:
        """The prompts of items in slots from `start` are in the LM's cache.

        tokens: int64 [B, n, C], right padded. hidden: float32 [B, n, H] of all positions with `needs_all_hidden`,
        else [B, 1, H], of the prompts' ends.
        """

    def propose(self, items: list[Item], start: int, count: int, nodes: list[int], settings: SamplingBatch) -> Proposal:
        """Draft nodes[i] tokens, `most` or fewer, for items[i], which lie among the `count` neighbouring slots from
        `start`: the first of its row, the same in any company. What is behind them fills up and means nothing."""

    def stepped(
        self, items: list[Item], places: NDArray[np.int64], hidden: NDArray[np.float32], tokens: NDArray[np.int64]
    ) -> None:
        """What the last forward pass committed, before the slots' lengths move and before the items take the tokens.

        places: int64 [B, 1 + D], columns of `hidden` float32 [B, 1 + n, H] at the committed token and at the accepted
        nodes, -1 behind them. tokens: int64 [B, 1 + D], the token that each of those positions led to, -1 behind.
        """
