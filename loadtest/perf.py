"""Load with NVIDIA's perf_analyzer; its exported profile is turned into first-chunk, last-chunk and gap figures.

    python -m loadtest.perf --rates 2 4 8                                   # Poisson, against localhost:8001
    python -m loadtest.perf --rates 4 --distribution constant --requests 100 --texts long
    python -m loadtest.perf --concurrency 1 4 16

The latency it prints itself is of one response; read ours. A profile holds all the audio as numbers (0.7 MB a request),
so a run is bounded to some hundred requests. It says everything with one seed.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from tqdm import tqdm

from loadtest.perf_fetch import PerfAnalyzerError, perf_analyzer
from loadtest.records import Record, Row, summary
from loadtest.schedule import DISTRIBUTIONS
from loadtest.texts import KINDS, load_texts

SEED = 1
MOST_REQUESTS = 400
STREAMS = (
    16  # at a rate: requests that overlap on one of these gRPC streams can abort tritonserver 2.51, so not too few
)


def read_profile(path: Path) -> list[Record]:
    """The requests of a profile export, in order of sending."""
    # All the floats are samples of audio, of which only the number matters; one shared object for all keeps them small.
    profile = json.loads(path.read_text(encoding="utf-8"), parse_float=lambda _: 0.0)
    requests = sorted(profile["experiments"][0]["requests"], key=lambda request: request["timestamp"])
    return [_record(request, requests[0]["timestamp"]) for request in requests]


def _record(request: dict[str, Any], zero: int) -> Record:
    sent = (request["timestamp"] - zero) / 1e9
    record = Record(str(request.get("request_inputs", {}).get("target_text", "")), sent, sent, outcome="incomplete")
    for nanoseconds, outputs in zip(request["response_timestamps"], request["response_outputs"], strict=True):
        waveform = outputs.get("waveform", [])
        if isinstance(waveform, list) and waveform:
            record.arrivals.append((nanoseconds - request["timestamp"]) / 1e9)
            record.samples.append(len(waveform))
            record.sample_rate = outputs["sample_rate"]
        record.outcome = outputs.get("finish_reason") or record.outcome
    return record


def analyze(
    url: str,
    kind: str,
    *,
    rate: float | None = None,
    concurrency: int | None = None,
    distribution: str = "poisson",
    requests: int = 60,
    seconds: float = 300,
) -> list[Record]:
    """Run it at a rate (requests/s) or a concurrency for `requests` requests, at most so many seconds.

    PerfAnalyzerError where it cannot be fetched or fails.
    """
    if requests > MOST_REQUESTS:
        raise PerfAnalyzerError(f"{requests} requests make too large a profile; ask for at most {MOST_REQUESTS}")
    program, environment = perf_analyzer()
    with tempfile.TemporaryDirectory(prefix="perf-analyzer-") as work:
        texts = [{"target_text": {"content": [text.text], "shape": [1]}} for text in load_texts(kind)]
        data, profile = Path(work) / "texts.json", Path(work) / "profile.json"
        data.write_text(json.dumps({"data": texts}), encoding="utf-8")
        load = [f"--request-rate-range={rate}", f"--request-distribution={distribution}"]
        if rate is None:
            load = [f"--concurrency-range={concurrency}"]
        command = [
            *(str(program), "-m", "tts", "-u", url, "-i", "grpc", "--async", "--streaming"),
            *load,
            *(f"--input-data={data}", f"--profile-export-file={profile}", f"--request-parameter=seed:{SEED}:int"),
            f"--request-count={max(requests, math.ceil(rate or 1))}",  # it takes no fewer than the rate
            f"--max-threads={concurrency or STREAMS}",
        ]
        try:
            done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=seconds)
        except subprocess.TimeoutExpired:
            raise PerfAnalyzerError(
                f"perf_analyzer was not done after {seconds:.0f} s: ask for fewer requests"
            ) from None
        if done.returncode or not profile.exists():
            said = [line for line in (done.stderr + done.stdout).splitlines() if "rror" in line]
            raise PerfAnalyzerError(f"perf_analyzer failed: {said[0] if said else f'exit status {done.returncode}'}")
        return read_profile(profile)


def sweep(url: str, kind: str, loads: list[dict[str, Any]], requests: int) -> list[Row]:
    """A row of figures for each load: {"rate", "distribution"} or {"concurrency"}."""
    return [
        load | summary(analyze(url, kind, requests=requests, **load))
        for load in tqdm(loads, desc="perf_analyzer", leave=False)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m loadtest.perf", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--url", default="localhost:8001")
    load = parser.add_mutually_exclusive_group(required=True)
    load.add_argument("--rates", type=float, nargs="+", help="requests a second")
    load.add_argument("--concurrency", type=int, nargs="+", help="requests in flight")
    parser.add_argument("--distribution", choices=DISTRIBUTIONS, default="poisson")
    parser.add_argument("--requests", type=int, default=60, help="for each load (default: 60)")
    parser.add_argument("--texts", choices=KINDS, default="mixed")
    args = parser.parse_args()
    loads: list[dict[str, Any]] = [{"rate": rate, "distribution": args.distribution} for rate in args.rates or []]
    loads += [{"concurrency": concurrency} for concurrency in args.concurrency or []]
    try:
        rows = sweep(args.url, args.texts, loads, args.requests)
    except PerfAnalyzerError as error:
        raise SystemExit(f"cannot measure: {error}") from None
    widths = (22, 10, 14, 8, 13, 8, 12, 8)
    heads = ("load", "requests", "first ms p50", "p99", "last ms p50", "p99", "gap ms p50", "p99")
    print("".join(f"{head:>{width}}" for head, width in zip(heads, widths, strict=True)))
    for row in rows:
        name = f"{row['rate']:g}/s {row['distribution']}" if "rate" in row else f"{row['concurrency']} at once"
        figures = [row[figure].get(p, "") for figure in ("fcl_ms", "lcl_ms", "gap_ms") for p in ("p50", "p99")]
        cells = [name, row["requests"], *figures]
        print("".join(f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True)))
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
