"""Rows of the export's table: what was measured, against which bar, at what speed."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from export.errors import ExportError


@dataclass(frozen=True)
class Gate:
    """One measurement. `bar` is the largest value that passes (None: for information).

    ms: of one call, where the row has a speed; rtf: that time over the time of the audio the call makes.
    """

    graph: str
    what: str
    value: float
    bar: float | None = None
    ms: float | None = None
    rtf: float | None = None

    @property
    def passed(self) -> bool:
        return self.bar is None or self.value <= self.bar  # NaN fails


def require(gates: Sequence[Gate]) -> None:
    """ExportError naming every gate that failed."""
    failed = [f"{gate.graph} {gate.what} is {gate.value:.3g}, bar {gate.bar:g}" for gate in gates if not gate.passed]
    if failed:
        raise ExportError("parity gate failed: " + "; ".join(failed))


def milliseconds(call: Callable[[], object], runs: int = 10) -> float:
    """Median wall time of a call in ms, after two warm-up calls."""
    times = []
    for _ in range(runs + 2):
        started = time.perf_counter()
        call()
        times.append(time.perf_counter() - started)
    return float(np.median(times[2:])) * 1e3


def table(gates: Sequence[Gate]) -> str:
    """The rows as aligned text."""

    def number(value: float | None, form: str) -> str:
        return "" if value is None else format(value, form)

    rows = [("graph", "gate", "value", "bar", "", "ms/call", "RTF")]
    for gate in gates:
        verdict = "" if gate.bar is None else "ok" if gate.passed else "FAILED"
        speed = number(gate.ms, ".2f"), number(gate.rtf, ".4f")
        rows.append((gate.graph, gate.what, number(gate.value, ".3g"), number(gate.bar, "g"), verdict, *speed))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [
            cell.ljust(width) if column in (0, 1, 4) else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(lines)
