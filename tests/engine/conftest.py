"""One tiny voice for all engine tests; a fresh engine for each."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engine.tiny_voice import ToyText, write_drafts, write_voice
from tts_engine.config import EngineConfig
from tts_engine.engine import Engine
from tts_engine.voice import Voice


@pytest.fixture(scope="session")
def voice_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_voice(tmp_path_factory.mktemp("voice"))


@pytest.fixture(scope="session")
def voice(voice_directory: Path) -> Voice:
    return Voice.load(voice_directory)


@pytest.fixture
def engine(voice: Voice) -> Engine:
    return Engine(voice, EngineConfig(capacity=8, threads=1, sentence_pause_seconds=0.1), ToyText())


@pytest.fixture(scope="session")
def drafting_voice(tmp_path_factory: pytest.TempPathFactory) -> Voice:
    """The same voice with every kind of draft."""
    return Voice.load(write_drafts(write_voice(tmp_path_factory.mktemp("drafting"))))


@pytest.fixture
def drafting(drafting_voice: Voice) -> Engine:
    return Engine(drafting_voice, EngineConfig(capacity=8, threads=1, sentence_pause_seconds=0.1), ToyText())
