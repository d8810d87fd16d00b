"""WAV files: valid while they grow, and references read as they were written."""

from __future__ import annotations

import wave
from pathlib import Path

import numpy as np
import pytest

from tts_client.errors import InvalidArgument
from tts_client.wav import WavWriter, read_reference


def read(path: Path) -> np.ndarray:
    with wave.open(str(path)) as file:
        assert (file.getnchannels(), file.getsampwidth(), file.getframerate()) == (1, 2, 16_000)
        return np.frombuffer(file.readframes(file.getnframes()), "<i2")


def test_a_growing_file_is_valid(tmp_path: Path) -> None:
    path = tmp_path / "out.wav"
    with WavWriter(path) as writer:
        assert not path.exists()
        writer.write(np.array([0.0, 0.5, -0.5], np.float32), 16_000)
        assert read(path).tolist() == [0, 16384, -16384]
        writer.write(np.array([1.0, -1.0, 7.0, -7.0], np.float32), 16_000)
        assert read(path).tolist() == [0, 16384, -16384, 32767, -32767, 32767, -32767]


def test_no_audio_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "out.wav"
    path.write_text("precious")
    with WavWriter(path):
        pass
    assert path.read_text() == "precious"


def test_a_reference_is_what_was_written(tmp_path: Path) -> None:
    path = tmp_path / "reference.wav"
    pcm = np.sin(np.arange(1000, dtype=np.float32) / 10) * 0.9
    with WavWriter(path) as writer:
        writer.write(pcm, 16_000)
    np.testing.assert_allclose(read_reference(path), pcm, atol=2 / 32768)


def test_other_references_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "reference.wav"
    with pytest.raises(InvalidArgument, match="cannot read"):
        read_reference(path)
    path.write_bytes(b"ID3 this is no WAV")
    with pytest.raises(InvalidArgument, match="cannot read"):
        read_reference(path)
    with WavWriter(path) as writer:
        writer.write(np.zeros(10, np.float32), 44_100)
    with pytest.raises(InvalidArgument, match="ffmpeg"):
        read_reference(path)
