"""Group: principled coarse-graining; accepts a proposal for the acoustic similarity group that it stands for.

PCG, "Principled Coarse-Grained Acceptance for Speculative Decoding in Speech", section 2.2 and algorithm 1; p is the
draft's and q the target's distribution there, and so it is in this file. Exact at group level: the label of each
emitted token is distributed as if the target had drawn the token and then the label. Not lossless at token level: an
accepted token follows the draft within its group.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tts_engine.speculative.accepted import Accepted
from tts_engine.speculative.draft import Draft
from tts_engine.speculative.drawing import draw
from tts_engine.speculative.groups import Groups
from tts_engine.speculative.sequential import Stand, walk

TRIALS = 8  # the paper's runs need 3 on average
UNIFORMS = 3 + 3 * TRIALS


def verify(
    draft: Draft, target_probs: NDArray[np.floating], uniforms: NDArray[np.float64], *, groups: Groups
) -> Accepted:
    """Group-level lossless.

    Args:
        draft: a chain; without probs a proposal has all of the draft's probability.
        target_probs: float [B, 1 + n, V], after temperature, top-k and top-p, at the root and at every node.
        uniforms: float64 [B, 1 + D, 3 + 3 T] in [0, 1): for drawing a token, for the label, for accepting, and three
            for each of T >= 0 thinning trials. T changes the cost, not the distribution: what T trials leave
            undecided is drawn from the enumerated residual.
        groups: over the same V tokens.

    Raises:
        ValueError: the draft has siblings, the groups are over other tokens, or shapes do not fit.
    """
    draft.check(target_probs, uniforms, 3)
    if not draft.tree.is_chain:
        raise ValueError("group acceptance is for chains: its coupling gives one label to one proposal")
    if groups.vocabulary != target_probs.shape[2]:
        raise ValueError(f"groups are over {groups.vocabulary} tokens, target_probs over {target_probs.shape[2]}")

    def decide(stand: Stand) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        if not stand.tokens.shape[1] or stand.tokens[0, 0] < 0:  # behind the last node: the bonus token
            return np.full(len(stand.rows), -1), draw(stand.target, stand.uniforms[:, 0])
        token = stand.tokens[:, 0]
        p = stand.draft
        if p is None:
            p = np.zeros(stand.target.shape)
            p[np.arange(len(token)), token] = 1
        accepted, emitted, _ = decide_group(groups, token, p, stand.target, stand.uniforms)
        return accepted.astype(np.int64) - 1, emitted

    return walk(draft, target_probs, uniforms, decide)


def decide_group(
    groups: Groups,
    token: NDArray[np.int64],
    p: NDArray[np.floating],
    q: NDArray[np.floating],
    uniforms: NDArray[np.float64],
) -> tuple[NDArray[np.bool_], NDArray[np.int64], NDArray[np.int64]]:
    """One position of R rows: token [R] drawn from p [R, V] against q [R, V]; uniforms as in `verify`.

    Returns:
        accepted bool [R]; emitted token int64 [R], `token` where accepted; its group label int64 [R].
    """
    labels = groups.label(token, uniforms[:, 1])  # eq. 6
    accepted = uniforms[:, 2] < groups.mass(q, labels) / groups.mass(p, labels)  # eq. 7, P_c > 0 as p(token) > 0
    emitted = token.copy()
    refused = np.flatnonzero(~accepted)
    emitted[refused], labels[refused] = recover(groups, p[refused], q[refused], uniforms[refused])
    return accepted, emitted, labels


def recover(
    groups: Groups, p: NDArray[np.floating], q: NDArray[np.floating], uniforms: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Token and label [R] each from the group-level residual (eq. 8), by thinning."""
    emitted, labels = np.empty((2, len(p)), dtype=np.int64)
    pending = np.arange(len(p))
    for trial in range(3, uniforms.shape[1] - 2, 3):
        if not pending.size:
            break
        u = uniforms[pending, trial : trial + 3]
        drawn = draw(q[pending], u[:, 0])
        label = groups.label(drawn, u[:, 1])  # the label's law is Q_c
        keep = u[:, 2] < surplus(groups.mass(p[pending], label), groups.mass(q[pending], label))
        # Whether it is kept depends on the label alone, so the token has the law q(t) w / Q_c within it (eq. 10).
        emitted[pending[keep]], labels[pending[keep]] = drawn[keep], label[keep]
        pending = pending[~keep]
    if pending.size:
        emitted[pending], labels[pending] = enumerate_residual(groups, p[pending], q[pending], uniforms[pending, 0])
    return emitted, labels


def enumerate_residual(
    groups: Groups, p: NDArray[np.floating], q: NDArray[np.floating], uniforms: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The same law without trials: one draw among all members of all groups, weight q(t) w(k, t) a(k)."""
    keep = surplus(groups.masses(p), groups.masses(q))
    weights = groups.shares(q) * keep[:, groups.owners]
    nothing = ~weights.any(axis=1)  # P_c = Q_c up to rounding
    weights[nothing] = groups.shares(q[nothing])
    entry = draw(weights, uniforms)
    return groups.members[entry].astype(np.int64), groups.owners[entry]


def surplus(p_mass: NDArray[np.float64], q_mass: NDArray[np.float64]) -> NDArray[np.float64]:
    """Eq. 9: a = max(1 - P_c / Q_c, 0), zero where the target has no mass."""
    return np.maximum(1 - p_mass / np.where(q_mass > 0, q_mass, np.inf), 0) * (q_mass > 0)
