"""Accepted: what came out of verifying a draft, for a whole batch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tts_engine.speculative.draft import Draft


@dataclass(frozen=True, eq=False)
class Accepted:
    """The accepted path of each row, and the one token that the target itself adds to it.

    Attributes:
        nodes: int64 [B, D], draft nodes of the accepted path from the root down, -1 behind it. Their keys and values
            are the ones to keep: node i was written at place 1 + i of the forward pass.
        lengths: int64 [B], accepted draft tokens; with the next token, the row advances by `lengths + 1`.
        next_tokens: int64 [B], the recovered token (a proposal was refused there) or the bonus token (none was left).
        bonus: bool [B], which of the two it is.
        draft_tokens: int64 [B, D], the tokens at `nodes`, -1 behind them.
    """

    nodes: NDArray[np.int64]
    lengths: NDArray[np.int64]
    next_tokens: NDArray[np.int64]
    bonus: NDArray[np.bool_]
    draft_tokens: NDArray[np.int64]

    @classmethod
    def at(cls, draft: Draft, last: NDArray[np.int64], next_tokens: NDArray[np.int64]) -> Accepted:
        """last: int64 [B], the deepest accepted node of each row, -1 for none."""
        tree, rows = draft.tree, np.arange(len(last))
        nodes = tree.pick(tree.paths, rows, last)
        tokens = np.full(nodes.shape, -1, dtype=np.int64)
        row, place = np.nonzero(nodes >= 0)
        tokens[row, place] = draft.token_ids[row, nodes[row, place]]
        lengths = tree.pick(tree.depths, rows, last)
        return cls(nodes, lengths, next_tokens, tree.pick(tree.leaves, rows, last), tokens)

    @property
    def tokens(self) -> NDArray[np.int64]:
        """int64 [B, D + 1]: the accepted draft tokens, the next token, -1 behind it."""
        tokens = np.concatenate([self.draft_tokens, np.full((len(self.lengths), 1), -1)], axis=1)
        tokens[np.arange(len(tokens)), self.lengths] = self.next_tokens
        return tokens

    @property
    def accepted(self) -> NDArray[np.bool_]:
        """bool [B, D]: whether a draft token was accepted at each position."""
        return self.nodes >= 0

    @property
    def tested(self) -> NDArray[np.bool_]:
        """bool [B, D]: whether a draft token was verified at each position; the rest fell with an earlier one."""
        places = np.arange(self.nodes.shape[1])
        return places < (self.lengths + ~self.bonus)[:, None]
