"""Alone = in company, in whole = in chunks: bit for bit."""

from __future__ import annotations

import numpy as np
import pytest

from tests.engine.collect import Listener, drain, say
from tests.engine.tiny_voice import CODEBOOK, FRAME_SAMPLES
from tts_engine.engine import Engine
from tts_engine.item import Stage
from tts_engine.kv_cache import BLOCK

TEXTS = [
    "short",
    "a somewhat longer line of text",
    "two. sentences here",
    "the quick brown fox jumps over the lazy dog",
]


def alone(engine: Engine, text: str, **params: float) -> Listener:
    listener = say(engine, text, **params)
    drain(engine)
    return listener


@pytest.mark.parametrize("params", [{}, {"temperature": 0, "max_seconds": 3}, {"top_k": 20, "top_p": 0.9}])
def test_company_changes_nothing(engine: Engine, params: dict[str, float]) -> None:
    expected = [alone(engine, text, seed=seed, **params) for seed, text in enumerate(TEXTS)]
    listeners = [say(engine, text, seed=seed, **params) for seed, text in enumerate(TEXTS)]
    drain(engine)
    for listener, reference in zip(listeners, expected, strict=True):
        assert listener.last.finish_reason == reference.last.finish_reason
        assert [len(chunk.pcm) for chunk in listener.chunks] == [len(chunk.pcm) for chunk in reference.chunks]
        np.testing.assert_array_equal(listener.audio, reference.audio)


def test_joiners_and_leavers_change_nothing(engine: Engine) -> None:
    """Requests join at every third step, some are cancelled; slots are swapped again and again."""
    text, params = "the one that is listened to. in two sentences", {"seed": 42, "top_k": 50}
    expected = alone(engine, text, **params)
    listener = say(engine, text, **params)
    others: list[Listener] = []
    step = 0
    while not listener.done:
        if step % 3 == 0 and engine.pool.claimed < engine.pool.capacity:
            others.append(say(engine, TEXTS[step % len(TEXTS)], seed=step, temperature=1.5, max_seconds=1))
        if step % 7 == 0 and others:
            others.pop(0).handle.cancel()
        engine.step()
        step += 1
    drain(engine)
    assert engine.stats().mean_batch["decode"] > 2
    np.testing.assert_array_equal(listener.audio, expected.audio)


def test_cache_growth_in_the_middle_changes_nothing(engine: Engine) -> None:
    """A long companion makes T grow and its leaving makes T shrink while the request under test speaks."""
    params = {"seed": 3, "temperature": 0, "max_seconds": 3}
    expected = alone(engine, "steady", **params)
    longest = "all work and no play makes jack a dull boy " * 6
    listener = say(engine, "steady", **params)
    for _ in range(20):
        engine.step()
    cache = engine.model.cache
    small = cache.positions
    companion = say(engine, longest, seed=1)
    for _ in range(5):
        engine.step()
    large = cache.positions
    companion.handle.cancel()
    for _ in range(2):
        engine.step()
    assert small == cache.positions == BLOCK
    assert large > 4 * BLOCK
    drain(engine)
    np.testing.assert_array_equal(listener.audio, expected.audio)


def test_growth_alone_happens_and_audio_is_the_reference(engine: Engine) -> None:
    """Beyond 64 positions the result is that of a cache that was large from the start."""
    params = {"seed": 5, "temperature": 0, "max_seconds": 4}
    listener = alone(engine, "growing", **params)
    assert engine.model.cache.positions > BLOCK
    engine.model.cache.reserve(500)
    engine.model.cache.reserve = lambda positions: None  # type: ignore[method-assign]  # stays large
    np.testing.assert_array_equal(alone(engine, "growing", **params).audio, listener.audio)


@pytest.mark.parametrize(("first", "later"), [(1, 1), (3, 7), (500, 500)])
def test_chunk_sizes_do_not_change_the_audio(engine: Engine, first: int, later: int) -> None:
    text = "chunked or whole. it sounds the same"
    whole = alone(engine, text, seed=8, first_chunk_frames=500, chunk_frames=500)
    chunked = alone(engine, text, seed=8, first_chunk_frames=first, chunk_frames=later)
    np.testing.assert_allclose(chunked.audio, whole.audio, rtol=0, atol=1e-6)


def test_the_streamed_vocoder_equals_one_shot(engine: Engine) -> None:
    codes = np.random.default_rng(0).integers(0, CODEBOOK, (1, 50))
    states = {name: np.zeros((1, *state.shape[1:]), dtype=np.float32) for name, state in engine.vocoder.states.items()}
    whole = engine.vocoder.session.run({"codes": codes, "lengths": np.array([50]), **states})["pcm"]
    listener = say(engine, "x", seed=1)
    engine._admit()
    (item,) = engine.pool.items
    item.pending, item.stage = codes[0].tolist(), Stage.DECODE
    while engine.vocoder.ready():
        engine.vocoder.run(engine.vocoder.ready())
        engine._emit()
    item.stage = Stage.FLUSH
    drain(engine)
    assert [len(chunk.pcm) // FRAME_SAMPLES for chunk in listener.chunks] == [4, 4, 6, 9, 14, 13]
    np.testing.assert_allclose(listener.audio, whole[0], rtol=0, atol=1e-6)


def test_same_seed_same_audio_other_seed_other_audio(engine: Engine) -> None:
    first, again, other = (alone(engine, "seeded", seed=seed).audio for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert len(first) != len(other) or (first != other).any()
