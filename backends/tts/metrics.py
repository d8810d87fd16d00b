"""Counters on Triton's own /metrics: its statistics count our errors and cancels as success, so we keep ours."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from typing import Any

import triton_python_backend_utils as pb_utils

from tts_engine.chunk import Timings
from tts_engine.stats import EngineStats

COUNTER, GAUGE, HISTOGRAM = "COUNTER", "GAUGE", "HISTOGRAM"  # of pb_utils.MetricFamily, which comes after import
SECONDS = [0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5]
FAMILIES: dict[str, tuple[str, str]] = {
    "tts_requests_total": (COUNTER, "Requests by outcome"),
    "tts_pool_items": (GAUGE, "Requests in flight"),
    "tts_module_items": (GAUGE, "Requests that wait for a module or are in it"),
    "tts_kv_slots_used": (GAUGE, "Slots of the key-value cache in use"),
    "tts_first_chunk_seconds": (HISTOGRAM, "Request to first audio"),
    "tts_chunk_gap_seconds": (HISTOGRAM, "From one chunk of a stream to the next"),
    "tts_underruns_total": (COUNTER, "Chunks that came after their listener, playing since the first, had run dry"),
    "tts_audio_seconds_total": (COUNTER, "Seconds of audio sent"),
    "tts_module_runs_total": (COUNTER, "Batches a module has run"),
    "tts_module_batch_items_total": (COUNTER, "Items in those batches"),
    "tts_module_seconds_total": (COUNTER, "Time in those batches"),
    "tts_draft_tokens_total": (COUNTER, "Tokens drafted for verification"),
    "tts_accepted_draft_tokens_total": (COUNTER, "Drafted tokens accepted"),
    "tts_acceptance_length": (HISTOGRAM, "Tokens a verification brought"),
}
BUCKETS = {"tts_acceptance_length": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 12.0]}  # others: SECONDS
EVERY_SECONDS = 0.1  # how often all this is told
Key = tuple[str, tuple[tuple[str, str], ...]]  # a metric's name and labels


class Metrics:
    """Prometheus names and units: seconds, totals, gauges of what is held now.

    What happens is noted, from any thread, and told to Triton by `tell`, which one thread calls: every operation on a
    metric is a round trip to the server's process, some with the interpreter's lock held.
    """

    def __init__(self, model: str) -> None:
        self._model = model
        family = pb_utils.MetricFamily
        self._families = {
            name: family(name=name, description=text, kind=getattr(family, kind))
            for name, (kind, text) in FAMILIES.items()
        }
        self._metrics: dict[Key, Any] = {}
        self._next = 0.0
        self._told: dict[Key, float] = {}  # levels, and the modules' sums
        self._lock = threading.Lock()  # of what has been noted since
        self._added: defaultdict[Key, float] = defaultdict(float)
        self._observed: defaultdict[Key, list[float]] = defaultdict(list)
        for name in ("tts_pool_items", "tts_kv_slots_used", "tts_first_chunk_seconds", "tts_chunk_gap_seconds",
                     "tts_underruns_total", "tts_audio_seconds_total"):  # fmt: skip
            self._metric(_key(name))  # there from the start, at zero

    def outcome(self, name: str) -> None:
        """Count a request that ended: a finish reason, "invalid", "rejected" or "timeout"."""
        self._add("tts_requests_total", 1, outcome=name)

    def first_chunk(self, seconds: float) -> None:
        self._observe("tts_first_chunk_seconds", [seconds])

    def later_chunk(self, gap: float, underrun: bool) -> None:
        """A chunk that was not a stream's first: seconds since the one before, and whether it came too late."""
        self._observe("tts_chunk_gap_seconds", [gap])
        if underrun:
            self._add("tts_underruns_total", 1)

    def ended(self, timings: Timings) -> None:
        """Audio of a request that ended, and its drafts by proposer and rule, where any were made."""
        self._add("tts_audio_seconds_total", timings.audio_s)
        if timings.total_draft_tokens:
            labels = {"proposer": timings.speculation, "rule": timings.acceptance}
            self._add("tts_draft_tokens_total", timings.total_draft_tokens, **labels)
            self._add("tts_accepted_draft_tokens_total", timings.total_accepted_draft_tokens, **labels)
            for tokens, count in enumerate(timings.acceptance_lengths, start=1):
                self._observe("tts_acceptance_length", [float(tokens)] * count, **labels)

    def due(self, idle: bool) -> bool:
        """Whether to tell now: when all is done, else now and then."""
        return idle or time.monotonic() >= self._next

    def tell(self, items: int, slots: int, stats: EngineStats) -> None:
        """Tell all that was noted, and what is held and the modules' counters now."""
        self._next = time.monotonic() + EVERY_SECONDS
        levels = {_key("tts_pool_items"): float(items), _key("tts_kv_slots_used"): float(slots)}
        levels |= {_key("tts_module_items", module=module): float(count) for module, count in stats.waiting.items()}
        with self._lock:
            added, self._added = self._added, defaultdict(float)
            observed, self._observed = self._observed, defaultdict(list)
        for name, values in (
            ("tts_module_runs_total", stats.batches),
            ("tts_module_batch_items_total", stats.rows),
            ("tts_module_seconds_total", stats.module_seconds),
        ):
            for module, value in values.items():
                key = _key(name, module=module)
                added[key] = value - self._told.get(key, 0.0)
                self._told[key] = value
        for key, value in added.items():
            if value or key not in self._metrics:
                self._metric(key).increment(value)
        for key, several in observed.items():
            for value in several:
                self._metric(key).observe(value)
        for key, value in levels.items():  # last, so that who sees an empty pool finds all counted
            if self._told.get(key) != value:
                self._metric(key).set(value)
                self._told[key] = value

    def _add(self, name: str, value: float, **labels: str) -> None:
        with self._lock:
            self._added[_key(name, **labels)] += value

    def _observe(self, name: str, values: list[float], **labels: str) -> None:
        with self._lock:
            self._observed[_key(name, **labels)] += values

    def _metric(self, key: Key) -> Any:
        if key not in self._metrics:
            name, labels = key
            more = {"buckets": BUCKETS.get(name, SECONDS)} if FAMILIES[name][0] == HISTOGRAM else {}
            self._metrics[key] = self._families[name].Metric(labels={"model": self._model, **dict(labels)}, **more)
        return self._metrics[key]


def _key(name: str, **labels: str) -> Key:
    return name, tuple(labels.items())
