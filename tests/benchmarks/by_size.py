"""Speculation alone, by the size of the LM: the demo voice's, and LMs that say the same and cost more.

    python -m tests.benchmarks.by_size                    # adds its rows to results/speculation.json; draws a picture

The larger LMs (`training.grow`) give the same tokens, so acceptance is the demo voice's and only costs differ: from
what size on speculation pays on this machine. Drafts at every step; each row is measured in turns with none, and every
size with the threads a graph run that serve it best without speculation.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import onnx
from tqdm import tqdm

from export.checkpoint import Checkpoint
from export.lm import build_lm
from export.quantize import VARIANTS
from tests.benchmarks.speculation import BARS, LENGTH_BAR, SETTINGS, best_of, measure, speak
from training.grow import grow
from training.score import load_sentences
from tts_engine.config import EngineConfig
from tts_engine.engine import Engine
from tts_engine.voice import Voice

CORES = os.cpu_count() or 1
# layers, feed-forward columns, arithmetic, threads a graph run, most nodes that are tried. ONNX Runtime's int8 products
# take six rows at a time, so that 5 and 11 nodes (and the committed token) fill them: 12 rows cost a tenth more than 9.
SIZES = (
    (6, 1024, "int8", 1, 64),
    (16, 4096, "int8", CORES, 16),
    (24, 12288, "int8", CORES, 11),
    (24, 16384, "int8", CORES, 11),
    (24, 12288, "fp32", CORES, 11),
    (24, 16384, "fp32", CORES, 11),
)
PAIRS = (
    ("medusa", "exact", (5, 8)),
    ("medusa", "tolerance", (5, 8, 11, 16, 64)),
    ("medusa", "top_k", (8, 16)),
    ("mtp", "exact", (2,)),
    ("mtp", "top_k", (2,)),
    ("mtp", "group", (2,)),
)


def grown_voice(source: Path, layers: int, intermediate: int, arithmetic: str, work: Path) -> tuple[Path, int]:
    """The served voice with an LM of that size and arithmetic, and the LM's parameters."""
    checkpoints, voice = work / f"{layers}x{intermediate}", work / f"voice-{layers}x{intermediate}"
    parameters = grow(Path("checkpoints/rms"), checkpoints, layers, intermediate)
    shutil.copytree(source, voice, ignore=shutil.ignore_patterns("variants", "lm.onnx"))
    onnx.save(VARIANTS[arithmetic](build_lm(Checkpoint(checkpoints / "lm"))), voice / "lm.onnx")
    shutil.rmtree(checkpoints)
    manifest = json.loads((voice / "voice.json").read_text(encoding="utf-8"))
    manifest["layers"] = layers
    manifest["files"]["lm"]["sha256"] = hashlib.sha256((voice / "lm.onnx").read_bytes()).hexdigest()
    (voice / "voice.json").write_text(json.dumps(manifest), encoding="utf-8")
    return voice, parameters


def plain_rates(engines: dict[int, Engine], texts: list[str]) -> dict[int, float]:
    """Tokens a second without speculation by threads a graph run, in turns."""
    rates: dict[int, list[float]] = {threads: [] for threads in engines}
    for _ in range(4):
        for threads, engine in engines.items():
            run = speak(engine, texts, 1, {"speculation": "none"})
            rates[threads].append(run.tokens / run.seconds)
    return {threads: round(max(some), 1) for threads, some in rates.items()}


def rows_of(
    voice: Path, parameters: int, arithmetic: str, threads: int, most: int, texts: list[str], rounds: int
) -> list[dict[str, Any]]:
    engines = {
        some: Engine(Voice.load(voice), EngineConfig(capacity=1, threads=CORES, graph_threads=some))
        for some in sorted({1, threads})
    }
    if len(engines) > 1:
        rates = plain_rates(engines, texts[:2])
        shown = ", ".join(f"{rate:g} with {some}" for some, rate in rates.items())
        tqdm.write(f"{parameters / 1e6:7.1f} M {arithmetic} plain tokens/s by threads a graph run: {shown}")
    engine = engines.pop(threads)
    engines.clear()
    rows = []
    for proposer, rule, counts in PAIRS:
        for nodes in (count for count in counts if count <= most):
            params = {"speculation": proposer, "acceptance": rule, "nodes": nodes, **SETTINGS[rule]}
            row = measure(engine, texts, 1, params, rounds)
            row["off_tokens_per_s"] = round(row["tokens_per_s"] / row["speedup"], 1)
            rows.append({"parameters": parameters, "arithmetic": arithmetic, "graph_threads": threads, **row})
            tqdm.write(
                f"{parameters / 1e6:7.1f} M {arithmetic} {threads:7} {proposer:8}{rule:11}{nodes:>4}"
                f"{row['off_tokens_per_s']:>9.0f}{row['tokens_per_s']:>9.0f}{row['speedup']:>8.2f}{row['acceptance_length']:>8.2f}"
            )
    return rows


