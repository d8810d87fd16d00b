"""Bias: a constant added to the acceptance ratio (SSD, Lin et al. 2025; the baseline of the PCG paper, section 3.2).

Not lossless for any constant above zero; with zero it is `exact`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tts_engine.speculative.accepted import Accepted
from tts_engine.speculative.draft import Draft
from tts_engine.speculative.drawing import draw
from tts_engine.speculative.exact import UNIFORMS, reject
from tts_engine.speculative.sequential import Stand, walk


def verify(
    draft: Draft,
    target_probs: NDArray[np.floating],
    uniforms: NDArray[np.float64],
    *,
    bias: float | NDArray[np.float64],
    eos: int,
) -> Accepted:
    """Accepts x with probability min(1, p(x)/q(x) + bias); what is refused is recovered as in `exact`.

    Args:
        draft, target_probs, uniforms: as in `exact`; with deterministic proposals q(x) = 1, siblings in turn.
        bias: in [0, 1], one for all rows or float64 [B].
        eos: the end of a sentence gets no bonus: a wrong one loses the rest of the sentence, not one frame.

    Raises:
        ValueError: bias out of its range, or as `exact`.
    """
    draft.check(target_probs, uniforms, UNIFORMS)
    added = np.broadcast_to(np.asarray(bias, dtype=np.float64), len(draft.token_ids))
    if not ((added >= 0) & (added <= 1)).all():
        raise ValueError("bias must lie between 0 (exact) and 1 (accept everything)")

    def decide(stand: Stand) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        if draft.probs is not None and stand.draft is not None:
            return reject(stand, np.where(stand.tokens[:, 0] == eos, 0.0, added[stand.rows]))
        return _siblings(stand, np.where(stand.tokens == eos, 0.0, added[stand.rows, None]))

    return walk(draft, target_probs, uniforms, decide)


def _siblings(stand: Stand, bias: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Deterministic siblings in turn; bias float64 [R, W].

    As in `exact.match` the target's token is drawn first, which accepts its sibling with p(c). A sibling that it does
    not hit is accepted with what is missing: min(bias, 1 - p) / (1 - p), p its share of what the others left.
    """
    every = np.arange(len(stand.rows))
    drawn = draw(stand.target, stand.uniforms[:, 0])
    chosen = np.full(len(every), -1, dtype=np.int64)
    spare = stand.uniforms[:, 1].copy()  # stays uniform given the refusals so far: rescaled after each
    left = stand.target.sum(axis=1, dtype=np.float64)
    for place, token in enumerate(stand.tokens.T):
        mass = stand.target[every, token].astype(np.float64)
        missing = 1 - mass / np.maximum(left, mass + 1e-12)
        extra = np.minimum(bias[:, place] / missing, 1)
        wanted = (chosen < 0) & (token >= 0)
        accepted = wanted & ((token == drawn) | (spare < extra))
        chosen[accepted] = place
        failed = wanted & ~accepted
        spare[failed] = (spare[failed] - extra[failed]) / (1 - extra[failed])
        left[failed] -= mass[failed]
    return chosen, drawn
