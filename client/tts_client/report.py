"""How a stream went, as its listener would have heard it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Any

from tts_client.chunk import Chunk

CLOCK_S = 1e-6  # shorter is rounding, not silence: a sample takes sixty times as long


@dataclass(frozen=True)
class StreamReport:
    """Latencies of one stream, seconds since the request was sent unless said otherwise.

    first_chunk_s, last_chunk_s: arrival of the first and of the last audio; None while there is none.
    audio_s: length of the audio. real_time_factor: last_chunk_s / audio_s. chunks: chunks with audio in them.
    longest_gap_s: longest wait between two of them. underruns, stalled_s, longest_stall_s: how often, and for how
    long in all and at worst, a listener who starts playing with the first chunk runs out of audio.
    timings: the server's own clock.
    """

    first_chunk_s: float | None
    last_chunk_s: float | None
    audio_s: float
    real_time_factor: float | None
    chunks: int
    longest_gap_s: float
    underruns: int
    stalled_s: float
    longest_stall_s: float
    sample_rate: int | None
    finish_reason: str | None
    timings: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, chunks: Sequence[Chunk]) -> StreamReport:
        """The report over what has arrived so far, in order; of a cancelled stream too."""
        spoken = [chunk for chunk in chunks if chunk.pcm.size]
        durations = [chunk.pcm.size / chunk.sample_rate for chunk in spoken]
        arrivals = [chunk.received_s for chunk in spoken]
        stalls = []
        heard_until = arrivals[0] if arrivals else 0.0  # when the listener has played all that arrived
        for arrival, duration in zip(arrivals, durations, strict=True):
            if arrival - heard_until > CLOCK_S:
                stalls.append(arrival - heard_until)
            heard_until = max(heard_until, arrival) + duration
        audio_s = sum(durations)
        return cls(
            first_chunk_s=arrivals[0] if arrivals else None,
            last_chunk_s=arrivals[-1] if arrivals else None,
            audio_s=audio_s,
            real_time_factor=arrivals[-1] / audio_s if arrivals else None,
            chunks=len(spoken),
            longest_gap_s=max((late - early for early, late in pairwise(arrivals)), default=0.0),
            underruns=len(stalls),
            stalled_s=sum(stalls),
            longest_stall_s=max(stalls, default=0.0),
            sample_rate=spoken[0].sample_rate if spoken else None,
            finish_reason=chunks[-1].finish_reason if chunks else None,
            timings=chunks[-1].timings if chunks else {},
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready, floats rounded to microseconds."""
        return {name: round(value, 6) if isinstance(value, float) else value for name, value in asdict(self).items()}

    def __str__(self) -> str:
        if self.first_chunk_s is None or self.last_chunk_s is None or self.real_time_factor is None:
            return "no audio"
        gaps = f"longest gap {1e3 * self.longest_gap_s:.0f} ms, {self.underruns} underruns"
        if self.underruns:
            gaps += f" ({1e3 * self.stalled_s:.0f} ms of silence)"
        return (
            f"first chunk {1e3 * self.first_chunk_s:.0f} ms, last chunk {1e3 * self.last_chunk_s:.0f} ms, "
            f"real-time factor {self.real_time_factor:.3f} "
            f"({self.audio_s:.2f} s of audio, {self.chunks} chunks), {gaps}"
        )
