"""Speed of the engine, in process and through Triton, against a sequential eager-PyTorch loop of the same weights.

    python -m tests.benchmarks.engine            # minutes; writes results/engine.json, JSON line last
    python -m tests.benchmarks.engine --quick    # fewer texts, same files

Texts are Harvard sentences. First-chunk figures are of single bursts (all texts submitted at one instant), throughput
of a closed loop. The loop's figure beside 16 callers is taken just before and just after them, on the same texts.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from tests.benchmarks.load import Load, Stream, closed_loop
from tests.benchmarks.rows import LEVELS, MODULES, Row, first_chunks, level_texts, print_table, row
from training.score import load_sentences
from tts_engine.config import EngineConfig
from tts_engine.engine import Engine
from tts_engine.request import SamplingParams, SpeechRequest
from tts_engine.voice import Voice

AGAINST_LOOP = 16
Figures = dict[str, float]
BARS = {  # name: (what it is, bound, whether it is a ceiling)
    "first_chunk_ms_p50_alone": ("first chunk p50, alone, ms", 60.0, True),
    "first_chunk_slope_4": ("first chunk p50, 4 at once ÷ alone", 2.0, True),
    "throughput_vs_sequential_16": ("throughput at 16 ÷ sequential loop", 4.0, False),
    "outside_runtime_share_8": ("share of the loop in which no graph runs, at 8, %", 15.0, True),
}


def engine_stream(engine: Engine) -> Stream:
    """In-process callers."""

    def stream(text: str, seed: int) -> Iterator[np.ndarray]:
        for chunk in engine.stream(SpeechRequest(text, SamplingParams(seed=seed))):
            if chunk.error:
                raise RuntimeError(chunk.error)
            yield chunk.pcm

    return stream


def in_process(voice: Voice, texts: list[str], args: argparse.Namespace) -> tuple[list[Row], Figures]:
    """Rows of the engine and of the sequential loop, and the four figures."""
    from tests.benchmarks.sequential import SequentialLoop

    sys.setswitchinterval(0.0005)  # as the backend does: callers' threads and the loop share one interpreter
    threads = os.cpu_count() or 1
    loop = SequentialLoop(voice, args.checkpoints, threads)
    engine = Engine(voice, EngineConfig(capacity=max(LEVELS), threads=threads))
    engine.start()
    rows: list[Row] = []
    ratio = 0.0
    try:
        stream = engine_stream(engine)
        closed_loop(stream, texts[:4], 4, "warm-up")
        closed_loop(loop.stream, texts[:1], 1, "warm-up")
        rows += first_chunks("engine", stream, texts, voice, 8 if args.quick else 24)
        for concurrent in LEVELS:
            chosen = level_texts(texts, concurrent, args.quick)
            half = len(chosen) // 2
            before = closed_loop(loop.stream, chosen[:half], 1, "sequential") if concurrent == AGAINST_LOOP else None
            engine.reset_stats()
            load = closed_loop(stream, chosen, concurrent, f"engine: {concurrent} at a time")
            stats = engine.stats()
            line = row("engine", load, voice)
            line |= {f"batch_{name}": round(stats.mean_batch[name], 2) for name in MODULES}
            rows.append(line | {"outside_runtime_share": round(100 * stats.outside_share, 2)})
            if before is not None:
                after = closed_loop(loop.stream, chosen[half:], 1, "sequential")
                both = Load(1, before.seconds + after.seconds, [*before.heard, *after.heard])
                rows.append(row("sequential", both, voice))
                ratio = rows[-2]["tokens_per_s"] / rows[-1]["tokens_per_s"]
    finally:
        engine.stop()
    alone, four = (line["first_chunk_ms_p50"] for line in rows[:2])
    outside = next(line["outside_runtime_share"] for line in rows if line["concurrent"] == 8)
    return rows, {
        "first_chunk_ms_p50_alone": alone,
        "first_chunk_slope_4": round(four / alone, 2),
        "throughput_vs_sequential_16": round(ratio, 2),
        "outside_runtime_share_8": outside,
    }


def print_bars(figures: Figures) -> None:
    """The figures with their bars."""
    for name, (meaning, bound, ceiling) in BARS.items():
        met = figures[name] <= bound if ceiling else figures[name] >= bound
        bar = f"{'≤' if ceiling else '≥'} {bound:g}"
        print(f"{meaning:46} {figures[name]:8.2f}   bar {bar:6} {'ok' if met else 'MISSED'}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer texts and rounds")
    parser.add_argument("--in-process", action="store_true", help="leave Triton out")
    parser.add_argument("--voice", type=Path, default=Path("model_repository/tts/1"), help="served voice directory")
    parser.add_argument("--checkpoints", type=Path, default=Path("checkpoints/rms"), help="the same voice's weights")
    parser.add_argument("--out", type=Path, default=Path("results"))
    args = parser.parse_args()
    voice = Voice.load(args.voice)
    texts = list(load_sentences().values())
    rows, figures = in_process(voice, texts, args)
    if not args.in_process:
        from tests.benchmarks.server import through_triton

        rows += through_triton(voice, texts, args)
    print_table(rows)
    print_bars(figures)
    result = figures | {"cores": os.cpu_count(), "quick": args.quick, "rows": rows}
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "engine.json").write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
