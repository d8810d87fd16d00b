"""Chains and trees of n tokens give what n single steps give."""

from __future__ import annotations

import numpy as np
import pytest

from tts_engine import language_model
from tts_engine.engine import Engine
from tts_engine.item import Stage
from tts_engine.kv_cache import BLOCK
from tts_engine.request import SamplingParams, SpeechRequest


def assert_close(actual: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_allclose(actual, expected, rtol=0, atol=2e-5)


@pytest.fixture
def speaking(engine: Engine) -> Engine:
    """Three requests after prefill, contexts of different lengths."""
    for seed, text in enumerate(["one", "a longer one", "and the longest of them"]):
        engine.submit(SpeechRequest(text, SamplingParams(seed=20 + seed)), lambda chunk: None)
    engine._admit()
    engine.frontend.run(engine.pool.items)
    engine.prefill.run(engine.pool.items)
    assert all(item.stage is Stage.DECODE for item in engine.pool.items)
    return engine


def singly(engine: Engine, tokens: np.ndarray) -> np.ndarray:
    """Logits [B, n, V] of n steps of one token; leaves the cache's lengths as they were."""
    lengths = engine.model.cache.lengths
    before = lengths.copy()
    steps = []
    for column in tokens.T:
        steps.append(engine.decode.forward(0, column[:, None])[0].logits[:, 0].copy())
        lengths[: len(tokens)] += 1
    lengths[:] = before
    return np.stack(steps, axis=1)


def test_a_chain_equals_single_steps(speaking: Engine) -> None:
    tokens = np.array([[5, 9, 2, 77], [1, 1, 8, 3], [200, 4, 31, 6]])
    expected = singly(speaking, tokens)
    scores, hidden = speaking.decode.forward(0, tokens)
    assert_close(scores.logits, expected)
    order = np.argsort(-scores.logits, axis=-1, kind="stable")[..., : scores.ids.shape[-1]]
    np.testing.assert_array_equal(scores.ids, order)
    np.testing.assert_array_equal(scores.values, np.take_along_axis(scores.logits, order, axis=-1))
    assert hidden.shape == (3, 4, speaking.voice.hidden_size)


def test_every_branch_of_a_tree_equals_its_own_chain(speaking: Engine) -> None:
    #   0 ── 1 ── 3
    #    └── 2 ── 4
    tree = np.array([[5, 9, 2, 77, 40], [1, 30, 8, 3, 3], [200, 4, 31, 6, 7]])
    parents = [-1, 0, 0, 1, 2]
    visible = np.eye(5, dtype=bool)
    for node, parent in enumerate(parents):
        if parent >= 0:
            visible[node] |= visible[parent]
    logits = speaking.decode.forward(0, tree, np.array([0, 1, 1, 2, 2]), visible)[0].logits.copy()
    for branch in ([0, 1, 3], [0, 2, 4]):
        assert_close(logits[:, branch], singly(speaking, tree[:, branch]))


def test_an_accepted_branch_goes_on_from_a_compacted_cache(speaking: Engine) -> None:
    cache = speaking.model.cache
    tree = np.array([[5, 9, 2], [1, 30, 8], [200, 4, 31]])
    visible = np.array([[1, 0, 0], [1, 1, 0], [1, 0, 1]], dtype=bool)
    follow_up = np.array([[6], [7], [8]])
    expected = singly(speaking, np.concatenate([tree[:, [0, 2]], follow_up], axis=1))[:, -1]
    speaking.decode.forward(0, tree, np.array([0, 1, 1]), visible)
    for slot in range(3):
        cache.compact(slot, cache.lengths[slot] + np.array([0, 2]))
    cache.lengths[:3] += 2
    assert_close(speaking.decode.forward(0, follow_up)[0].logits[:, 0], expected)


def test_a_range_of_slots_equals_the_whole_batch(speaking: Engine) -> None:
    tokens = np.array([[5], [9], [2]])
    together = speaking.decode.forward(0, tokens)[0].logits.copy()
    for slot in range(3):
        alone = speaking.decode.forward(slot, tokens[slot : slot + 1])[0].logits
        np.testing.assert_array_equal(alone[0], together[slot])


def test_a_batch_that_is_used_again_sees_its_own_context(speaking: Engine) -> None:
    """A step further, further still, or back: always what lies before, and nothing else."""
    model, lengths = speaking.model, speaking.model.cache.lengths
    for step in (0, 1, 1, 5, 5, -7, 1):
        lengths[:3] += step
        batch = model.batch(0, 3, 1, 1)
        batch.see_context(np.ones((1, 1), dtype=bool))
        visible = np.arange(model.cache.positions) <= lengths[:3, None]
        np.testing.assert_array_equal(batch.bias[:, 0, 0] == 0, visible)
        assert (batch.bias[:, 0, 0][~visible] < -1e29).all()


def test_batches_stay_bound_as_long_as_their_memory_is_kept(speaking: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    model = speaking.model
    first = model.batch(0, 3, 1, 1)
    model.cache.reserve(2 * BLOCK)
    assert model.batch(0, 3, 1, 1) is not first
    model.cache.lengths[:] = 0
    model.cache.reserve(1)  # back to the memory from before
    assert model.batch(0, 3, 1, 1) is first
    model.cache.remove(0, scrub=True)  # drops what was kept
    generations = model.cache.generations
    bound = 4 * model.batch(0, 3, 8, 8).bytes
    monkeypatch.setattr(language_model, "BYTES_KEPT", bound)
    for n in range(2, 20):
        last = model.batch(0, 3, n, n)
        assert model.batch(0, 3, n, n) is last
        assert sum(batch.bytes for batch in model._batches.values()) <= max(bound, last.bytes)
    assert {key[0] for key in model._batches} <= generations
