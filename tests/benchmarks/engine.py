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
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tests.benchmarks.load import Load, Stream, bursts, closed_loop
from training.score import load_sentences
from tts_engine.config import EngineConfig
from tts_engine.engine import Engine
from tts_engine.request import SamplingParams, SpeechRequest
from tts_engine.voice import Voice

LEVELS = (1, 4, 8, 16, 32)
AGAINST_LOOP = 16
BARS = {  # name: (what it is, bound, whether it is a ceiling)
    "first_chunk_ms_p50_alone": ("first chunk p50, alone, ms", 60.0, True),
    "first_chunk_slope_4": ("first chunk p50, 4 at once ÷ alone", 2.0, True),
    "throughput_vs_sequential_16": ("throughput at 16 ÷ sequential loop", 4.0, False),
    "outside_runtime_share_8": ("share of the loop outside the runtime at 8, %", 15.0, True),
}
COLUMNS = ("path", "concurrent", "texts", "tokens_per_s", "audio_s_per_s", "first_chunk_ms_p50", "last_chunk_ms_p50")
Row = dict[str, Any]
Figures = dict[str, float]
MODULES = ("frontend", "prefill", "decode", "vocoder")


def engine_stream(engine: Engine) -> Stream:
    """In-process callers."""

    def stream(text: str, seed: int) -> Iterator[np.ndarray]:
        for chunk in engine.stream(SpeechRequest(text, SamplingParams(seed=seed))):
            if chunk.error:
                raise RuntimeError(chunk.error)
            yield chunk.pcm

    return stream


def row(path: str, load: Load, voice: Voice) -> Row:
    """A line of the table."""
    return {
        "path": path,
        "concurrent": load.concurrent,
        "texts": len(load.heard),
        "tokens_per_s": round(load.samples / voice.frame_samples / load.seconds, 1),
        "audio_s_per_s": round(load.samples / voice.sample_rate / load.seconds, 2),
        "first_chunk_ms_p50": round(load.first_chunk_ms(50), 1),
        "last_chunk_ms_p50": round(load.last_chunk_ms(50), 1),
    }


def level_texts(texts: list[str], concurrent: int, quick: bool) -> list[str]:
    """Texts of one level: everyone speaks at least twice (quick: once), and no level is too short to time."""
    count = max(4, concurrent) if quick else max(16, 2 * concurrent)
    return [texts[i % len(texts)] for i in range(count)]


def first_chunks(path: str, stream: Stream, texts: list[str], voice: Voice, rounds: int) -> list[Row]:
    """Rows of bursts of 1 and of 4 texts, taken in turn."""
    alone = bursts(stream, texts, 1, rounds, f"{path}: first chunk, alone")
    four = bursts(stream, texts, 4, rounds, f"{path}: first chunk, 4 at once")
    return [row(f"{path} burst", load, voice) for load in (alone, four)]


def in_process(voice: Voice, texts: list[str], args: argparse.Namespace) -> tuple[list[Row], Figures]:
    """Rows of the engine and of the sequential loop, and the four figures."""
    from tests.benchmarks.sequential import SequentialLoop

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


def print_table(rows: list[Row]) -> None:
    """The rows for people."""
    heads = (*COLUMNS, *(f"batch_{name}" for name in MODULES), "outside_runtime_share")
    names = ("path", "conc.", "texts", "tokens/s", "audio s/s", "first ms", "last ms", *MODULES, "outside %")
    widths = (14, 6, 6, 9, 10, 9, 9, 9, 8, 7, 8, 10)
    print("".join(f"{name:>{width}}" for name, width in zip(names, widths, strict=True)))
    for line in rows:
        print("".join(f"{line.get(head, ''):>{width}}" for head, width in zip(heads, widths, strict=True)))


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
