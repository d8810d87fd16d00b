"""Sound while it arrives, through PortAudio (`pip install 'tts-client[play]'`)."""

from __future__ import annotations

import queue
import threading
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tts_client.errors import TTSError


class NoSound(TTSError):
    """There is nothing to play on."""


class Player:
    """Plays chunks on the default device, from a thread of its own: waiting for the loudspeaker must not delay reading.

    Raises NoSound at once where there is no library or no device.
    """

    def __init__(self) -> None:
        try:
            import sounddevice  # optional, and it loads PortAudio: only for who plays
        except ImportError:
            raise NoSound("--play needs a library: run `pip install 'tts-client[play]'`") from None
        except OSError:
            raise NoSound("--play needs PortAudio: run `sudo apt-get install libportaudio2`") from None
        try:
            sounddevice.query_devices(kind="output")
        except (sounddevice.PortAudioError, ValueError):
            raise NoSound("--play finds no sound device here: write a file with -o instead") from None
        self._open = sounddevice.OutputStream
        self._queue: queue.SimpleQueue[tuple[NDArray[np.float32], int] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="player", daemon=True)
        self._thread.start()

    def write(self, pcm: NDArray[np.float32], sample_rate: int) -> None:
        """Play float32 [samples] after what is playing; returns at once."""
        self._queue.put((pcm, sample_rate))

    def close(self) -> None:
        """Wait until all is played."""
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        device: Any = None
        while (piece := self._queue.get()) is not None:
            pcm, sample_rate = piece
            if device is None:
                device = self._open(samplerate=sample_rate, channels=1, dtype="float32")
                device.start()
            device.write(pcm)
        if device is not None:
            device.stop()  # plays what is buffered
            device.close()

    def __enter__(self) -> Player:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
