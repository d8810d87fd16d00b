"""What is kept of a request, and the figures over many of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from loadtest.listener import hear
from tts_client import StreamReport

Row = dict[str, Any]


@dataclass
class Record:
    """One request. Seconds; `due` and `sent` since the start of the run, `arrivals` of the chunks since `sent`.

    samples: of audio in each chunk. outcome: a finish reason, "rejected" (the server was full) or an error's text.
    server_first_ms: the engine's own first-chunk time for this request.
    """

    text: str
    due: float
    sent: float
    arrivals: list[float] = field(default_factory=list)
    samples: list[int] = field(default_factory=list)
    sample_rate: int = 0
    outcome: str = "open"
    server_first_ms: float | None = None

    @property
    def spoken(self) -> bool:
        """Whether it was answered to its end."""
        return self.outcome in ("stop", "length")

    @cached_property
    def heard(self) -> StreamReport:
        """As its listener heard it."""
        return hear(self.arrivals, self.samples, self.sample_rate)

    def to_dict(self) -> Row:
        """JSON-ready, times rounded to 10 µs."""
        values = asdict(self)
        rounded = {name: round(value, 5) for name, value in values.items() if isinstance(value, float)}
        return values | rounded | {"arrivals": [round(arrival, 5) for arrival in self.arrivals]}


def percentiles(values: Iterable[float], digits: int = 1) -> Row:
    """Mean, p50, p95 and p99; empty where there are no values."""
    array = np.array(list(values))
    if not array.size:
        return {}
    p50, p95, p99 = np.percentile(array, [50, 95, 99])
    figures = {"mean": array.mean(), "p50": p50, "p95": p95, "p99": p99}
    return {name: round(float(value), digits) for name, value in figures.items()}


def summary(records: Sequence[Record]) -> Row:
    """The figures of a run.

    fcl_ms, lcl_ms: request sent to first and to last audio; rtf: last chunk ÷ duration; gap_ms: between chunks; all by
    `percentiles`. underruns, worst_stall_ms, continuity_ok (share without underrun): of those answered, as heard.
    rejected, failed (no audio counts too): not answered. late_ms_p99: how late the client itself was in sending.
    """
    spoken = [record for record in records if record.spoken and record.heard.audio_s]
    heard = [record.heard for record in spoken]
    rejected = sum(record.outcome == "rejected" for record in records)
    end = max((record.sent + record.arrivals[-1] for record in spoken), default=0.0)
    audio = sum(report.audio_s for report in heard)
    smooth = sum(report.underruns == 0 for report in heard)
    return {
        "requests": len(records),
        "spoken": len(spoken),
        "rejected": rejected,
        "failed": len(records) - rejected - len(spoken),
        "duration_s": round(audio / len(spoken), 2) if spoken else None,
        "fcl_ms": percentiles(1e3 * (report.first_chunk_s or 0) for report in heard),
        "lcl_ms": percentiles(1e3 * (report.last_chunk_s or 0) for report in heard),
        "rtf": percentiles((report.real_time_factor or 0 for report in heard), 3),
        "gap_ms": percentiles(1e3 * (late - early) for r in spoken for early, late in pairwise(r.arrivals)),
        "underruns": sum(report.underruns for report in heard),
        "worst_stall_ms": round(1e3 * max((report.longest_stall_s for report in heard), default=0.0), 1),
        "continuity_ok": round(smooth / len(spoken), 4) if spoken else None,
        "requests_per_s": round(len(spoken) / end, 2) if end else 0.0,
        "audio_s_per_s": round(audio / end, 1) if end else 0.0,
        "late_ms_p99": percentiles(1e3 * (record.sent - record.due) for record in records).get("p99"),
    }
