"""Two builds against each other: a server of each, side by side, bursts in turns, and the ratio of their first chunks.

    python -m loadtest.compare ../before .                 # 100 turns of one request and of 32 at once; five minutes
    python -m loadtest.compare ../before . --turns 20 --together 4

A build is a checkout of this repository in which `make export` has run. Turns lie seconds apart, so a machine whose
speed changes by the minute changes both; single turns still differ by a fifth, and fewer than some 50 show differences
of 5 % between a build and itself. Prints a table, and one JSON line last.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from loadtest.open_loop import run_bursts
from loadtest.servers import ServerError, serve

AUDIO_SECONDS = 0.5  # of each request: enough for a first chunk
RESAMPLES = 1000
INTERVAL = (5, 95)  # per cent


def first_chunk_ms(url: str, together: int) -> float:
    """The median first chunk of so many requests at one instant."""
    records = run_bursts(url, "short", together, 1, max_seconds=AUDIO_SECONDS)
    heard = [record.arrivals[0] for record in records if record.spoken and record.arrivals]
    if len(heard) < together:
        raise ServerError(f"{url} answered {len(heard)} of {together} requests: look at its log")
    return float(1e3 * np.median(heard))


def measure(urls: Sequence[str], widths: Sequence[int], turns: int) -> NDArray[np.float64]:
    """First chunks in milliseconds, [servers, widths, turns]; servers in random order within a turn."""
    for url in urls:
        for together in widths:  # the first of a width binds arrays
            first_chunk_ms(url, together)
    times = np.empty((len(urls), len(widths), turns))
    for turn in tqdm(range(turns), desc="turns", leave=False):
        for server in random.sample(range(len(urls)), len(urls)):
            times[server, :, turn] = [first_chunk_ms(urls[server], together) for together in widths]
    return times


def ratio(before: NDArray[np.float64], after: NDArray[np.float64]) -> tuple[float, float, float]:
    """Median of after / before within turns, and the 90 % interval of that median (bootstrap over turns)."""
    logs = np.log(after / before)
    samples = np.random.default_rng(0).choice(logs, (RESAMPLES, len(logs)))
    low, high = np.percentile(np.median(samples, axis=1), INTERVAL)
    return float(np.exp(np.median(logs))), float(np.exp(low)), float(np.exp(high))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m loadtest.compare", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("before", type=Path, help="a checkout with its own .venv and voice")
    parser.add_argument("after", type=Path)
    parser.add_argument("--turns", type=int, default=100)
    parser.add_argument("--together", type=int, default=32, help="requests of a burst (default: 32)")
    args = parser.parse_args(arguments)
    if args.turns < 1 or args.together < 1:
        parser.error("--turns and --together must be at least 1")
    widths = (1, args.together)
    try:
        with serve({}, tree=args.before) as before, serve({}, tree=args.after) as after:
            times = measure([before.grpc_url, after.grpc_url], widths, args.turns)
    except ServerError as error:
        raise SystemExit(f"cannot compare: {error}") from None
    rows: list[dict[str, Any]] = []
    print(f"{'first chunk, ms':>16}{'before':>10}{'after':>10}{'ratio':>8}   90 % interval")
    for place, together in enumerate(widths):
        p50 = np.median(times[:, place], axis=1)
        middle, low, high = ratio(*times[:, place])
        print(f"{f'{together} at once':>16}{p50[0]:10.1f}{p50[1]:10.1f}{middle:8.3f}   {low:.3f} to {high:.3f}")
        figures = {"before_ms": p50[0], "after_ms": p50[1], "ratio": middle, "low": low, "high": high}
        rows.append({"together": together} | {name: round(float(value), 4) for name, value in figures.items()})
    slopes = [float(np.median(times[server, 1] / times[server, 0])) for server in range(2)]
    print(f"{'slope':>16}{slopes[0]:10.2f}{slopes[1]:10.2f}")
    print(json.dumps({"turns": args.turns, "rows": rows, "slopes": [round(slope, 3) for slope in slopes]}))


if __name__ == "__main__":
    main()
