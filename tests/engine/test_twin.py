"""The non-incremental twin says what the pooled engine says, batch after batch, each request in one piece."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from tests.engine.collect import Listener, drain, say
from tests.engine.tiny_voice import ToyText
from tts_engine.config import EngineConfig
from tts_engine.engine import Engine
from tts_engine.item import Stage
from tts_engine.twin import ENGINES, BatchedEngine

TEXTS = ["short", "a somewhat longer line of text", "two. sentences here", "the quick brown fox"]


@pytest.fixture
def twin(engine: Engine) -> BatchedEngine:
    config = dataclasses.replace(engine.config, serving="batched", batch_window_ms=1.0)
    return BatchedEngine(engine.voice, config, ToyText())


def drained(engine: Engine) -> list[Listener]:
    listeners = [say(engine, text, seed=seed, max_seconds=3) for seed, text in enumerate(TEXTS)]
    drain(engine)
    return listeners


def test_same_audio_as_pooled_in_one_final_chunk(engine: Engine, twin: BatchedEngine) -> None:
    for pooled, whole in zip(drained(engine), drained(twin), strict=True):
        (chunk,) = whole.chunks
        assert chunk.timings is not None and pooled.last.timings is not None
        assert (chunk.final, chunk.finish_reason) == (True, pooled.last.finish_reason)
        assert chunk.timings.frames == pooled.last.timings.frames
        assert chunk.timings.decode_steps == pooled.last.timings.decode_steps
        np.testing.assert_allclose(whole.audio, pooled.audio, rtol=0, atol=1e-6)


def test_one_vocoder_run_a_sentence_of_the_batch(twin: BatchedEngine) -> None:
    drained(twin)
    stats = twin.stats()
    assert stats.batches["frontend"] == stats.batches["prefill"] == stats.batches["vocoder"] == 2
    assert stats.mean_batch["vocoder"] == (4 + 1) / 2


def test_newcomers_wait_for_the_next_batch(twin: BatchedEngine) -> None:
    first = say(twin, TEXTS[1], seed=1, max_seconds=3)
    twin.step()
    second = say(twin, TEXTS[0], seed=0, max_seconds=3)
    while not first.done:
        twin.step()
        assert len(twin.pool.items) <= 1 and not second.chunks
    drain(twin)
    assert second.done


def test_a_cancelled_request_leaves_its_batch_at_once(twin: BatchedEngine) -> None:
    gone, stays = (say(twin, text, seed=1, max_seconds=3) for text in TEXTS[:2])
    twin.step()
    gone.handle.cancel()
    twin.step()
    assert gone.last.finish_reason == "cancelled"
    assert [item.stage for item in twin.pool.items] == [Stage.DECODE]
    drain(twin)
    assert stays.last.finish_reason in ("stop", "length")


def test_the_setting_names_an_engine() -> None:
    for name in ENGINES:
        assert EngineConfig(serving=name).serving == name
    with pytest.raises(ValueError, match='"pooled" or "batched"'):
        EngineConfig(serving="twin")
