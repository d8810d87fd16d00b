"""Our client and locust against the real server, briefly."""

from __future__ import annotations

from backends.launcher import RunningServer
from loadtest.locust_run import locust
from loadtest.open_loop import run_bursts, run_closed, run_open
from loadtest.records import summary
from loadtest.schedule import arrivals


def test_open_loop_keeps_its_schedule(server: RunningServer) -> None:
    times = arrivals(20, 12, seed=5)
    records = run_open(server.grpc_url, "mixed", times, first=2, max_seconds=0.5, first_chunk_frames=4)
    assert [record.due for record in records] == list(times)
    assert all(record.sent >= record.due for record in records)
    assert summary(records)["requests"] == 12
    sounding = [record for record in records if record.samples]  # random weights may end at once
    assert len(sounding) > 6 and all(record.spoken for record in records)
    for record in sounding:
        assert record.arrivals == sorted(record.arrivals) and len(record.arrivals) == len(record.samples)
        assert 0 < sum(record.samples) <= 0.5 * record.sample_rate
        assert record.server_first_ms is not None and record.server_first_ms <= 1e3 * record.arrivals[0]


def test_closed_loop_and_bursts(server: RunningServer) -> None:
    closed = run_closed(server.grpc_url, "short", callers=3, seconds=1, max_seconds=0.2)
    assert len(closed) > 3 and all(record.spoken for record in closed)
    bursts = run_bursts(server.grpc_url, "short", together=2, rounds=2)
    assert len(bursts) == 4
    heard = [record.sent + record.arrivals[-1] for record in bursts[:2] if record.arrivals]
    assert all(record.due >= max(heard) for record in bursts[2:])  # one clock for both


def test_an_unknown_parameter_is_a_failure_not_a_crash(server: RunningServer) -> None:
    (record,) = run_open(server.grpc_url, "short", [0.0], speed=2)
    assert "unknown parameter" in record.outcome
    assert summary([record])["failed"] == 1


def test_locust_headless(server: RunningServer) -> None:
    row = locust(server.grpc_url, "short", users=3, seconds=4)
    assert row["spoken"] == row["requests"] >= 3
    assert 0 < row["fcl_ms"]["p50"] <= row["lcl_ms"]["p50"] + 10  # locust rounds to two digits
