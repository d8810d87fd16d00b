"""The reference client: sends on a schedule, whatever the server does, and notes when each chunk arrives.

    python -m loadtest.open_loop --rate 5                            # 1,000 requests, Poisson, against localhost:8001
    python -m loadtest.open_loop --rate 5 --requests 200 --seeds 0 1 2 --texts long --json records.json
    python -m loadtest.open_loop --callers 8                         # closed loop: each caller listens, then asks again

Prints a table, and one JSON line last.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tqdm import tqdm

from loadtest.records import Record, summary
from loadtest.schedule import DISTRIBUTIONS, arrivals
from loadtest.texts import KINDS, Text, load_texts
from tts_client import AsyncTTSClient, TTSError, Unavailable

ANSWER_SECONDS = 60.0  # longer is a failure


async def speak(client: AsyncTTSClient, text: Text, due: float, zero: float, params: dict[str, Any]) -> Record:
    """One request to its end; errors become its outcome. zero: the run's start by time.perf_counter()."""
    record = Record(text.text, due, time.perf_counter() - zero)
    try:
        async for chunk in client.stream(text.text, seed=text.seed, timeout=ANSWER_SECONDS, **params):
            if chunk.pcm.size:
                record.arrivals.append(chunk.received_s)
                record.samples.append(chunk.pcm.size)
                record.sample_rate = chunk.sample_rate
            if chunk.final:
                record.outcome = chunk.finish_reason or "stop"
                record.server_first_ms = chunk.timings.get("first_chunk_ms")
    except Unavailable:
        record.outcome = "rejected"
    except TTSError as error:
        record.outcome = str(error)
    return record


async def open_loop(
    url: str, texts: Sequence[Text], times: Sequence[float], params: dict[str, Any], label: str = ""
) -> list[Record]:
    """Text i is sent at times[i] seconds, listened to or not; the records in that order."""
    async with AsyncTTSClient(url) as client:
        await client.check()
        zero = time.perf_counter()
        with tqdm(total=len(texts), desc=label, leave=False) as bar:
            tasks = []
            async with asyncio.TaskGroup() as group:
                for text, due in zip(texts, times, strict=True):
                    await asyncio.sleep(max(0.0, zero + due - time.perf_counter()))
                    task = group.create_task(speak(client, text, due, zero, params))
                    task.add_done_callback(lambda _: bar.update())
                    tasks.append(task)
    return [task.result() for task in tasks]


async def closed_loop(
    url: str, texts: Iterator[Text], callers: int, seconds: float, params: dict[str, Any], label: str = ""
) -> list[Record]:
    """`callers` at once, each asking again when it has heard the end, until so many seconds have passed."""
    async with AsyncTTSClient(url) as client:
        await client.check()
        zero = time.perf_counter()
        records: list[Record] = []
        with tqdm(desc=label, leave=False) as bar:

            async def caller() -> None:
                while (now := time.perf_counter() - zero) < seconds:
                    records.append(await speak(client, next(texts), now, zero, params))
                    bar.update()

            async with asyncio.TaskGroup() as group:
                for _ in range(callers):
                    group.create_task(caller())
    return records


def run_open(
    url: str, kind: str, times: Iterable[float], first: int = 0, label: str = "", **params: Any
) -> list[Record]:
    """An open-loop run over the texts of a kind in their order, from text number `first` on."""
    due = list(times)
    texts = list(itertools.islice(itertools.cycle(load_texts(kind)), first, first + len(due)))
    return asyncio.run(open_loop(url, texts, due, params, label))


def run_after(earlier: list[Record], later: list[Record]) -> None:
    """Append a run to those before it, its clock moved behind theirs."""
    zero = max((record.sent + max(record.arrivals, default=0.0) for record in earlier), default=0.0)
    for record in later:
        record.due += zero
        record.sent += zero
    earlier += later


def run_seeds(
    url: str,
    kind: str,
    rate: float,
    count: int,
    seeds: Iterable[int],
    distribution: str = "poisson",
    label: str = "",
    **params: Any,
) -> list[Record]:
    """`count` requests at each seed, one run after the other, as one long run."""
    records: list[Record] = []
    for seed in seeds:
        times = arrivals(rate, count, distribution, seed)
        run_after(records, run_open(url, kind, times, len(records), f"{label}, seed {seed}", **params))
    return records


def run_closed(url: str, kind: str, callers: int, seconds: float, label: str = "", **params: Any) -> list[Record]:
    """A closed-loop run over the texts of a kind."""
    return asyncio.run(closed_loop(url, itertools.cycle(load_texts(kind)), callers, seconds, params, label))


def run_bursts(url: str, kind: str, together: int, rounds: int, label: str = "", **params: Any) -> list[Record]:
    """`rounds` times `together` requests at one instant, on a server that is otherwise silent."""
    records: list[Record] = []
    for _ in tqdm(range(rounds), desc=label, leave=False):
        run_after(records, run_open(url, kind, [0.0] * together, len(records), **params))
    return records


def throughput(records: Sequence[Record], callers: int) -> float:
    """Requests a second of a closed loop, from the end of its first wave to the last end before callers stop asking."""
    ends = sorted(record.sent + record.arrivals[-1] for record in records if record.spoken and record.arrivals)
    stopped = max((record.sent for record in records), default=0.0)
    steady = [end for end in ends[callers - 1 :] if end <= stopped]
    return (len(steady) - 1) / (steady[-1] - steady[0]) if len(steady) > 1 and steady[-1] > steady[0] else 0.0


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m loadtest.open_loop", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--url", default="localhost:8001")
    load = parser.add_mutually_exclusive_group(required=True)
    load.add_argument("--rate", type=float, help="requests a second")
    load.add_argument("--callers", type=int, help="closed loop of so many callers instead of a rate")
    parser.add_argument("--requests", type=int, default=1000, help="at each seed (default: 1000)")
    parser.add_argument("--seconds", type=float, default=30, help="of a closed loop (default: 30)")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0], help="a run for each (default: 0)")
    parser.add_argument("--distribution", choices=DISTRIBUTIONS, default="poisson")
    parser.add_argument("--texts", choices=KINDS, default="mixed")
    parser.add_argument("--warm-up", type=int, default=20, help="requests before the measured ones (default: 20)")
    parser.add_argument("--json", type=Path, help="write the records here")
    args = parser.parse_args()
    rate = args.rate or float(args.callers)
    run_open(args.url, args.texts, arrivals(rate, args.warm_up, seed=-1 % 2**32), label="warm-up")
    if args.callers:
        records = run_closed(args.url, args.texts, args.callers, args.seconds, f"{args.callers} callers")
    else:
        label = f"{args.rate:g} requests/s"
        records = run_seeds(args.url, args.texts, args.rate, args.requests, args.seeds, args.distribution, label)
    if args.json:
        args.json.write_text(json.dumps([record.to_dict() for record in records]), encoding="utf-8")
    figures = summary(records)
    for name, value in figures.items():
        print(f"{name:16} {'  '.join(f'{k} {v:g}' for k, v in value.items()) if isinstance(value, dict) else value}")
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
