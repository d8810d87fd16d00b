"""What the engine hands back: pieces of audio and, on the first and the last, timings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

FinishReason = Literal["stop", "length", "cancelled", "error"]


@dataclass(frozen=True)
class Timings:
    """One request's clock, milliseconds since it was submitted unless said otherwise.

    queue_ms: waiting for its first step. frontend_ms, prefill_ms: summed time of the batches that prepared its
    sentences (text work included). first_chunk_ms: until the first audio left; None if none did. total_ms: until now.
    frames: codec frames made; decode_steps: forward passes after prefill; audio_s: seconds sent, pauses included.
    speculation, acceptance: proposer ("none": no drafts) and rule. total_draft_tokens: tokens drafted, and of them
    total_accepted_draft_tokens, their share acceptance_rate. acceptance_lengths: how many verifications brought 1, 2, …
    tokens, the target's own included.
    """

    queue_ms: float
    frontend_ms: float
    prefill_ms: float
    first_chunk_ms: float | None
    total_ms: float
    decode_steps: int
    frames: int
    sentences: int
    audio_s: float
    speculation: str = "none"
    acceptance: str = "exact"
    total_draft_tokens: int = 0
    total_accepted_draft_tokens: int = 0
    acceptance_rate: float = 0.0
    acceptance_lengths: tuple[int, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready, milliseconds rounded to microseconds."""
        return {name: round(value, 6) if isinstance(value, float) else value for name, value in vars(self).items()}


@dataclass(frozen=True)
class AudioChunk:
    """A piece of audio. The final one may be empty (end found right after a chunk; cancelled; error).

    pcm: float32 [samples] in [-1, 1]. timings: on the first and on the final chunk. error: one sentence, with "error".
    """

    pcm: NDArray[np.float32]
    index: int
    final: bool = False
    finish_reason: FinishReason | None = None
    error: str | None = None
    timings: Timings | None = None
