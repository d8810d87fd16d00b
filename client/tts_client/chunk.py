"""One piece of streamed audio."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Chunk:
    """Audio as it arrived. The final chunk may be empty (the end was found right after a chunk).

    pcm: float32 [samples] in [-1, 1], mono. sample_rate: Hz. received_s: seconds since the request was sent.
    finish_reason: "stop" (spoken to the end) or "length" (cut at max_seconds), on the final chunk only.
    timings: the server's own clock for this request, on the first and the final chunk; {} elsewhere.
    """

    pcm: NDArray[np.float32]
    sample_rate: int
    index: int
    final: bool
    received_s: float
    finish_reason: str | None = None
    timings: dict[str, Any] = field(default_factory=dict)
