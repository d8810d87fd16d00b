"""Tolerance: the target samples tau times, and a proposal that equals any of the samples is accepted.

VADUSA, "Fast and High-Quality Auto-Regressive Speech Synthesis via Speculative Decoding", section II-C, algorithm 1.
Not lossless above tau = 1; with tau = 1 it is `exact` with deterministic proposals.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tts_engine.speculative.accepted import Accepted
from tts_engine.speculative.branches import longest
from tts_engine.speculative.draft import Draft
from tts_engine.speculative.drawing import draw

UNIFORMS = 4  # the largest tau of the paper


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
        uniforms: float64 [B, 1 + D, U >= tau] in [0, 1); row d serves every node of depth d, column i the i-th
            sample (algorithm 1, line 3). The next token is the first sample, as it is without speculation.
        tolerance: tau in 1 ... U, one for all rows or int64 [B].
        eos: no node behind an end of sentence is accepted.

    Raises:
        ValueError: tolerance out of its range, or shapes do not fit.
    """
    draft.check(target_probs, uniforms, 1)
    samples = np.broadcast_to(np.asarray(tolerance, dtype=np.int64), len(draft.token_ids))
    most = uniforms.shape[2]
    if not ((samples >= 1) & (samples <= most)).all():
        raise ValueError(f"tolerance must lie between 1 and {most}, the random numbers there are at each position")
    most = int(samples.max(initial=1))

    def judge(
        rows: NDArray[np.int64], target: NDArray[np.floating], depth: int, tokens: NDArray[np.int64]
    ) -> NDArray[np.bool_]:
        drawn = draw(target, uniforms[rows, depth, :most])
        drawn[np.arange(most) >= samples[rows, None]] = -1  # rows of smaller tau have fewer samples
        return (tokens[:, :, None] == drawn[:, None, :]).any(axis=2)  # line 8: c_{i+1} in v_i

    return longest(draft, target_probs, uniforms, judge, eos)