def plot(rows: list[dict[str, Any]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4.5), layout="constrained")
    for number, (proposer, rule) in enumerate(dict.fromkeys((row["proposer"], row["rule"]) for row in rows)):
        for arithmetic, line in (("int8", "-"), ("fp32", ":")):
            best: dict[int, float] = {}
            for row in rows:
                if (row["proposer"], row["rule"], row["arithmetic"]) == (proposer, rule, arithmetic):
                    best[row["parameters"]] = max(row["speedup"], best.get(row["parameters"], 0))
            sizes = sorted(best)
            label = f"{proposer}, {rule}" if arithmetic == "int8" else None
            axes.plot([size / 1e6 for size in sizes], [best[size] for size in sizes],
                      line, marker="o", color=f"C{number}", label=label)  # fmt: skip
    axes.axhline(1, color="grey", linewidth=1)
    axes.set(xscale="log", xlabel="parameters of the LM, millions", ylabel="tokens a second ÷ without speculation")
    axes.set_title("Speculation by the size of its target (CPU, one text alone; int8, dotted: fp32)")
    axes.legend(fontsize="small")
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--voice", type=Path, default=Path("model_repository/tts/1"), help="served voice directory")
    parser.add_argument("--sizes", type=int, nargs="+", default=[*range(len(SIZES))], choices=range(len(SIZES)),
                        help="which of them, 0 the smallest (default: all); rows of the others are kept")  # fmt: skip
    parser.add_argument("--sentences", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=1, help="turns with and without speculation a row")
    parser.add_argument("--out", type=Path, default=Path("results"))
    args = parser.parse_args()
    texts = list(load_sentences(args.sentences).values())
    print("     size      threads proposer rule      nodes  off tok/s   on tok/s  speedup  length")
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as work:
        for layers, intermediate, arithmetic, threads, most in tqdm(
            [SIZES[size] for size in args.sizes], desc="sizes", leave=False
        ):
            voice, parameters = grown_voice(args.voice, layers, intermediate, arithmetic, Path(work))
            rows += rows_of(voice, parameters, arithmetic, threads, most, texts, args.rounds)
            shutil.rmtree(voice)
    args.out.mkdir(parents=True, exist_ok=True)
    path = args.out / "speculation.json"
    result: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"rows": []}
    wer = {(row["proposer"], row["rule"]): row["wer"] for row in result["rows"] if row.get("wer") is not None}
    for row in rows:  # an LM that says the same errs the same
        row["wer"] = wer.get((row["proposer"], row["rule"]))
    measured = {(row["parameters"], row["arithmetic"]) for row in rows}
    result["rows"] = [
        row for row in result["rows"] if (row.get("parameters"), row.get("arithmetic")) not in measured
    ] + rows
    result["best"] = best_of(result["rows"])
    path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    sized = [row for row in result["rows"] if "parameters" in row]
    plot(sized, args.out / "speculation_by_size.png")
    for rule, proposer, bound in BARS:
        best = max(
            (row for row in sized if row["rule"] == rule and proposer in (None, row["proposer"])),
            key=lambda row: row["speedup"],
        )
        size = f"{best['parameters'] / 1e6:.0f} M {best['arithmetic']}, {best['proposer']}, {best['nodes']} nodes"
        print(f"{rule:12}{best['speedup']:6.2f} times at {size:34} bar ≥ {bound}")
    trees = [row for row in result["rows"] if (row["proposer"], row["rule"]) == ("medusa", "tolerance")]
    lengths = [row["acceptance_length"] for row in trees]
    print(f"acceptance length, tree with τ = 3: {max(lengths):.2f}, bar ≥ {LENGTH_BAR}")
    print(json.dumps({"cores": CORES, "rows": rows}))


if __name__ == "__main__":
    main()
