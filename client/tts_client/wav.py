"""WAV files, 16-bit mono: written while the audio arrives, read as references."""

from __future__ import annotations

import wave
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from tts_client.errors import InvalidArgument


class WavWriter:
    """A WAV file that is valid after every `write`, so that it can be listened to while it grows.

    The file is made with the first audio: where none comes, nothing is overwritten. Raises OSError.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._raw: BinaryIO | None = None
        self._file: wave.Wave_write | None = None

    def write(self, pcm: NDArray[np.float32], sample_rate: int) -> None:
        """Append float32 [samples] in [-1, 1] (clipped)."""
        if self._raw is None or self._file is None:
            self._raw = self._path.open("wb")
            self._file = wave.open(self._raw, "wb")  # noqa: SIM115 - closed by `close`
            self._file.setnchannels(1)
            self._file.setsampwidth(2)
            self._file.setframerate(sample_rate)
        self._file.writeframes(np.rint(np.clip(pcm, -1, 1) * 32767).astype("<i2").tobytes())
        self._raw.flush()

    def close(self) -> None:
        """Close the file, if there is one."""
        if self._raw is not None and self._file is not None:
            self._file.close()
            self._raw.close()

    def __enter__(self) -> WavWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def read_reference(path: Path) -> NDArray[np.float32]:
    """A reference recording as float32 [samples]; it must be a 16-bit mono WAV at the voice's rate, 16 kHz.

    Raises InvalidArgument for any other file.
    """
    try:
        with wave.open(str(path), "rb") as file:
            form = (file.getnchannels(), file.getsampwidth(), file.getframerate())
            frames = file.readframes(file.getnframes())
    except (OSError, EOFError, wave.Error) as error:
        raise InvalidArgument(f"cannot read the reference {path}: {error}") from error
    if form != (1, 2, 16_000):
        convert = f"ffmpeg -i {path} -ac 1 -ar 16000 -c:a pcm_s16le reference.wav"
        raise InvalidArgument(f"the reference {path} must be 16-bit mono at 16 kHz: run `{convert}`")
    return np.frombuffer(frames, "<i2").astype(np.float32) / 32768
