"""Top-k: a proposal among the target's k most probable tokens is accepted; the end of a sentence has its own k.

Llasa+, section II-B, algorithm 1 and the "eos top-k" of table III. Not lossless.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tts_engine.speculative.accepted import Accepted
from tts_engine.speculative.branches import longest
from tts_engine.speculative.draft import Draft

UNIFORMS = 1


def verify(
    draft: Draft,
    target_probs: NDArray[np.floating],
    uniforms: NDArray[np.float64],
    *,
    k: int | NDArray[np.int64],
    eos_k: int | NDArray[np.int64],
    eos: int,
) -> Accepted:
    """Accepts by membership; a failing token is resampled from the target, not from a residual (lines 10-14, 20-25).

    Args:
        draft: any tree (the paper's is a chain of one or two); its probs are not read.
        target_probs: float [B, 1 + n, V], after temperature, top-k and top-p, at the root and at every node. What the
            item's own sampling settings rule out (probability zero) is never accepted, however large k is.
        uniforms: float64 [B, 1 + D, 1] in [0, 1), for the recovered or bonus token of each depth.
        k: at least 1, one for all rows or int64 [B].
        eos_k: the same for the end of a sentence; at most k.
        eos: the end-of-sentence token; no node behind it is accepted.

    Raises:
        ValueError: k or eos_k out of range, or shapes do not fit.
    """
    draft.check(target_probs, uniforms, UNIFORMS)
    count = len(draft.token_ids)
    wide = np.broadcast_to(np.asarray(k, dtype=np.int64), count)
    strict = np.broadcast_to(np.asarray(eos_k, dtype=np.int64), count)
    if not ((strict >= 1) & (strict <= wide)).all():
        raise ValueError("eos_k must be at least 1 and at most k: an end of sentence is verified more strictly")

    def judge(
        rows: NDArray[np.int64], target: NDArray[np.floating], depth: int, tokens: NDArray[np.int64]
    ) -> NDArray[np.bool_]:
        members = np.zeros(tokens.shape, dtype=np.bool_)
        for place, token in enumerate(tokens.T):
            probability = target[np.arange(len(rows)), token]
            rank = (target > probability[:, None]).sum(axis=1)  # ties share the better rank
            limit = np.where(token == eos, strict[rows], wide[rows])
            members[:, place] = (probability > 0) & (rank < limit)
        return members

    return longest(draft, target_probs, uniforms, judge, eos)
