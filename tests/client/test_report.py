"""The report against a listener who plays sample by sample."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tts_client import Chunk, StreamReport

RATE = 1000  # one sample a millisecond, so that the slow listener below counts exactly


def stream(arrivals_ms: list[int], durations_ms: list[int]) -> list[Chunk]:
    last = len(arrivals_ms) - 1
    return [
        Chunk(np.zeros(duration, np.float32), RATE, index, index == last, at / 1e3, "stop" if index == last else None)
        for index, (at, duration) in enumerate(zip(arrivals_ms, durations_ms, strict=True))
    ]


def listen(arrivals_ms: list[int], durations_ms: list[int]) -> tuple[int, int]:
    """Stalls and milliseconds stalled of a listener with a clock that ticks once a millisecond."""
    now, buffered, stalls, stalled, silent = arrivals_ms[0], 0, 0, 0, False
    waiting = list(zip(arrivals_ms, durations_ms, strict=True))
    while waiting:
        while waiting and waiting[0][0] <= now:
            buffered += waiting.pop(0)[1]
            silent = False
        if not waiting:
            break
        if buffered:
            buffered -= 1
        else:
            stalls += not silent
            stalled += 1
            silent = True
        now += 1
    return stalls, stalled


@given(st.lists(st.tuples(st.integers(1, 60), st.integers(1, 60)), min_size=1, max_size=12))
def test_underruns_are_what_a_listener_hears(pieces: list[tuple[int, int]]) -> None:
    arrivals = np.cumsum([wait for wait, _ in pieces]).tolist()
    durations = [duration for _, duration in pieces]
    report = StreamReport.of(stream(arrivals, durations))
    stalls, stalled = listen(arrivals, durations)
    assert report.underruns == stalls
    assert report.stalled_s == pytest.approx(stalled / 1e3, abs=1e-9)


def test_a_worked_example() -> None:
    # 100 ms at 50, 100 at 120 (30 early), 100 at 290 (40 late: 50 + 200 = 250 was the end), an empty final one.
    report = StreamReport.of(stream([50, 120, 290, 300], [100, 100, 100, 0]))
    assert (report.first_chunk_s, report.last_chunk_s, report.chunks, report.underruns) == (0.05, 0.29, 3, 1)
    assert report.audio_s == pytest.approx(0.3)
    assert report.stalled_s == pytest.approx(0.04)
    assert report.longest_gap_s == pytest.approx(0.17)
    assert report.real_time_factor == pytest.approx(0.29 / 0.3)
    assert report.finish_reason == "stop"
    assert "first chunk 50 ms, last chunk 290 ms, real-time factor 0.967" in str(report)
    assert "1 underruns (40 ms of silence)" in str(report)


def test_nothing_arrived() -> None:
    report = StreamReport.of([])
    assert report.first_chunk_s is None
    assert report.real_time_factor is None
    assert str(report) == "no audio"
    assert report.to_dict()["audio_s"] == 0
