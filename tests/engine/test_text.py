"""The engine with the real text frontend: the voice's phoneme table and a BERT wordpiece vocabulary."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.engine.collect import drain, say
from tests.engine.tiny_voice import CODEBOOK, write_voice
from tts_engine.config import EngineConfig
from tts_engine.engine import Engine
from tts_engine.prompt import Vocabulary
from tts_engine.voice import Voice

CHECKPOINTS = Path(__file__).parents[2] / "checkpoints" / "rms"


@pytest.fixture(scope="module")
def spoken_voice(tmp_path_factory: pytest.TempPathFactory) -> Voice:
    phonemes = json.loads((CHECKPOINTS / "lm" / "phonemes.json").read_text(encoding="utf-8"))
    wordpiece = (CHECKPOINTS / "prosody" / "wordpiece.json").read_text(encoding="utf-8")
    entries = len(json.loads(wordpiece)["model"]["vocab"])
    vocabulary = Vocabulary.from_phonemes(phonemes, CODEBOOK)
    return Voice.load(write_voice(tmp_path_factory.mktemp("spoken"), vocabulary, wordpiece, entries))


def test_real_text_is_spoken_sentence_by_sentence(spoken_voice: Voice) -> None:
    engine = Engine(spoken_voice, EngineConfig(capacity=4, threads=1))
    listeners = [
        say(engine, "Dr. Smith paid $3.50 on May 5th, 1999. Didn't he?", seed=1),
        say(engine, "na\u00efve caf\u00e9 \U0001f600 owners!", seed=2),
    ]
    drain(engine)
    for listener, sentences in zip(listeners, (2, 1), strict=True):
        assert listener.last.finish_reason == "stop", listener.last.error
        assert listener.last.timings is not None
        assert listener.last.timings.sentences == sentences
        assert len(listener.audio) > 0


def test_a_long_text_starts_without_being_read_to_its_end(spoken_voice: Voice) -> None:
    engine = Engine(spoken_voice, EngineConfig(capacity=4, threads=1))
    text = "The birch canoe slid on the smooth planks. " * 2300
    listener = say(engine, text, seed=1, max_seconds=2)
    (item,) = engine.pool._arrived
    assert next(item.sentences).text == "the birch canoe slid on the smooth planks."
    drain(engine)
    assert listener.last.finish_reason == "length"
