"""The lines of the benchmark's table."""

from __future__ import annotations

from typing import Any

from tests.benchmarks.load import Load, Stream, bursts
from tts_engine.voice import Voice

LEVELS = (1, 4, 8, 16, 32)
COLUMNS = ("path", "concurrent", "texts", "tokens_per_s", "audio_s_per_s", "first_chunk_ms_p50", "last_chunk_ms_p50")
Row = dict[str, Any]
MODULES = ("frontend", "prefill", "decode", "vocoder")


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


def print_table(rows: list[Row]) -> None:
    """The rows for people."""
    heads = (*COLUMNS, *(f"batch_{name}" for name in MODULES), "outside_runtime_share")
    names = ("path", "conc.", "texts", "tokens/s", "audio s/s", "first ms", "last ms", *MODULES, "outside %")
    widths = (14, 6, 6, 9, 10, 9, 9, 9, 8, 7, 8, 10)
    print("".join(f"{name:>{width}}" for name, width in zip(names, widths, strict=True)))
    for line in rows:
        print("".join(f"{line.get(head, ''):>{width}}" for head, width in zip(heads, widths, strict=True)))
