"""The demo voice as it is shipped: real weights, real server, real client, and a recogniser to say what was heard."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from backends.launcher import RunningServer, running_server
from tests.engine.collect import Listener, drain
from training.recogniser import transcribe, word_error_rate
from training.score import load_sentences
from tts_client import AsyncTTSClient, TTSClient
from tts_engine.engine import Engine
from tts_engine.request import SamplingParams, SpeechRequest
from tts_engine.voice import Voice

VOICE = Path(__file__).resolve().parents[2] / "model_repository" / "tts" / "1"
SENTENCES = 8


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with running_server() as running:
        yield running


@pytest.fixture(scope="module")
def texts() -> list[str]:
    return list(load_sentences(SENTENCES).values())


@pytest.fixture(scope="module")
def waves(server: RunningServer, texts: list[str]) -> list[np.ndarray]:
    """All sentences streamed at once, as a small crowd would ask for them."""

    async def one(client: AsyncTTSClient, seed: int, text: str) -> np.ndarray:
        return np.concatenate([chunk.pcm async for chunk in client.stream(text, seed=seed)])

    async def crowd() -> list[np.ndarray]:
        async with AsyncTTSClient(server.grpc_url) as client:
            return list(await asyncio.gather(*(one(client, seed, text) for seed, text in enumerate(texts))))

    return asyncio.run(crowd())


def test_a_recogniser_understands_it(waves: list[np.ndarray], texts: list[str]) -> None:
    assert word_error_rate(texts, transcribe(waves)) < 45  # the teacher itself has 22 %; `make evaluate` measures


def test_every_sentence_has_a_sensible_length_and_is_loud(waves: list[np.ndarray], texts: list[str]) -> None:
    for wave, text in zip(waves, texts, strict=True):
        assert 0.035 < len(wave) / 16_000 / len(text) < 0.12, text  # seconds a letter
        assert np.sqrt(np.mean(wave**2)) > 0.01, text


def test_company_changes_nothing(server: RunningServer, waves: list[np.ndarray], texts: list[str]) -> None:
    with TTSClient(server.grpc_url) as client:
        for seed in (0, 3, SENTENCES - 1):
            alone = np.concatenate([chunk.pcm for chunk in client.stream(texts[seed], seed=seed)])
            np.testing.assert_array_equal(alone, waves[seed])


def test_a_single_frame_sounds_the_same_beside_longer_chunks() -> None:
    """Runs of one frame are the vocoder's odd case: alone every chunk here is one, in company none is run so."""
    engine = Engine(Voice.load(VOICE))
    text = "Four hours of steady work faced us."
    params = SamplingParams(seed=4, max_seconds=0.4, first_chunk_frames=1, chunk_frames=1)
    alone = np.concatenate([chunk.pcm for chunk in engine.stream(SpeechRequest(text, params))])
    listener = Listener()
    engine.submit(SpeechRequest(text, params), listener)
    for seed in range(3):
        longer = SamplingParams(seed=seed, max_seconds=1.0, first_chunk_frames=3, chunk_frames=7)
        engine.submit(SpeechRequest(text, longer), Listener())
    drain(engine)
    np.testing.assert_array_equal(listener.audio, alone)


def test_through_triton_as_in_process(waves: list[np.ndarray], texts: list[str]) -> None:
    engine = Engine(Voice.load(VOICE))
    request = SpeechRequest(texts[2], SamplingParams(seed=2))
    np.testing.assert_array_equal(np.concatenate([chunk.pcm for chunk in engine.stream(request)]), waves[2])


def test_chunk_sizes_change_the_packets_and_not_the_sound() -> None:
    engine = Engine(Voice.load(VOICE))
    text = "Four hours of steady work faced us."

    def speak(first: int, later: int) -> list[np.ndarray]:
        params = SamplingParams(seed=4, first_chunk_frames=first, chunk_frames=later)
        return [chunk.pcm for chunk in engine.stream(SpeechRequest(text, params))]

    small, whole = speak(2, 7), speak(500, 500)
    assert len(small) > len(whole)
    a, b = np.concatenate(small), np.concatenate(whole)
    assert len(a) == len(b)
    assert np.abs(a - b).max() < 5e-3  # rounding of the pulses' phase, at most
