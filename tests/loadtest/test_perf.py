"""perf_analyzer: a real profile that it wrote is read right, and it runs against the real server."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from backends.launcher import RunningServer
from loadtest.perf import MOST_REQUESTS, analyze, read_profile
from loadtest.perf_fetch import PerfAnalyzerError, perf_analyzer

RECORDED = Path(__file__).with_name("profile.json.gz")  # 4 requests at 4/s, first chunk 4 frames, then up to 16


def test_a_recorded_profile(tmp_path: Path) -> None:
    profile = tmp_path / "profile.json"
    profile.write_bytes(gzip.decompress(RECORDED.read_bytes()))
    records = read_profile(profile)
    assert [record.sent for record in records] == sorted(record.sent for record in records)
    assert records[0].sent == 0 and len(records) == 4
    for record in records:
        assert record.samples == [1280, 2560, 5120, 2880]
        assert (record.text, record.sample_rate, record.outcome) == ("Go on.", 16_000, "stop")
    assert [round(1e3 * arrival, 1) for arrival in records[0].arrivals] == [31.9, 48.2, 65.6, 77.4]
    assert records[0].heard.underruns == 0


def test_a_run_that_would_fill_the_disk_is_refused() -> None:
    with pytest.raises(PerfAnalyzerError, match=f"at most {MOST_REQUESTS}"):
        analyze("localhost:1", "short", rate=1, requests=MOST_REQUESTS + 1)


@pytest.fixture(scope="module")
def fetched() -> None:
    try:
        perf_analyzer()
    except PerfAnalyzerError as error:
        pytest.skip(str(error))


@pytest.mark.usefixtures("fetched")
def test_against_the_real_server(server: RunningServer) -> None:
    records = analyze(server.grpc_url, "short", concurrency=2, requests=4, seconds=120)
    assert len(records) >= 4
    assert all(record.spoken for record in records) and any(record.samples for record in records)


@pytest.mark.usefixtures("fetched")
def test_its_own_complaint_is_passed_on() -> None:
    with pytest.raises(PerfAnalyzerError, match=r"perf_analyzer failed: .*rror"):
        analyze("localhost:1", "short", rate=1, requests=1, seconds=60)
