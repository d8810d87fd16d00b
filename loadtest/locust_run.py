"""A short headless run of locust, as a row of the report."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from loadtest.records import Row, percentiles, summary

FILE = Path(__file__).with_name("locustfile.py")


def locust(url: str, kind: str, users: int, seconds: float) -> Row:
    """`users` listeners for so many seconds; the figures it has (no gaps, no real-time factor). RuntimeError."""
    command = [sys.executable, "-m", "locust", "-f", str(FILE), "--host", url, "--headless", "--json", "--skip-log"]
    command += ["-u", str(users), "-r", str(users), "-t", f"{seconds:.0f}s", "--texts", kind]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds + 60, cwd=FILE.parents[1])
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"locust did not end within a minute after its {seconds:.0f} s") from None
    if not done.stdout.strip():
        raise RuntimeError(f"locust failed: {(done.stderr.strip() or 'it printed nothing').splitlines()[-1]}")
    return read_stats(json.loads(done.stdout))


def read_stats(stats: list[dict[str, Any]]) -> Row:
    """Locust's JSON, whose response times are histograms rounded to two digits, as a row."""
    by_name = {entry["name"]: entry for entry in stats}
    first, last = by_name.get("first chunk"), by_name.get("last chunk")
    if first is None or last is None:
        raise RuntimeError("locust made no request: give it more seconds")
    failed = int(last["num_failures"])
    return {
        **summary([]),
        "requests": last["num_requests"],
        "spoken": last["num_requests"] - failed,
        "failed": failed,
        "fcl_ms": percentiles(_spread(first)),
        "lcl_ms": percentiles(_spread(last)),
        "underruns": None,
        "worst_stall_ms": None,
    }


def _spread(entry: dict[str, Any]) -> np.ndarray:
    times = entry["response_times"]
    return np.repeat([float(milliseconds) for milliseconds in times], list(times.values()))
