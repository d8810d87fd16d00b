"""Speculation alone, by the size of the LM: the demo voice's, and LMs that say the same and cost more.

    python -m tests.benchmarks.by_size                    # writes results/speculation_by_size.json and .png

The larger LMs (`training.grow`) give the same tokens, so acceptance is the demo voice's and only costs differ: from
what size on speculation pays on this machine. Drafts at every step; each row is measured in turns with none.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tqdm import tqdm

from tests.benchmarks.speculation import BARS, SETTINGS, measure, speak
from training.grow import grow
from training.score import load_sentences
from tts_engine.config import EngineConfig
from tts_engine.engine import Engine
from tts_engine.voice import Voice

SIZES = ((6, 1024), (12, 2048), (16, 4096))  # layers, feed-forward columns; more take minutes to export
PAIRS = (
    ("medusa", "exact", (4, 8)),
    ("medusa", "tolerance", (8, 16)),
    ("medusa", "top_k", (4, 8, 16)),
    ("mtp", "exact", (2,)),
    ("mtp", "top_k", (2,)),
    ("mtp", "group", (2,)),
    ("draft", "group", (2, 4)),
)


def exported(layers: int, intermediate: int, work: Path) -> tuple[Path, int]:
    """The voice with an LM of that size, int8, and the LM's parameters."""
    checkpoints, voice = work / f"{layers}x{intermediate}", work / f"voice-{layers}x{intermediate}"
    parameters = grow(Path("checkpoints/rms"), checkpoints, layers, intermediate)
    command = [sys.executable, "-m", "export", "--checkpoints", str(checkpoints), "--out", str(voice)]
    subprocess.run([*command, "--variant", "int8"], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return voice, parameters


def rows_of(voice: Path, parameters: int, texts: list[str], rounds: int) -> list[dict[str, Any]]:
    engine = Engine(Voice.load(voice), EngineConfig(capacity=1))
    speak(engine, texts[:1], 1, {"speculation": "none"})
    rows = []
    for proposer, rule, counts in PAIRS:
        for nodes in counts:
            params = {"speculation": proposer, "acceptance": rule, "nodes": nodes, **SETTINGS[rule]}
            row = measure(engine, texts, 1, params, rounds)
            row["off_tokens_per_s"] = round(row["tokens_per_s"] / row["speedup"], 1)
            rows.append({"parameters": parameters, **row})
            tqdm.write(
                f"{parameters / 1e6:7.1f} M {proposer:8}{rule:11}{nodes:>4}{row['off_tokens_per_s']:>9.0f}"
                f"{row['tokens_per_s']:>9.0f}{row['speedup']:>8.2f}{row['acceptance_length']:>8.2f}"
            )
    return rows


def plot(rows: list[dict[str, Any]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4.5), layout="constrained")
    sizes = sorted({row["parameters"] for row in rows})
    for proposer, rule in dict.fromkeys((row["proposer"], row["rule"]) for row in rows):
        of = [row for row in rows if (row["proposer"], row["rule"]) == (proposer, rule)]
        best = [max(row["speedup"] for row in of if row["parameters"] == size) for size in sizes]
        axes.plot([size / 1e6 for size in sizes], best, marker="o", label=f"{proposer}, {rule}")
    axes.axhline(1, color="grey", linewidth=1)
    axes.set(xscale="log", xlabel="parameters of the LM, millions", ylabel="tokens a second ÷ without speculation")
    axes.set_title("Speculation by the size of its target (int8, CPU, one text alone)")
    axes.legend(fontsize="small")
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, default=len(SIZES), help="how many of them, the smallest first")
    parser.add_argument("--sentences", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=1, help="turns with and without speculation a row")
    parser.add_argument("--out", type=Path, default=Path("results"))
    args = parser.parse_args()
    texts = list(load_sentences(args.sentences).values())
    print("      size proposer rule      nodes  off tok/s   on tok/s  speedup  length")
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as work:
        for layers, intermediate in tqdm(SIZES[: args.sizes], desc="sizes", leave=False):
            rows += rows_of(*exported(layers, intermediate, Path(work)), texts, args.rounds)
    largest = max(row["parameters"] for row in rows)
    for rule, proposer, bound in BARS:
        best = [
            row["speedup"]
            for row in rows
            if row["rule"] == rule and proposer in (None, row["proposer"]) and row["parameters"] == largest
        ]
        print(f"{rule:12} at {largest / 1e6:.0f} M: {max(best):.2f} times, bar ≥ {bound}")
    args.out.mkdir(parents=True, exist_ok=True)
    plot(rows, args.out / "speculation_by_size.png")
    result = {"cores": os.cpu_count(), "rows": rows}
    (args.out / "speculation_by_size.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
