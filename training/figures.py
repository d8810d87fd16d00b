"""Write the README's table of figures from results/*.json.

python -m training.figures             # rewrites what stands between the two markers
python -m training.figures --check     # exits 1 when the README is out of step
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from statistics import mean, median
from typing import Any

START, END = "<!-- figures:start -->", "<!-- figures:end -->"
README, RESULTS = Path("README.md"), Path("results")


def _quality_lines(q: dict[str, Any]) -> list[str]:
    command = "`make evaluate`"

    def points(system: str) -> str:
        return f"≤ {q[f'bar_{system}']:.1f} %" if f"bar_{system}" in q else ""

    def wrong(system: str) -> str:
        return f"{q[f'gone_wrong_{system}']} of {q['sentences']}"

    return [
        f"| Word error rate, {q['sentences']} Harvard sentences: teacher | {q['wer_teacher']:.1f} % | | {command} |",
        f"| … codec re-synthesis | {q['wer_codec']:.1f} % | {points('codec')} | {command} |",
        f"| … text-to-speech | {q['wer_tts']:.1f} % | {points('tts')} | {command} |",
        f"| Sentences cut, looped or silent | {wrong('tts')} | 0 | {command} |",
    ]


def _engine_lines(e: dict[str, Any]) -> list[str]:
    command = f"`make bench`, {e['cores']} cores"
    lines = [
        f"| First chunk, p50, alone | {e['first_chunk_ms_p50_alone']:.0f} ms | ≤ 60 ms | {command} |",
        f"| First chunk, p50, 4 at once ÷ alone | {e['first_chunk_slope_4']:.2f} times | ≤ 2 times | {command} |",
        f"| Throughput at 16 ÷ eager PyTorch | {e['throughput_vs_sequential_16']:.1f} times | ≥ 4 times | {command} |",
        f"| Loop time outside the graph runtime at 8 | {e['outside_runtime_share_8']:.1f} % | ≤ 15 % | {command} |",
    ]
    for row in e["rows"]:
        if row["path"] == "triton burst" and row["concurrent"] == 1:
            first = f"{row['first_chunk_ms_p50']:.0f} ms"
            lines.append(f"| First chunk through Triton, p50, alone | {first} | | {command} |")
    best = max((row for row in e["rows"] if row["path"] == "engine"), key=lambda row: row["audio_s_per_s"])
    lines.append(
        f"| Most audio a second ({best['concurrent']} at a time) | {best['audio_s_per_s']:.1f} s "
        f"({best['tokens_per_s']:.0f} tokens) | | {command} |"
    )
    return lines


FIRST_CHUNK_BARS = {60: 95, 30: 93, 10: 90}  # by load
QUALITY_BAR = 1.5  # points of word error rate that a lossy rule may add
SPEED_BARS = {"exact": 1.3, "tolerance": 2.0, "group": 1.6, "top_k": 1.6}


def _speculation_lines(s: dict[str, Any]) -> list[str]:
    command = f"`make bench-speculation`, {s['cores']} cores"
    lines = []
    alone = [row for row in s["rows"] if row["concurrency"] == 1 and row["acceptance_length"] > 1]
    largest: dict[str, int] = {}
    for row in alone:
        if "parameters" in row:
            largest[row["arithmetic"]] = max(row["parameters"], largest.get(row["arithmetic"], 0))
    for rule in s["best"]:
        bar = f"≥ {SPEED_BARS[rule]:g} times" if rule in SPEED_BARS else ""
        sizes: dict[tuple[Any, Any], str] = {(None, None): f"Drafting at every step, one text alone, `{rule}`"}
        for arithmetic, size in largest.items():
            grown = f"… with {size / 1e6:.0f} M {arithmetic} parameters that say the same"
            sizes[size, arithmetic] = f"{grown} (`make bench-size`)"
        for key, meaning in sizes.items():
            some = [row for row in alone if (row["rule"], row.get("parameters"), row.get("arithmetic")) == (rule, *key)]
            if some:
                row = max(some, key=lambda row: row["speedup"])
                lines.append(
                    f"| {meaning}: best is {row['proposer']}, {row['nodes']} nodes, {row['acceptance_length']:.2f} "
                    f"tokens a verification | {row['speedup']:.2f} times | {bar} | {command} |"
                )
    for level in sorted({row["concurrency"] for row in s["rows"]}):
        speeds = [
            row["speedup"]
            for row in s["rows"]
            if row["concurrency"] == level and row["proposer"] != "none" and row["nodes"] == "auto"
        ]
        (noise,) = (row["speedup"] for row in s["rows"] if row["concurrency"] == level and row["proposer"] == "none")
        lines.append(
            f"| Speculation, adaptive depth at {level}, median of {len(speeds)} pairs (none against none: {noise:.2f}) "
            f"| {median(speeds):.2f} times | ≥ 0.98 times | {command} |"
        )
    return lines


def _speculation_quality_lines(q: dict[str, Any]) -> list[str]:
    rows = [row for row in q["rows"] if row["default"]]
    off = next(row for row in rows if row["proposer"] == "none")
    exact = [row["wer"] for row in rows if row["rule"] == "exact" and row is not off]
    others = [row for row in rows if row["rule"] != "exact"]
    if not exact or not others:
        return []
    worst = max(others, key=lambda row: row["wer"])
    command, seeds = "`make evaluate-speculation`", len(off["wer_by_seed"])
    return [
        f"| Word error rate without speculation, mean of {seeds} seeds | {off['wer']:.1f} % | | {command} |",
        f"| … with `exact`, mean of its {len(exact)} proposers | {mean(exact):.1f} % | as without | {command} |",
        f"| … with other rules at their defaults, the worst of {len(others)}: {worst['proposer']} with "
        f"`{worst['rule']}` | {worst['wer']:.1f} % | ≤ {off['wer'] + QUALITY_BAR:.1f} % | {command} |",
    ]


def _load_lines(load: dict[str, Any]) -> list[str]:
    """What was not measured (`--quick`) is left out."""
    rates = f"{load['max_rate_pooled']:g}, {load['max_rate_twin']:g} requests/s"
    figures = [
        *(
            (f"First chunk, mean, at {share} % of the twin's saturation: sooner than the twin's by",
             load[f"fcl_reduction_{share}"], "{:.1f} %", f"≥ {bar} %")
            for share, bar in FIRST_CHUNK_BARS.items()
        ),
        ("Highest rate with p99 first chunk ≤ 100 ms and no gap: pooled, twin", rates, "{}", "≥ 2.5 times"),
        ("Underruns below 80 % of saturation", load["underruns_below_80"], "{}", "0"),
        ("First chunk through Triton, p50, 4 at once ÷ alone", load["slope_4"], "{:.2f} times", "≤ 1.8 times"),
        ("… 32 at once ÷ alone", load["slope_32"], "{:.2f} times", "≤ 4.5 times"),
        ("… and without speculation", load.get("slope_32_plain"), "{:.2f} times", "≤ 4.5 times"),
        ("Triton's share of the first chunk, p50", load["triton_overhead_ms_p50"], "{:.1f} ms", "≤ 3 ms"),
    ]  # fmt: skip
    command = f"`make loadtest`, {load['cores']} cores"
    return [
        f"| {meaning} | {form.format(value)} | {bar} | {command} |"
        for meaning, value, form, bar in figures
        if value is not None
    ]


def table(results: Path) -> str:
    """The Markdown table of whatever result files there are, without the markers; FileNotFoundError if none."""
    lines = ["| figure | measured | bar | command |", "|---|---|---|---|"]
    for name, render in (
        ("quality.json", _quality_lines),
        ("engine.json", _engine_lines),
        ("speculation.json", _speculation_lines),
        ("speculation_quality.json", _speculation_quality_lines),
        ("load.json", _load_lines),
    ):
        if (results / name).exists():
            lines += render(json.loads((results / name).read_text(encoding="utf-8")))
    if len(lines) == 2:
        raise FileNotFoundError(f"no figures in {results}: run `make evaluate` and `make bench` first")
    return "\n".join(lines) + "\n"


def replaced(readme: str, figures: str) -> str:
    """`readme` with `figures` between its markers; ValueError when a marker is missing."""
    if readme.count(START) != 1 or readme.count(END) != 1 or readme.index(START) > readme.index(END):
        raise ValueError(f"README needs one line {START} and below it one line {END}")
    head, rest = readme.split(START)
    return f"{head}{START}\n{figures}{END}{rest.split(END)[1]}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing; fail when out of step")
    args = parser.parse_args()
    try:
        before = README.read_text(encoding="utf-8")
        after = replaced(before, table(RESULTS))
    except (FileNotFoundError, ValueError) as error:
        raise SystemExit(str(error)) from error
    if args.check:
        if before != after:
            raise SystemExit("README.md is out of step with results/: run `python -m training.figures`")
        return
    README.write_text(after, encoding="utf-8")
    print(f"wrote the figures into {README}")


if __name__ == "__main__":
    main()
