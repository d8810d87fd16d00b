"""results/load/: report.md and report.html with the same tables and plots, raw.jsonl with every request."""

from __future__ import annotations

import html
import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from loadtest.figures import figures, ratios, verdicts
from loadtest.plots import latency, real_time_factor
from loadtest.records import Row
from loadtest.sweep import BOUND_MS, SPECULATION, Plan, Results

STATISTICS = ("mean", "p50", "p95", "p99")
HEARD = ("underruns", "worst stall ms", "continuity OK", "refused", "failed", "mean batch")
STYLE = """body{font:15px/1.5 system-ui,sans-serif;max-width:75em;margin:2em auto;padding:0 1em}
table{border-collapse:collapse;margin:1em 0;font-size:13px}
td,th{border:1px solid #ccc;padding:.2em .6em;text-align:right}
td:first-child,th:first-child{text-align:left}svg{max-width:100%;height:auto}"""


@dataclass(frozen=True)
class Table:
    """A heading, what it shows, columns, rows; a plot below, if there is one."""

    title: str
    text: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    plot: str | None = None

    def markdown(self) -> str:
        lines = [self.columns, ["---"] * len(self.columns), *self.rows]
        table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
        plot = f"\n\n![{self.title}]({self.plot})" if self.plot else ""
        return f"## {self.title}\n\n{self.text}\n\n{table}{plot}\n"

    def html(self, folder: Path) -> str:
        def line(cells: Sequence[str], tag: str) -> str:
            return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells) + "</tr>"

        rows = "\n".join([line(self.columns, "th"), *(line(row, "td") for row in self.rows)])
        plot = (folder / self.plot).read_text(encoding="utf-8") if self.plot else ""
        plot = plot[plot.find("<svg") :]  # without the XML prologue, which HTML does not have
        return f"<h2>{html.escape(self.title)}</h2><p>{html.escape(self.text)}</p><table>{rows}</table>{plot}"


def _cell(value: Any) -> str:
    return "-" if value is None else f"{value:g}" if isinstance(value, float | int) else str(value)


def _latencies(row: Row) -> list[str]:
    return [" / ".join(_cell(row[name].get(p)) for p in STATISTICS) for name in ("fcl_ms", "lcl_ms", "rtf")]


def _heard(row: Row) -> list[str]:
    batches = ", ".join(f"{module} {size:g}" for module, size in row["mean_batch"].items())
    values = (row[name] for name in ("underruns", "worst_stall_ms", "continuity_ok", "rejected", "failed"))
    return [*map(_cell, values), batches or "-"]


def _rows(results: Results, columns: Sequence[str], experiments: Iterable[str], **wanted: Any) -> list[list[str]]:
    chosen = [row for name in experiments for row, _ in results.find(experiment=name, **wanted)]
    return [[*(_cell(row.get(name)) for name in columns), *_latencies(row), *_heard(row)] for row in chosen]


def _quartiles(values: Sequence[float], form: str) -> str:
    if not values:
        return "-"
    low, middle, high = (format(value, form) for value in np.percentile(values, (25, 50, 75)))
    return f"{middle} [{low}, {high}]"


def _bursts(results: Results) -> list[list[str]]:
    lines = []
    widths = sorted({row["together"] for row, _ in results.find(experiment="bursts")})
    for speculation, together in product(SPECULATION, widths):
        found = results.find(experiment="bursts", speculation=speculation, together=together)
        chunks = [row["fcl_ms"] for row, _ in found if row["fcl_ms"]]
        times = [_quartiles([chunk[name] for chunk in chunks], ".1f") for name in ("p50", "mean", "p95")]
        slopes = _quartiles(ratios(results, together, speculation), ".2f")
        lines.append([speculation, str(together), str(len(found)), *times, slopes])
    return lines


