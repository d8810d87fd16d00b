"""What is measured: pooled and twin in turn, saturation first, then everything at rates scaled to the twin's."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from loadtest.locust_run import locust
from loadtest.machine import speed
from loadtest.open_loop import run_bursts, run_closed, run_open, run_seeds, throughput
from loadtest.perf import analyze
from loadtest.records import Record, Row, summary
from loadtest.schedule import DISTRIBUTIONS, arrivals
from loadtest.servers import Server, ServerError, mean_batches, serve

SHARES = (10, 30, 60, 70, 100)  # per cent of the twin's saturation
KIND_SHARES = (30, 70, 100)
CALLERS = (16, 32, 48)
CHUNKS = {  # name: request parameters; the voice's own sizes are measured in every other row
    "fixed 380 ms": {"first_chunk_frames": 19, "chunk_frames": 19},  # incremental_tts 3.1: 32 frames of 11.6 ms
    "first 160 ms": {"first_chunk_frames": 8},
}
PLAIN, ADAPTIVE = SPECULATION = ("none", "medusa")  # of the bursts; medusa's depth adapts to the crowd
BOUND_MS = 100.0
LOCUST_USERS = 4
LOWEST = 0.1  # of saturation: where the search for a sustainable rate gives up
BELOW = 0.8  # of its own saturation, no listener may hear a gap
NEAR = 0.5  # of it: from here on a slower machine makes a row one above that
RECENT_SECONDS = 60.0  # a saturation measured longer ago is of another machine where neighbours come and go
SERVERS = {"twin": "batched", "pooled": "pooled"}  # the twin first: its saturation scales the rates of both


@dataclass(frozen=True)
class Plan:
    """How much is measured. Seconds of sending for each; seeds: runs that a row is made of, the seconds shared."""

    saturation: float = 12
    rate: float = 18
    kind: float = 8
    chunks: float = 12
    probe: float = 12
    probes: int = 5
    # Together, rounds. A single burst of 32: half of it is the scheduler's first group, so that a median over several
    # bursts is that of the slowest one's group.
    bursts: tuple[tuple[int, int], ...] = ((1, 6), (4, 3), (32, 1))
    turns: int = 13  # of the bursts: a ratio is of two runs of one turn, and the median of all turns counts
    seeds: int = 3
    perf_requests: int = 40
    locust: float = 10
    fewest: int = 12  # requests of a row, however low the rate
    capacity: int = 64


QUICK = Plan(
    saturation=6,
    rate=4,
    kind=2,
    chunks=2,
    probe=3,
    probes=3,
    turns=1,
    seeds=1,
    perf_requests=8,
    locust=4,
    fewest=4,
)


@dataclass
class Results:
    """rows: one for each run; records: of the same runs, same order; saturation, sustained: requests/s by server."""

    rows: list[Row] = field(default_factory=list)
    records: list[list[Record]] = field(default_factory=list)
    saturation: dict[str, float] = field(default_factory=dict)
    sustained: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def find(self, **wanted: Any) -> list[tuple[Row, list[Record]]]:
        """The runs whose rows have these values."""
        both = zip(self.rows, self.records, strict=True)
        return [(row, records) for row, records in both if all(row.get(name) == v for name, v in wanted.items())]


class Sweep:
    """Measurements of one running server, written into `results`."""

    def __init__(self, name: str, server: Server, plan: Plan, results: Results) -> None:
        self.name = name
        self.server = server
        self.plan = plan
        self.results = results
        self._saturation = self._measured = 0.0  # the latest, and when
        self._callers = CALLERS[0]  # who got the most out of it

    def _row(self, run: Callable[[], list[Record]], **what: Any) -> Row:
        machine = speed()
        before = self.server.module_counts()
        records = run()
        row = {"server": self.name, **what, **summary(records), **machine, "saturation": self._saturation}
        row["mean_batch"] = mean_batches(before, self.server.module_counts())
        self.results.rows.append(row)
        self.results.records.append(records)
        return row

    def _open(self, experiment: str, rate: float, seconds: float, kind: str = "mixed", params: Row | None = None,
              **what: Any) -> Row:  # fmt: skip
        if self.name == "pooled" and rate > NEAR * self._saturation:
            self._refresh()
        seeds = self.plan.seeds
        count = max(self.plan.fewest, round(rate * seconds)) // seeds or 1
        label = f"{self.name}: {experiment}, {kind}, {rate:.2f}/s"

        def run() -> list[Record]:
            return run_seeds(self.server.grpc_url, kind, rate, count, range(seeds), label=label, **(params or {}))

        return self._row(run, experiment=experiment, kind=kind, rate=round(rate, 3), **what)

    def saturate(self) -> None:
        """Requests a second that closed loops get out of it, the most of several numbers of callers."""
        found = {callers: self._closed(callers) for callers in CALLERS}
        self._callers = max(found, key=found.__getitem__)
        self._saturation = found[self._callers]
        if not self._saturation:
            raise ServerError(f"the {self.name} server answered too little to know its saturation: look at its log")
        self.results.saturation[self.name] = self._saturation

    def _closed(self, callers: int) -> float:
        label = f"{self.name}: saturation, {callers} callers"

        def run() -> list[Record]:
            return run_closed(self.server.grpc_url, "mixed", callers, self.plan.saturation, label)

        row = self._row(run, experiment="saturation", kind="mixed", callers=callers)
        row["throughput"] = round(throughput(self.results.records[-1], callers), 2)
        self._measured = time.monotonic()
        return float(row["throughput"])

    def _refresh(self) -> None:
        """Measure saturation anew unless that was a moment ago."""
        if time.monotonic() - self._measured > RECENT_SECONDS:
            self._saturation = self._closed(self._callers)

    def rates(self, scale: float) -> None:
        """Mixed texts, and those of each length, at rising rates (incremental_tts, figures 3 and 4, table 1)."""
        for share in SHARES:
            self._open("rates", scale * share / 100, self.plan.rate, share=share)
        for kind in ("short", "medium", "long"):
            for share in KIND_SHARES:
                self._open("rates", scale * share / 100, self.plan.kind, kind, share=share)

    def chunk_settings(self, scale: float) -> None:
        """Other chunk sizes at 70 %."""
        for name, params in CHUNKS.items():
            self._open("chunks", scale * 0.7, self.plan.chunks, params=params, share=70, chunks=name)

    def below_saturation(self) -> None:
        """Just below the share of its own saturation up to which nobody may hear a gap."""
        self._refresh()
        self._open("below", self._saturation * (BELOW - 0.01), self.plan.rate)

    def bursts(self) -> None:
        """So many requests at one instant, alone on the server; plain, and with speculation of adaptive depth."""
        for speculation, (together, _) in product(SPECULATION, self.plan.bursts):  # the first of a width binds arrays
            run_bursts(self.server.grpc_url, "short", together, 1, f"{self.name}: warm-up", speculation=speculation)
        for turn, speculation, (together, rounds) in product(range(self.plan.turns), SPECULATION, self.plan.bursts):
            label = f"{self.name}: {together} at once, speculation {speculation}, turn {turn}"
            run = partial(run_bursts, self.server.grpc_url, "short", together, rounds, label, speculation=speculation)
            what = {"speculation": speculation, "turn": turn, "together": together}
            self._row(run, experiment="bursts", kind="short", **what)

    def sustainable(self) -> float:
        """Highest rate with p99 first chunk within the bound, no underrun and nothing refused; 0: not even the lowest.

        Bisection between nothing and saturation, each probe a run of its own.
        """
        low, high = 0.0, self.results.saturation[self.name]
        for _ in range(self.plan.probes):
            rate = (low + high) / 2
            if rate < LOWEST * self.results.saturation[self.name]:
                break
            row = self._open("sustainable", rate, self.plan.probe)
            row["held"] = holds(row)
            low, high = (rate, high) if row["held"] else (low, rate)
        return low

    def outside(self, rate: float) -> None:
        """By others' tools: locust's users; perf_analyzer with both distributions at a rate and two concurrencies."""
        row = locust(self.server.grpc_url, "mixed", LOCUST_USERS, self.plan.locust)
        what = {"server": self.name, "experiment": "locust", "kind": "mixed", "concurrency": LOCUST_USERS}
        self.results.rows.append({**what, **row, "mean_batch": {}})
        self.results.records.append([])
        loads: list[Row] = [{"rate": round(rate, 2), "distribution": name} for name in DISTRIBUTIONS]
        for load in [*loads, {"concurrency": 1}, {"concurrency": 4}]:

            def run(load: Row = load) -> list[Record]:
                return analyze(self.server.grpc_url, "mixed", requests=self.plan.perf_requests, **load)

            self._row(run, experiment="perf_analyzer", kind="mixed", **load)


def holds(row: Row) -> bool:
    """Whether a run was all right for everyone: in time, without a gap, nobody refused."""
    in_time = row["fcl_ms"].get("p99", np.inf) <= BOUND_MS
    return bool(in_time and not row["underruns"] and row["spoken"] == row["requests"])


def measure(plan: Plan, repository: Path | None = None) -> Results:
    """Everything, each server in turn. ServerError where one does not start."""
    results = Results()
    for name, serving in SERVERS.items():
        print(f"starting the {name} server …", file=sys.stderr)
        with serve({"serving": serving, "capacity": str(plan.capacity)}, repository) as server:
            sweep = Sweep(name, server, plan, results)
            run_open(server.grpc_url, "mixed", arrivals(4, plan.fewest), label=f"{name}: warm-up")
            sweep.saturate()
            scale = results.saturation["twin"]
            sweep.rates(scale)
            if name == "pooled":
                sweep.bursts()
                sweep.chunk_settings(scale)
                sweep.below_saturation()
            results.sustained[name] = sweep.sustainable()
            try:
                sweep.outside(scale * 0.3)
            except (OSError, RuntimeError) as error:  # not there, or gone wrong: all else has been measured
                results.notes.append(f"{name}: {error}.")
    return results
