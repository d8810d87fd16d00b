"""A toy language of three positions, drafts for it, and the test that counts come from a distribution."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tts_engine.speculative import Accepted, Draft
from tts_engine.speculative.drawing import draw

TRIALS = 120_000
V = 4
Verify = Callable[[Draft, np.ndarray, np.ndarray], Accepted]


def fits(counts: np.ndarray, expected: np.ndarray) -> bool:
    """Chi-square of counts against probabilities of the same shape, at about six standard deviations."""
    counts, expected = counts.ravel(), expected.ravel() * counts.sum()
    if counts[expected == 0].any():
        return False
    possible = expected > 0
    freedom = possible.sum() - 1
    chi_square = ((counts - expected)[possible] ** 2 / expected[possible]).sum()
    return bool(chi_square < freedom + 6 * np.sqrt(2 * freedom))


def tables(seed: int, v: int = V) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Next-token distributions [v], [v, v], [v, v, v], given nothing, one token, two tokens."""
    rng = np.random.default_rng(seed)
    return tuple(rng.dirichlet(np.full(v, 0.8), size=shape).reshape(*shape, v) for shape in [(), (v,), (v, v)])  # type: ignore[return-value]


def joint(model: tuple[np.ndarray, np.ndarray, np.ndarray]) -> np.ndarray:
    """The probability of every three tokens, [v, v, v]."""
    p0, p1, p2 = model
    return p0[:, None, None] * p1[:, :, None] * p2


def target_probs(draft: Draft, model: tuple[np.ndarray, np.ndarray, np.ndarray]) -> np.ndarray:
    """[B, 1 + n, v]: the model at the root and behind every node of depth 1 and 2."""
    rows, n = draft.token_ids.shape
    probs = np.empty((rows, 1 + n, len(model[0])))
    probs[:, 0] = model[0]
    for node in range(n):
        path = draft.tree.paths[node + 1]
        tokens = [draft.token_ids[:, place] for place in path[path >= 0]]
        probs[:, node + 1] = model[len(tokens)][tuple(tokens)]
    return probs


def triples(
    verify: Verify, draft: Draft, model: tuple[np.ndarray, np.ndarray, np.ndarray], seed: int, columns: int
) -> np.ndarray:
    """How often each three tokens came out, [v, v, v]; what verification did not give is drawn from the model."""
    rng = np.random.default_rng(seed)
    rows = len(draft.token_ids)
    uniforms = rng.random((rows, 1 + draft.tree.depth, columns))
    tokens = verify(draft, target_probs(draft, model), uniforms).tokens
    tokens = np.concatenate([tokens, np.full((rows, 3), -1)], axis=1)[:, :3]
    for place in range(3):
        missing = np.flatnonzero(tokens[:, place] < 0)
        law = model[place][tuple(tokens[missing, :place].T)]
        tokens[missing, place] = draw(np.broadcast_to(law, (len(missing), len(model[0]))), rng.random(len(missing)))
    counts = np.zeros((len(model[0]),) * 3)
    np.add.at(counts, tuple(tokens.T), 1)
    return counts


def sampled_chain(model: tuple[np.ndarray, np.ndarray, np.ndarray], seed: int, rows: int = TRIALS) -> Draft:
    """Two tokens a row drawn from `model`, with the distributions they came from."""
    rng = np.random.default_rng(seed)
    q0 = np.tile(model[0], (rows, 1))
    first = draw(q0, rng.random(rows))
    q1 = model[1][first]
    second = draw(q1, rng.random(rows))
    return Draft.chain(np.stack([first, second], axis=1), np.stack([q0, q1], axis=1))


def sprout(seed: int, rows: int, v: int, shared: bool) -> Draft:
    """A random tree of seven nodes, siblings with different tokens; one shape for the batch or one a row."""
    rng = np.random.default_rng(seed)
    parents = np.array([[rng.integers(-1, node) for node in range(7)] for _ in range(1 if shared else rows)])
    tokens = np.empty((rows, 7), dtype=np.int64)
    for row in range(rows):
        for parent in range(-1, 6):
            family = np.flatnonzero(parents[row % len(parents)] == parent)
            tokens[row, family] = rng.permutation(v)[: len(family)]
    return Draft(tokens, parents[0] if shared else parents)
