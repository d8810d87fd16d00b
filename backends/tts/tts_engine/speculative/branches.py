"""Every branch at once: the choice among accepted branches of the rules that judge each node by itself."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from tts_engine.speculative.accepted import Accepted
from tts_engine.speculative.draft import Draft
from tts_engine.speculative.drawing import draw

# For R nodes: their rows int64 [R], the target's distributions float [R, V] at them, their depth, and the tokens
# int64 [R, W] proposed behind them (-1: no more) -> which proposals may be accepted, bool [R, W].
Judge = Callable[[NDArray[np.int64], NDArray[np.floating], int, NDArray[np.int64]], NDArray[np.bool_]]


def longest(
    draft: Draft, target_probs: NDArray[np.floating], uniforms: NDArray[np.float64], judge: Judge, eos: int
) -> Accepted:
    """Among the branches accepted from the root on, the longest; among those the most probable under the target;
    among those the leftmost (VADUSA, section II-C). Nothing is accepted behind an end of sentence.

    The next token is drawn from the target at the end of the branch, with the first random number of that depth.
    """
    tree, (count, n) = draft.tree, draft.token_ids.shape
    depths = np.broadcast_to(tree.depths, (count, 1 + n))
    score = np.full((count, 1 + n), -np.inf)  # log-probability of each accepted branch
    score[:, 0] = 0
    for depth in range(tree.depth):
        rows, place = np.nonzero((depths == depth) & (score > -np.inf))
        if depth:
            ended = draft.token_ids[rows, place - 1] == eos
            rows, place = rows[~ended], place[~ended]
        children = tree.pick(tree.children, rows, place - 1)
        tokens = np.where(children >= 0, draft.token_ids[rows[:, None], children], -1)
        target = target_probs[rows, place]
        parent, sibling = np.nonzero(judge(rows, target, depth, tokens) & (children >= 0))
        if not parent.size:
            break
        probability = target[parent, tokens[parent, sibling]].astype(np.float64)
        row = rows[parent]
        score[row, children[parent, sibling] + 1] = score[row, place[parent]] + np.log(probability)
    reached = np.where(score > -np.inf, depths, -1)
    last = np.where(reached == reached.max(axis=1, keepdims=True), score, -np.inf).argmax(axis=1) - 1
    every = np.arange(count)
    end = uniforms[every, tree.pick(tree.depths, every, last), 0]
    return Accepted.at(draft, last, draw(target_probs[every, last + 1], end))
