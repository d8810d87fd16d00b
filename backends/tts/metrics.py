"""Counters on Triton's own /metrics: its statistics count our errors and cancels as success, so we keep ours."""

from __future__ import annotations

import time
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
EVERY_SECONDS = 0.2  # how often the modules' counters are told


class Metrics:
    """Prometheus names and units: seconds, totals, gauges of what is held now."""

    def __init__(self, model: str) -> None:
        self._model = model
        family = pb_utils.MetricFamily
        self._families = {
            name: family(name=name, description=text, kind=getattr(family, kind))
            for name, (kind, text) in FAMILIES.items()
        }
        self._metrics: dict[tuple[str, ...], Any] = {}
        self._told: dict[tuple[str, str], float] = {}
        self._next = 0.0
        for name in ("tts_pool_items", "tts_kv_slots_used", "tts_first_chunk_seconds", "tts_chunk_gap_seconds",
                     "tts_underruns_total", "tts_audio_seconds_total"):  # fmt: skip
            self._metric(name)  # there from the start, at zero

    def outcome(self, name: str) -> None:
        """Count a request that ended: a finish reason, "invalid", "rejected" or "timeout"."""
        self._metric("tts_requests_total", outcome=name).increment(1)

    def held(self, items: int, slots: int) -> None:
        self._metric("tts_pool_items").set(items)
        self._metric("tts_kv_slots_used").set(slots)

    def first_chunk(self, seconds: float) -> None:
        self._metric("tts_first_chunk_seconds").observe(seconds)

    def later_chunk(self, gap: float, underrun: bool) -> None:
        """A chunk that was not a stream's first: seconds since the one before, and whether it came too late."""
        self._metric("tts_chunk_gap_seconds").observe(gap)
        if underrun:
            self._metric("tts_underruns_total").increment(1)

    def audio(self, seconds: float) -> None:
        self._metric("tts_audio_seconds_total").increment(seconds)

    def modules_due(self, idle: bool) -> bool:
        """Whether to tell `modules` now: when all is done, else now and then, as it takes a tenth of a millisecond."""
        return idle or time.monotonic() >= self._next

    def modules(self, stats: EngineStats) -> None:
        """Counters of the modules."""
        self._next = time.monotonic() + EVERY_SECONDS
        for module, count in stats.waiting.items():
            self._metric("tts_module_items", module=module).set(count)
        for name, values in (
            ("tts_module_runs_total", stats.batches),
            ("tts_module_batch_items_total", stats.rows),
            ("tts_module_seconds_total", stats.module_seconds),
        ):
            for module, value in values.items():
                metric = self._metric(name, module=module)
                metric.increment(value - self._told.get((name, module), 0))
                self._told[name, module] = value

    def speculation(self, timings: Timings) -> None:
        """Drafts of a request that ended, by proposer and rule; nothing where none were made."""
        if not timings.total_draft_tokens:
            return
        labels = {"proposer": timings.speculation, "rule": timings.acceptance}
        self._metric("tts_draft_tokens_total", **labels).increment(timings.total_draft_tokens)
        self._metric("tts_accepted_draft_tokens_total", **labels).increment(timings.total_accepted_draft_tokens)
        length = self._metric("tts_acceptance_length", **labels)
        for tokens, count in enumerate(timings.acceptance_lengths, start=1):
            for _ in range(count):
                length.observe(tokens)

    def _metric(self, name: str, **labels: str) -> Any:
        key = (name, *labels.values())
        if key not in self._metrics:
            more = {"buckets": BUCKETS.get(name, SECONDS)} if FAMILIES[name][0] == HISTOGRAM else {}
            self._metrics[key] = self._families[name].Metric(labels={"model": self._model, **labels}, **more)
        return self._metrics[key]
