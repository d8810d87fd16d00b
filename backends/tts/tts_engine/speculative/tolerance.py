"""Tolerance: the target samples tau times, and a proposal that equals any of the samples is accepted.

VADUSA, "Fast and High-Quality Auto-Regressive Speech Synthesis via Speculative Decoding", section II-C, algorithm 1.
Not lossless above tau = 1; with tau = 1 it is `exact` with deterministic proposals.

The samples are systematic: one random number and those that follow it at equal distances. Each is distributed as the
target says, and no choice of tau such samples accepts more: a proposal x with probability min(1, tau p(x)), the union
bound. Independent ones repeat what is likely and accept with 1 - (1 - p(x))^tau: for tau = 3 and p(x) = 0.4, 0.78
instead of 1; for p(x) = 0.02, 0.059 instead of 0.06.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tts_engine.speculative.accepted import Accepted
from tts_engine.speculative.branches import longest
from tts_engine.speculative.draft import Draft
from tts_engine.speculative.drawing import draw

UNIFORMS = 1
MOST = 4  # the largest tau of the paper


def verify(
    draft: Draft,
    target_probs: NDArray[np.floating],
    uniforms: NDArray[np.float64],
    *,
    tolerance: int | NDArray[np.int64],
    eos: int,
) -> Accepted:
    """Accepts along each branch while the token is among the tau samples; see `branches.longest` for the choice.

    Args:
        draft: any tree; its probs are not read.
        target_probs: float [B, 1 + n, V], after temperature, top-k and top-p, at the root and at every node.
        uniforms: float64 [B, 1 + D, 1] in [0, 1); row d serves every node of depth d (algorithm 1, line 3). The next
            token is the first sample, as it is without speculation.
        tolerance: tau in 1 ... MOST, one for all rows or int64 [B].
        eos: no node behind an end of sentence is accepted.

    Raises:
        ValueError: tolerance out of its range, or shapes do not fit.
    """
    draft.check(target_probs, uniforms, UNIFORMS)
    samples = np.broadcast_to(np.asarray(tolerance, dtype=np.int64), len(draft.token_ids))
    if not ((samples >= 1) & (samples <= MOST)).all():
        raise ValueError(f"tolerance must lie between 1 and {MOST}")
    # Rows of smaller tau go round: their samples come again.
    steps = np.arange(samples.max(initial=1)) % samples[:, None] / samples[:, None]

    def judge(
        rows: NDArray[np.int64], target: NDArray[np.floating], depth: int, tokens: NDArray[np.int64]
    ) -> NDArray[np.bool_]:
        drawn = draw(target, (uniforms[rows, depth, :1] + steps[rows]) % 1.0)
        return (tokens[:, :, None] == drawn[:, None, :]).any(axis=2)  # line 8: c_{i+1} in v_i

    return longest(draft, target_probs, uniforms, judge, eos)