def tables(results: Results, plan: Plan) -> list[Table]:
    """All of the report, in order."""
    saturation = ", ".join(f"{name} {rate:g} requests/s" for name, rate in results.saturation.items())
    heads = [f"{name} ({' / '.join(STATISTICS)})" for name in ("first chunk ms", "last chunk ms", "RTF")]
    latency_heads = [*heads, *HEARD]
    return [
        Table(
            "Figures",
            f"{os.cpu_count()} cores, the load generator on the same ones; {plan.capacity} requests in flight at most. "
            f"Saturation (closed loops, mixed texts): {saturation}. In time means p99 first chunk ≤ {BOUND_MS:g} ms. "
            + steadiness(results),
            ("figure", "value", "bar", ""),
            verdicts(figures(results)),
        ),
        Table(
            "Latency by rate, mixed texts",
            "Open loop, Poisson; share: % of the twin's saturation (last line: 79 % of pooled's own, measured anew). "
            "The twin answers once: its first chunk is its last. Stalls as heard by who starts playing with the first "
            "chunk.",
            ("server", "share", "rate", *latency_heads),
            _rows(results, ("server", "share", "rate"), ["rates"], kind="mixed")
            + _rows(results, ("server", "share", "rate"), ["below"]),
            "latency.svg",
        ),
        Table(
            "Real-time factor by rate and length of text",
            "Last chunk ÷ duration of the audio.",
            ("server", "texts", "share", "rate", "duration s", *latency_heads),
            [
                line
                for kind in ("short", "medium", "long")
                for line in _rows(results, ("server", "kind", "share", "rate", "duration_s"), ["rates"], kind=kind)
            ],
            "rtf.svg",
        ),
        Table(
            "At 70 % of the twin's saturation",
            "The paper's table 1. The vocoder is causal and needs no overlap; the chunk sizes are what varies instead.",
            ("server", "texts", "chunks", "duration s", *latency_heads),
            _rows(results, ("server", "kind", "chunks", "duration_s"), ["rates", "chunks"], share=70),
        ),
        Table(
            "Bursts",
            "So many short texts at one instant, the pooled server silent before; in turns, each without speculation "
            "and with Medusa heads, whose depth adapts to the crowd. Medians over the turns, quartiles in brackets.",
            ("speculation", "at once", "turns", "first chunk ms, p50", "mean", "p95", "p50 ÷ alone"),
            _bursts(results),
        ),
        Table(
            "Highest sustainable rate",
            f"Bisection; held: p99 first chunk ≤ {BOUND_MS:g} ms, no underrun, nothing refused.",
            ("server", "rate", "held", *latency_heads),
            _rows(results, ("server", "rate", "held"), ["sustainable"]),
        ),
        Table(
            "By outside tools",
            "perf_analyzer (one seed for all, so durations differ a little) and locust (a closed loop of users). "
            + " ".join(results.notes),
            ("tool", "server", "rate", "distribution", "concurrency", *latency_heads),
            _rows(
                results, ("experiment", "server", "rate", "distribution", "concurrency"), ["perf_analyzer", "locust"]
            ),
        ),
    ]


def steadiness(results: Results) -> str:
    """What was measured before each row of the machine alone: busy neighbours make slow rows."""
    rows = [row for row in results.rows if "gigaflops" in row]
    if not rows:
        return ""

    def quartiles(name: str) -> str:
        return " / ".join(f"{value:.3g}" for value in np.percentile([row[name] for row in rows], (0, 25, 50, 75, 100)))

    return (
        f"The machine's own speed before each row (least, quartiles, most): matrix products {quartiles('gigaflops')} "
        f"GFLOP/s, reading its last cache {quartiles('cache_gb_s')} GB/s."
    )


def write(results: Results, plan: Plan, directory: Path, quick: bool) -> Row:
    """Write directory/load.json and directory/load/; what load.json holds."""
    folder = directory / "load"
    folder.mkdir(parents=True, exist_ok=True)
    latency(results.rows, folder / "latency.svg")
    real_time_factor(results.rows, folder / "rtf.svg")
    shown = tables(results, plan)
    title = "Under load: pooled incremental serving and its non-incremental twin"
    markdown = "\n".join([f"# {title}\n", *(table.markdown() for table in shown)])
    (folder / "report.md").write_text(markdown, encoding="utf-8")
    body = "\n".join(table.html(folder) for table in shown)
    page = f'<!doctype html><meta charset="utf-8"><title>{title}</title><style>{STYLE}</style><h1>{title}</h1>{body}\n'
    (folder / "report.html").write_text(page, encoding="utf-8")
    with (folder / "raw.jsonl").open("w", encoding="utf-8") as raw:
        for number, records in enumerate(results.records):
            for record in records:
                raw.write(json.dumps({"row": number, **record.to_dict()}, separators=(",", ":")) + "\n")
    result = {
        **figures(results),
        "saturation": results.saturation,
        "cores": os.cpu_count(),
        "capacity": plan.capacity,
        "quick": quick,
        "notes": results.notes,
        "rows": results.rows,
    }
    (directory / "load.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return result
