"""From the root down, one decision at a time: the walk of the rules that accept or recover at each node."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tts_engine.speculative.accepted import Accepted
from tts_engine.speculative.draft import Draft


@dataclass(frozen=True, eq=False)
class Stand:
    """Where R rows stand: what is proposed behind their last accepted token, and what the target says there.

    Attributes:
        rows: int64 [R], their rows in the batch.
        tokens: int64 [R, W], the proposals from left to right, -1 where there are no more; none at the tree's end.
        target: float [R, V], the target's distribution.
        draft: float [R, V], the distribution that the only proposal was drawn from; None: deterministic proposals.
        uniforms: float64 [R, U].
    """

    rows: NDArray[np.int64]
    tokens: NDArray[np.int64]
    target: NDArray[np.floating]
    draft: NDArray[np.floating] | None
    uniforms: NDArray[np.float64]


# The accepted proposal's place among its siblings, -1 for none, int64 [R]; and the token to recover then, int64 [R].
Decide = Callable[[Stand], tuple[NDArray[np.int64], NDArray[np.int64]]]


def walk(draft: Draft, target_probs: NDArray[np.floating], uniforms: NDArray[np.float64], decide: Decide) -> Accepted:
    """Accepts node after node until a row's proposals are all refused or used up. Random numbers: one row a depth."""
    tree, count = draft.tree, len(draft.token_ids)
    if draft.probs is not None and not tree.is_chain:
        raise ValueError(
            "draft probabilities are for chains: siblings are told apart by rank, so give them without probs"
        )
    last = np.full(count, -1, dtype=np.int64)
    next_tokens = np.full(count, -1, dtype=np.int64)
    rows = np.arange(count)
    for depth in range(tree.depth + 1):
        children = tree.pick(tree.children, rows, last[rows])
        some = children >= 0
        tokens = np.where(some, draft.token_ids[rows[:, None], children], -1) if draft.tree.size else children
        probs = None
        if draft.probs is not None and depth < tree.depth:
            probs = draft.probs[rows, depth]  # a chain: node = depth
        stand = Stand(rows, tokens, target_probs[rows, last[rows] + 1], probs, uniforms[rows, depth])
        place, recovered = decide(stand)
        go = place >= 0
        next_tokens[rows[~go]] = recovered[~go]
        rows, children, place = rows[go], children[go], place[go]
        if not rows.size:
            break
        last[rows] = children[np.arange(len(rows)), place]
    return Accepted.at(draft, last, next_tokens)
