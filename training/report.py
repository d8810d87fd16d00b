"""Tables, files and the picture of an evaluation."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from training.score import SPEECH_RATIO, Row, wer

EQUAL_WER = 1.0  # points; closer than this 100 sentences cannot tell two systems apart


def print_rows(rows: Sequence[Row]) -> None:
    """One line a sentence: errors, seconds, what was written and what was heard."""
    for row in rows:
        print(f"{row.id:>6} {row.errors:2d}/{row.words:<2d} {row.seconds:5.2f} s  {row.text}  ->  {row.hypothesis}")


def print_summary(systems: Mapping[str, Sequence[Row]], bars: Mapping[str, float]) -> None:
    """The systems side by side with their bars (points above the teacher), then every sentence gone wrong."""
    base = wer(systems["teacher"])
    print(f"{'system':10} {'WER %':>7} {'above teacher':>14} {'bar':>6}   {'seconds':>8} {'gone wrong':>11}")
    for name, rows in systems.items():
        above = wer(rows) - base
        bar = f"{bars[name]:+.1f}" if name in bars else ""
        verdict = "" if name not in bars else "ok" if above <= bars[name] else "MISSED"
        wrong = sum(bool(row.faults) for row in rows)
        seconds = sum(row.seconds for row in rows)
        print(f"{name:10} {wer(rows):7.2f} {above:+14.2f} {bar:>6} {verdict:6} {seconds:4.0f} {wrong:11d}")
    for rows in systems.values():
        for row in rows:
            if row.faults:
                print(f"  {row.system} {row.id} {row.faults}: {row.text} -> {row.hypothesis} ({row.seconds:.1f} s)")


def print_variants(heard: Sequence[tuple[str, float, float]]) -> None:
    """(name, WER, audio seconds a second) of variants, and the fastest whose WER equals the best one's."""
    best = min(rate for _, rate, _ in heard)
    print(f"{'variant':14} {'WER %':>7} {'audio s/s':>10}")
    for name, rate, speed in heard:
        print(f"{name:14} {rate:7.2f} {speed:10.1f}")
    name = max((entry for entry in heard if entry[1] <= best + EQUAL_WER), key=lambda entry: entry[2])[0]
    print(f"fastest at equal word error rate (within {EQUAL_WER:g} point): {name}")


def write_results(
    out: Path, systems: Mapping[str, Sequence[Row]], bars: Mapping[str, float], settings: Mapping[str, Any]
) -> None:
    """quality.json, quality_rows.csv and quality.png under `out`."""
    out.mkdir(parents=True, exist_ok=True)
    rates = {name: wer(rows) for name, rows in systems.items()}
    figures = {f"wer_{name}": round(rate, 2) for name, rate in rates.items()}
    figures |= {"sentences": len(systems["teacher"])}
    figures |= {f"gone_wrong_{name}": sum(bool(row.faults) for row in rows) for name, rows in systems.items()}
    figures |= {f"bar_{name}": round(rates["teacher"] + points, 2) for name, points in bars.items()}
    (out / "quality.json").write_text(json.dumps(figures | dict(settings), indent=2) + "\n", encoding="utf-8")
    with (out / "quality_rows.csv").open("w", newline="", encoding="utf-8") as file:
        table = [asdict(row) for rows in systems.values() for row in rows]
        writer = csv.DictWriter(file, list(table[0]), lineterminator="\n")
        writer.writeheader()
        for fields in table:
            writer.writerow({k: round(v, 3) if isinstance(v, float) else v for k, v in fields.items()})
    draw(out / "quality.png", systems)
    print(f"wrote {out / 'quality.json'}, quality_rows.csv, quality.png")


def draw(picture: Path, systems: Mapping[str, Sequence[Row]]) -> None:
    """Left: errors of every sentence, sorted by the teacher's. Right: seconds of speech against the teacher's."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    teacher = systems["teacher"]
    order = sorted(range(len(teacher)), key=lambda i: teacher[i].wer)
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4))
    limit = 1.15 * max(row.speech_seconds for rows in systems.values() for row in rows)
    for name, rows in systems.items():
        left.step(range(len(order)), [rows[i].wer for i in order], label=f"{name} {wer(rows):.1f} %", alpha=0.8)
        if name != "teacher":
            spoken = [row.speech_seconds for row in rows]
            right.scatter([row.speech_seconds for row in teacher], spoken, s=10, label=name)
    for ratio in SPEECH_RATIO:
        right.plot([0, limit], [0, ratio * limit], color="grey", linewidth=0.7, linestyle="--")
    left.set(xlabel="sentence, sorted by the teacher", ylabel="word error rate %")
    right.set(xlabel="teacher, seconds of speech", ylabel="seconds of speech", xlim=(0, limit), ylim=(0, limit))
    for axis in (left, right):
        axis.legend()
        axis.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(picture, dpi=90)
    plt.close(figure)
