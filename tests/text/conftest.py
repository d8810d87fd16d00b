from __future__ import annotations

import json
from pathlib import Path

import pytest

from tts_engine.text import TextFrontend

CHECKPOINTS = Path(__file__).resolve().parents[2] / "checkpoints" / "rms"
WORDPIECE = CHECKPOINTS / "prosody" / "wordpiece.json"


@pytest.fixture(scope="session")
def table() -> list[str]:
    return list(json.loads((CHECKPOINTS / "lm" / "phonemes.json").read_text(encoding="utf-8")))


@pytest.fixture(scope="session")
def frontend(table: list[str]) -> TextFrontend:
    return TextFrontend(table, WORDPIECE)
