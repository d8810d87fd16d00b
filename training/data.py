"""The corpus as arrays: utterances of `data/corpus`, cut, padded and bucketed for training."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from training.teacher import F0_HOP

HELD_OUT = 100  # the last utterances of shard 0 never train anything


@dataclass(frozen=True)
class Utterance:
    """One manifest row; `wave` int16 [samples], `f0` float32 [samples / 80] in Hz (0 = unvoiced)."""

    id: str
    text: str
    words: list[str]
    prosody: list[list[int]]
    spans: list[list[float]]
    wave: np.ndarray
    f0: np.ndarray


def load_corpus(directory: Path, limit: int | None = None) -> list[Utterance]:
    """All utterances, waves as views of one array a shard. Raises FileNotFoundError saying what to run."""
    manifest = directory / "manifest.jsonl"
    if not manifest.exists():
        raise FileNotFoundError(f"no corpus in {directory}: run `python -m training.corpus --out {directory}`")
    shards: dict[int, tuple[np.ndarray, np.ndarray]] = {}
    utterances = []
    for line in manifest.read_text().splitlines()[:limit]:
        row = json.loads(line)
        if row["shard"] not in shards:
            with np.load(directory / f"shard-{row['shard']:04d}.npz") as arrays:
                shards[row["shard"]] = arrays["wave"], arrays["f0"]
        wave, f0 = shards[row["shard"]]
        utterances.append(
            Utterance(
                **{key: row[key] for key in ("id", "text", "words", "prosody", "spans")},
                wave=wave[slice(*row["wave_range"])],
                f0=f0[slice(*row["f0_range"])],
            )
        )
    return utterances


def continuous_f0(f0: np.ndarray, fallback: float = 100.0) -> np.ndarray:
    """f0 carried linearly through unvoiced stretches (float32 [frames], Hz)."""
    voiced = np.flatnonzero(f0 > 0)
    if len(voiced) == 0:
        return np.full(len(f0), fallback, np.float32)
    return np.interp(np.arange(len(f0)), voiced, f0[voiced]).astype(np.float32)


def crop(utterance: Utterance, samples: int, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """A random stretch: wave float32 [samples] (zero padded), continuous f0 [samples / 80 + 16]."""
    frames = samples // F0_HOP
    start = int(random.integers(0, max(1, len(utterance.f0) - frames)))
    wave = utterance.wave[start * F0_HOP : start * F0_HOP + samples].astype(np.float32) / 32767
    track = continuous_f0(utterance.f0)[start : start + frames + 16]
    return (
        np.pad(wave, (0, samples - len(wave))),
        np.pad(track, (0, frames + 16 - len(track)), mode="edge"),
    )
