"""Counters on Triton's own /metrics: its statistics count our errors and cancels as success, so we keep ours."""

from __future__ import annotations

from typing import Any

import triton_python_backend_utils as pb_utils

from tts_engine.chunk import Timings

ACCEPTANCE_LENGTHS = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 12.0]
FIRST_CHUNK_BUCKETS = [0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5]


class Metrics:
    """Prometheus names and units: seconds, totals, gauges of what is held now."""

    def __init__(self, model: str) -> None:
        family = pb_utils.MetricFamily
        self._labels = {"model": model}
        self._requests = family(name="tts_requests_total", description="Requests by outcome", kind=family.COUNTER)
        self._outcomes: dict[str, Any] = {}
        self._items = self._gauge("tts_pool_items", "Requests in flight")
        self._slots = self._gauge("tts_kv_slots_used", "Slots of the key-value cache in use")
        self._first_family = family(
            name="tts_first_chunk_seconds", description="Request to first audio", kind=family.HISTOGRAM
        )
        self._first = self._first_family.Metric(labels=self._labels, buckets=FIRST_CHUNK_BUCKETS)
        self._audio_family = family(
            name="tts_audio_seconds_total", description="Seconds of audio sent", kind=family.COUNTER
        )
        self._audio = self._audio_family.Metric(labels=self._labels)
        self._drafted_family = family(
            name="tts_draft_tokens_total", description="Tokens drafted for verification", kind=family.COUNTER
        )
        self._accepted_family = family(
            name="tts_accepted_draft_tokens_total", description="Drafted tokens accepted", kind=family.COUNTER
        )
        self._length_family = family(
            name="tts_acceptance_length", description="Tokens a verification brought", kind=family.HISTOGRAM
        )
        self._speculation: dict[tuple[str, str], tuple[Any, Any, Any]] = {}

    def _gauge(self, name: str, description: str) -> Any:
        family = pb_utils.MetricFamily(name=name, description=description, kind=pb_utils.MetricFamily.GAUGE)
        setattr(self, f"_{name}_family", family)  # a metric lives no longer than its family
        return family.Metric(labels=self._labels)

    def outcome(self, name: str) -> None:
        """Count a request that ended: a finish reason, "invalid" or "rejected"."""
        if name not in self._outcomes:
            self._outcomes[name] = self._requests.Metric(labels={**self._labels, "outcome": name})
        self._outcomes[name].increment(1)

    def held(self, items: int, slots: int) -> None:
        self._items.set(items)
        self._slots.set(slots)

    def first_chunk(self, seconds: float) -> None:
        self._first.observe(seconds)

    def speculation(self, timings: Timings) -> None:
        """Drafts of a request that ended, by proposer and rule; nothing where none were made."""
        if not timings.total_draft_tokens:
            return
        key = timings.speculation, timings.acceptance
        if key not in self._speculation:
            labels = {**self._labels, "proposer": key[0], "rule": key[1]}
            self._speculation[key] = (
                self._drafted_family.Metric(labels=labels),
                self._accepted_family.Metric(labels=labels),
                self._length_family.Metric(labels=labels, buckets=ACCEPTANCE_LENGTHS),
            )
        drafted, accepted, length = self._speculation[key]
        drafted.increment(timings.total_draft_tokens)
        accepted.increment(timings.total_accepted_draft_tokens)
        for tokens, count in enumerate(timings.acceptance_lengths, start=1):
            for _ in range(count):
                length.observe(tokens)

    def audio(self, seconds: float) -> None:
        self._audio.increment(seconds)
