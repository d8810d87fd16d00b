"""Helpers of the engine tests: submit, step, collect."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tts_engine.chunk import AudioChunk
from tts_engine.engine import Engine, Handle
from tts_engine.request import SamplingParams, SpeechRequest


@dataclass
class Listener:
    """Receives one request's chunks."""

    chunks: list[AudioChunk] = field(default_factory=list)
    handle: Handle = field(init=False)

    def __call__(self, chunk: AudioChunk) -> None:
        assert not self.done, "a chunk came after the final one"
        self.chunks.append(chunk)

    @property
    def done(self) -> bool:
        return bool(self.chunks) and self.chunks[-1].final

    @property
    def last(self) -> AudioChunk:
        assert self.done
        return self.chunks[-1]

    @property
    def audio(self) -> np.ndarray:
        return np.concatenate([chunk.pcm for chunk in self.chunks])


def say(engine: Engine, text: str, **params: Any) -> Listener:
    listener = Listener()
    listener.handle = engine.submit(SpeechRequest(text, SamplingParams.from_mapping(params)), listener)
    return listener


def drain(engine: Engine, limit: int = 5000) -> None:
    """Step until nothing is left, and check that nothing is: no slot, row or claim is held."""
    for _ in range(limit):
        if not engine.step():
            break
    assert_empty(engine)


def assert_empty(engine: Engine) -> None:
    pool = engine.pool
    assert not pool.items
    assert not pool.decoding
    assert pool.idle
    assert pool.claimed == 0
    assert engine.model.cache.count == 0
    assert sorted(pool._rows) == list(range(pool.capacity))
