"""What a listener heard: playback starts at the first chunk, and stalls where the next one is late."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tts_client import Chunk, StreamReport

SILENCE = np.zeros(1, dtype=np.float32)


def hear(arrivals: Sequence[float], samples: Sequence[int], sample_rate: int) -> StreamReport:
    """The client's own report, from what a load test keeps of a stream.

    arrivals: of each chunk, seconds since the request was sent; samples: of audio in each.
    """
    chunks = [
        Chunk(np.broadcast_to(SILENCE, size), sample_rate, index, final=False, received_s=arrival)  # takes no memory
        for index, (arrival, size) in enumerate(zip(arrivals, samples, strict=True))
    ]
    return StreamReport.of(chunks)
