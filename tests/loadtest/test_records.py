"""Figures over requests, and what their listeners heard."""

from __future__ import annotations

import json

import pytest

from loadtest.listener import hear
from loadtest.open_loop import throughput
from loadtest.records import Record, summary
from loadtest.texts import KINDS, MEAN_SECONDS, load_texts

RATE = 16_000


def record(arrivals: list[float], seconds: list[float], sent: float = 0.0, outcome: str = "stop") -> Record:
    return Record("Hi.", sent, sent, arrivals, [round(RATE * s) for s in seconds], RATE, outcome)


def test_a_listener_stalls_where_the_next_chunk_is_late() -> None:
    heard = hear([0.1, 0.55, 1.2], [int(0.4 * RATE), int(0.5 * RATE), int(0.1 * RATE)], RATE)
    assert heard.first_chunk_s == 0.1
    assert heard.underruns == 2  # 0.05 s silent, and playback shifted by it: then 1.2 - 1.05
    assert heard.longest_stall_s == pytest.approx(0.15)
    assert heard.stalled_s == pytest.approx(0.2)
    assert heard.audio_s == pytest.approx(1.0)
    assert heard.real_time_factor == pytest.approx(1.2)


def test_early_chunks_are_a_buffer() -> None:
    heard = hear([0.1, 0.2, 1.0], [RATE // 2] * 3, RATE)
    assert (heard.underruns, heard.longest_stall_s) == (0, 0.0)


def test_summary_counts_every_request_once() -> None:
    smooth = record([0.1, 0.2], [0.5, 0.5])
    broken = record([0.3, 1.3], [0.5, 0.5], sent=1.0)
    cut = record([0.1], [0.2], outcome="the server went away")
    figures = summary([smooth, broken, cut, record([], [], outcome="rejected")])
    assert [figures[name] for name in ("requests", "spoken", "rejected", "failed")] == [4, 2, 1, 1]
    assert figures["fcl_ms"]["mean"] == 200.0
    assert figures["lcl_ms"]["p50"] == 750.0
    assert figures["rtf"]["mean"] == 0.75
    assert figures["underruns"] == 1 and figures["worst_stall_ms"] == 500.0
    assert figures["continuity_ok"] == 0.5
    assert figures["requests_per_s"] == round(2 / 2.3, 2)


def test_summary_of_nothing_spoken() -> None:
    figures = summary([record([], [], outcome="rejected")])
    assert figures["fcl_ms"] == {} and figures["continuity_ok"] is None
    json.dumps(figures)


def test_throughput_leaves_the_first_wave_and_the_drain_out() -> None:
    """Four callers, each request 2 s: the first wave ends at 2, the last is sent at 8, two stragglers drain alone."""
    waves = [record([2.0], [1.0], sent=2.0 * wave) for wave in range(5) for _ in range(4)]
    drain = [record([9.0], [1.0], sent=8.0)] * 2
    assert throughput(waves + drain, callers=4) == pytest.approx(4 * 3 / (8 - 2))
    assert throughput(waves[:4], callers=4) == 0.0


@pytest.mark.parametrize("kind", KINDS)
def test_committed_texts_last_as_long_as_the_papers(kind: str) -> None:
    texts = load_texts(kind)
    assert len(texts) >= 60
    assert sum(text.seconds for text in texts) / len(texts) == pytest.approx(MEAN_SECONDS[kind], rel=0.02)


def test_mixed_texts_are_the_others_in_turn() -> None:
    mixed = load_texts("mixed")
    for start, kind in enumerate(("short", "medium", "long")):
        assert mixed[start::3] == load_texts(kind)
