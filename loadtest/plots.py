"""The paper's two figures, from our rows, as SVG."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from loadtest.records import Row
from loadtest.texts import KINDS

COLOURS = {"pooled": "tab:blue", "twin": "tab:red"}
STYLES = dict(zip(KINDS, (":", "--", "-.", "-"), strict=True))


def _axes(ylabel: str) -> tuple[Figure, Any]:
    matplotlib.rcParams["svg.hashsalt"] = "loadtest"  # the same rows give the same file
    figure = Figure(figsize=(7.5, 4.2), layout="constrained")
    axes = figure.subplots()
    axes.set_xlabel("requests a second")
    axes.set_ylabel(ylabel)
    axes.set_yscale("log")
    axes.grid(True, which="both", alpha=0.25)
    return figure, axes


def _lines(axes: Any, rows: Sequence[Row], figure: str, statistic: str, **style: Any) -> None:
    points = sorted((row["rate"], row[figure][statistic]) for row in rows if row[figure])
    axes.plot(*zip(*points, strict=True), marker="o", markersize=3, **style) if points else None


def _of(rows: Sequence[Row], server: str, kind: str) -> list[Row]:
    return [row for row in rows if (row["server"], row["experiment"], row["kind"]) == (server, "rates", kind)]


def latency(rows: Sequence[Row], path: Path) -> None:
    """Figure 3: mean and p99 first chunk, mean last chunk by rate, mixed texts; the twin's two are one."""
    figure, axes = _axes("milliseconds")
    for server, colour in COLOURS.items():
        mixed = _of(rows, server, "mixed")
        _lines(axes, mixed, "fcl_ms", "mean", color=colour, label=f"{server}: first chunk, mean")
        _lines(axes, mixed, "fcl_ms", "p99", color=colour, linestyle=":", label=f"{server}: first chunk, p99")
        if server == "pooled":
            _lines(axes, mixed, "lcl_ms", "mean", color=colour, linestyle="--", label=f"{server}: last chunk, mean")
    axes.legend(fontsize=8)
    figure.savefig(path, metadata={"Date": None})


def real_time_factor(rows: Sequence[Row], path: Path) -> None:
    """Figure 4: mean real-time factor by rate, for each length of text."""
    figure, axes = _axes("real-time factor (last chunk ÷ duration)")
    for server, colour in COLOURS.items():
        for kind, style in STYLES.items():
            _lines(
                axes, _of(rows, server, kind), "rtf", "mean", color=colour, linestyle=style, label=f"{server}: {kind}"
            )
    axes.legend(fontsize=8, ncols=2)
    figure.savefig(path, metadata={"Date": None})
