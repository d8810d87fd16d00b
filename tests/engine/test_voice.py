"""A voice directory that is not whole is refused in one sentence."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.engine.tiny_voice import ToyText, write_vocoder
from tts_engine.engine import Engine
from tts_engine.errors import VoiceError
from tts_engine.voice import Voice


@pytest.fixture
def copy(voice_directory: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(voice_directory, tmp_path / "voice"))


def edit(directory: Path, change: Callable[[dict[str, Any]], object]) -> None:
    manifest = json.loads((directory / "voice.json").read_text())
    change(manifest)
    (directory / "voice.json").write_text(json.dumps(manifest))


def test_a_changed_graph_is_noticed(copy: Path) -> None:
    with (copy / "vocoder.onnx").open("ab") as stream:
        stream.write(b"x")
    with pytest.raises(VoiceError, match=r"vocoder\.onnx does not match its checksum"):
        Voice.load(copy)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m.pop("layers"), "lacks the key 'layers'"),
        (lambda m: m["files"]["lm"].update(path="../lm.onnx"), "is not in"),
        (lambda m: m.update(channels=1), "1 channels"),
        (lambda m: m["defaults"].update(temperature=9), "temperature = 9 is outside"),
        (lambda m: m.update(prosody_offset=4), "overlaps"),
    ],
)
def test_a_wrong_manifest_is_explained(copy: Path, change: Callable[[dict[str, Any]], object], message: str) -> None:
    edit(copy, change)
    with pytest.raises(VoiceError, match=message):
        Voice.load(copy)


def test_no_directory(tmp_path: Path) -> None:
    with pytest.raises(VoiceError, match="run the export"):
        Voice.load(tmp_path / "nowhere")


def test_a_graph_with_other_inputs_is_refused(copy: Path) -> None:
    voice = Voice.load(copy)
    write_vocoder(copy / "lm.onnx")
    with pytest.raises(VoiceError, match="lacks bias, hidden"):
        Engine(voice, text=ToyText())
