"""Exact: speculative sampling; the tokens are distributed as if the target had drawn every one of them.

Leviathan, Kalman, Matias 2023 ("Fast Inference from Transformers via Speculative Decoding", algorithm 1) and Chen et
al. 2023, for chains with real draft probabilities. With deterministic proposals, siblings included, the sequential
sampling without replacement of SpecInfer (Miao et al. 2024, algorithm 2) is drawn in closed form.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import NDArray

from tts_engine.speculative.accepted import Accepted
from tts_engine.speculative.draft import Draft
from tts_engine.speculative.drawing import draw
from tts_engine.speculative.sequential import Stand, walk

UNIFORMS = 2


def verify(draft: Draft, target_probs: NDArray[np.floating], uniforms: NDArray[np.float64]) -> Accepted:
    """Token-level lossless.

    Args:
        draft: a chain with its probs, or any tree of deterministic proposals.
        target_probs: float [B, 1 + n, V], after temperature, top-k and top-p, at the root and at every node.
        uniforms: float64 [B, 1 + D, 2] in [0, 1), a pair for each depth: for drawing a token, for accepting.
            Deterministic proposals leave the second alone: the token of each depth is then the one that drawing
            with the first alone, without speculation, gives.

    Raises:
        ValueError: shapes do not fit, or probs came with siblings.
    """
    draft.check(target_probs, uniforms, UNIFORMS)
    return walk(draft, target_probs, uniforms, match if draft.probs is None else partial(reject, bias=np.zeros(1)))


def match(stand: Stand) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Draws the target's token and accepts the sibling that equals it.

    Trying the siblings in turn, each accepted with its probability under what the refused ones left of the target
    (ratio p / 1, residual max(p - onehot, 0) normalised), gives the same joint law of acceptance and token: sibling c
    is accepted with probability p(c), and a refused draw has the law of p without the siblings.
    """
    drawn = draw(stand.target, stand.uniforms[:, 0])
    return first(stand.tokens == drawn[:, None]), drawn


def reject(stand: Stand, bias: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Accepts with probability min(1, p/q + bias), else draws from the residual; bias float64 [1] or [R]."""
    if stand.draft is None:  # behind the last node: the bonus token
        return np.full(len(stand.rows), -1), draw(stand.target, stand.uniforms[:, 0])
    token = stand.tokens[:, 0]
    accepted = stand.uniforms[:, 1] < ratio(stand.target, stand.draft, token) + bias
    recovered = np.full(len(token), -1, dtype=np.int64)
    refused = ~accepted
    recovered[refused] = draw(residual(stand.target[refused], stand.draft[refused]), stand.uniforms[refused, 0])
    return accepted.astype(np.int64) - 1, recovered


def ratio(target: NDArray[np.floating], draft: NDArray[np.floating], token: NDArray[np.int64]) -> NDArray[np.float64]:
    """p(x) / q(x), float64 [R]."""
    rows = np.arange(len(token))
    return target[rows, token].astype(np.float64) / draft[rows, token]


def residual(target: NDArray[np.floating], draft: NDArray[np.floating]) -> NDArray[np.floating]:
    """max(p - q, 0), float [R, V], not normalised; p where rounding leaves nothing."""
    left = np.maximum(target - draft, 0)
    nothing = ~left.any(axis=1)
    left[nothing] = target[nothing]
    return left


def first(flags: NDArray[np.bool_]) -> NDArray[np.int64]:
    """The first true column of each row, -1 where none is: bool [R, W] -> int64 [R]."""
    if not flags.shape[1]:
        return np.full(len(flags), -1)
    return np.where(flags.any(axis=1), flags.argmax(axis=1), -1)
