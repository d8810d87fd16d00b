"""Rules over the few tokens that anything is said about give, bit for bit, what they give over the vocabulary."""

from __future__ import annotations

import numpy as np
import pytest

from tts_engine.request import Settings
from tts_engine.sampling import Kept, SamplingBatch, Scores, keep
from tts_engine.speculative import RULES, Draft, Groups
from tts_engine.speculative.verification import verify

V, ROWS = 60, 200
SETTINGS = {"tolerance": np.full(ROWS, 3), "bias": np.full(ROWS, 0.2), "k": np.full(ROWS, 3), "eos_k": np.full(ROWS, 1)}


def distributions(rng: np.random.Generator, rows: int) -> Kept:
    settings = Settings(0.9, 7, 0.9, 0, 1.0, 1, 1)
    logits = rng.standard_normal((rows, V)).astype(np.float32) * 2
    return keep(Scores.of(logits), SamplingBatch.from_settings([settings] * rows))


def dense(kept: Kept) -> np.ndarray:
    probs = np.zeros((len(kept.tokens), V + 1))
    np.put_along_axis(probs, kept.tokens, kept.probs, axis=1)
    return probs[:, :V]


@pytest.mark.parametrize("rule", list(RULES))
@pytest.mark.parametrize("drawn", [True, False])
def test_sparse_is_dense(rule: str, drawn: bool) -> None:
    rng = np.random.default_rng(3)
    parents = np.array([-1, 0, 1]) if drawn or rule == "group" else np.array([-1, -1, 0, 1, 1])
    n = len(parents)
    target, proposed = distributions(rng, ROWS * (1 + n)), distributions(rng, ROWS * n)
    tokens = proposed.draw(rng.random(ROWS * n)).reshape(ROWS, n)
    groups = Groups.build(rng.standard_normal((V, 3)), 0.7, alone=(0,))
    uniforms = rng.random((ROWS, 1 + n, RULES[rule].uniforms))[:, : 1 + Draft(tokens, parents).tree.depth]
    sparse = verify(rule, tokens, parents, proposed if drawn else None, target, uniforms, SETTINGS, groups)
    probs = dense(proposed).reshape(ROWS, n, V) if drawn else None
    names = {"groups": groups, "eos": 0, **SETTINGS}
    whole = RULES[rule].verify(
        Draft(tokens, parents, probs), dense(target).reshape(ROWS, 1 + n, V), uniforms,
        **{name: names[name] for name in RULES[rule].settings},
    )  # fmt: skip
    np.testing.assert_array_equal(sparse.lengths, whole.lengths)
    np.testing.assert_array_equal(sparse.tokens, whole.tokens)
    np.testing.assert_array_equal(sparse.nodes, whole.nodes)
    assert 0 < sparse.lengths.mean() < n
