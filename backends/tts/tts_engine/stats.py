"""Counters of the loop: batch sizes a module, and time inside the graph runtime against time in the loop."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from tts_engine.session import BUSY


class Timed(Protocol):
    """Something that counts the seconds spent in, or waiting for, a graph run."""

    @property
    def seconds(self) -> float: ...


MODULES = ("frontend", "prefill", "decode", "vocoder")


@dataclass(frozen=True)
class EngineStats:
    """active: requests in flight. slots_used, cache_positions: of the key-value cache. steps: steps that had work.

    waiting: items by the module they wait for. batches, rows, mean_batch: calls, items in them, items a call, by
    module. module_seconds: time in those calls (of the vocoder also beside the loop). loop_seconds: time in those
    steps; graph_seconds: of it while at least one graph was running, beside the loop or in it; runtime_seconds: what
    the loop itself spent in each. outside_share: time in which no graph ran, as a share of the loop's.
    """

    active: int
    slots_used: int
    cache_positions: int
    steps: int
    waiting: dict[str, int]
    batches: dict[str, int]
    rows: dict[str, int]
    module_seconds: dict[str, float]
    mean_batch: dict[str, float]
    loop_seconds: float
    graph_seconds: float
    runtime_seconds: dict[str, float]

    @property
    def outside_share(self) -> float:
        return 1 - self.graph_seconds / self.loop_seconds if self.loop_seconds else 0.0


class StepClock:
    """Context manager around a step, and the counters."""

    def __init__(self, sessions: Mapping[str, Timed]) -> None:
        self._sessions = sessions
        self._worked = False
        self.reset()

    @property
    def worked(self) -> bool:
        """Whether any module ran in the last step."""
        return self._worked

    def reset(self) -> None:
        self._steps = 0
        self._loop_seconds = self._graph_seconds = 0.0
        self._batches = dict.fromkeys(MODULES, 0)
        self._rows = dict.fromkeys(MODULES, 0)
        self._module_seconds = dict.fromkeys(MODULES, 0.0)
        self._session_seconds = {name: session.seconds for name, session in self._sessions.items()}

    def count(self, module: str, rows: int) -> None:
        """A module is about to run on `rows` items."""
        self._batches[module] += 1
        self._rows[module] += rows
        self._worked = True

    def spent(self, module: str, seconds: float) -> None:
        """A module's run took `seconds`."""
        self._module_seconds[module] += seconds

    def __enter__(self) -> None:
        self._worked = False
        self._started, self._busy = time.perf_counter(), BUSY.seconds

    def __exit__(self, *_: object) -> None:
        if self._worked:
            self._steps += 1
            self._loop_seconds += time.perf_counter() - self._started
            self._graph_seconds += BUSY.seconds - self._busy

    def stats(self, active: int, slots_used: int, cache_positions: int, waiting: dict[str, int]) -> EngineStats:
        seconds = {name: session.seconds - self._session_seconds[name] for name, session in self._sessions.items()}
        batches, rows = dict(self._batches), dict(self._rows)
        mean = {name: rows[name] / count if count else 0.0 for name, count in batches.items()}
        return EngineStats(
            active,
            slots_used,
            cache_positions,
            self._steps,
            waiting,
            batches,
            rows,
            dict(self._module_seconds),
            mean,
            self._loop_seconds,
            self._graph_seconds,
            seconds,
        )
