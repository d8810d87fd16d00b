"""Make the corpus: the teacher speaks generated text; waves, pitch, word times and prosody labels are kept.

    python -m training.corpus --hours 20 --out data/corpus      # resumable: finished shards stay

Layout: `shard-NNNN.npz` (`wave` int16 and `f0` float32 of all its utterances, end to end) and
`manifest.jsonl`, one line an utterance: id, text, words, prosody [[pw, pph, iph]], spans [[start, end]]
in seconds, shard, wave_range, f0_range.
"""

from __future__ import annotations

import argparse
import json
import os
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from training.teacher import F0_HOP, SAMPLE_RATE, TaughtWord, TeacherError, speak
from training.texts import training_texts

SHARD = 500  # utterances
LEAD_SILENCE = 0.04  # seconds kept before the first word: what a listener waits for is speech
TAIL_SILENCE = 0.10
LONG_PAUSE = 0.12  # the teacher's own sentence-like pause; commas stay below
MEAN_SECONDS = 2.2  # of this text mix, seen; only to size the corpus


def prosody_levels(word: TaughtWord) -> list[int]:
    """(prosodic word, phonological phrase, intonational phrase) ends at this word, as the teacher spoke it.

    A prosodic word ends at a content word (function words lean on the next one), a phonological phrase
    at a teacher phrase break, an intonational phrase at the teacher's long pause (incremental TTS, 2.1.1).
    """
    phrase = word.phrase_break != ""
    return [int(word.content or phrase), int(phrase), int(phrase and word.pause_after >= LONG_PAUSE)]


def utterance(text: str) -> tuple[dict[str, Any], np.ndarray, np.ndarray] | None:
    """Row, trimmed int16 wave and f0 of one text; None where the teacher did not read it word for word."""
    spoken = speak(text)
    words = [w.strip(",.;?!") for w in text.split()]
    if len(words) != len(spoken.words) or any(not w for w in words):
        return None
    start = max(0.0, spoken.words[0].start - LEAD_SILENCE)
    end = min(len(spoken.wave) / SAMPLE_RATE, spoken.words[-1].end + TAIL_SILENCE)
    first, last = int(start * SAMPLE_RATE) // F0_HOP, int(end * SAMPLE_RATE) // F0_HOP
    wave = np.round(spoken.wave[first * F0_HOP : last * F0_HOP] * 32767).astype(np.int16)
    row = {
        "text": text,
        "words": words,
        "prosody": [prosody_levels(w) for w in spoken.words],
        "spans": [[round(w.start - start, 4), round(w.end - start, 4)] for w in spoken.words],
    }
    f0 = np.zeros(last - first, np.float32)  # the wave may outlast the track by a frame or two
    f0[: len(spoken.f0[first:last])] = spoken.f0[first:last]
    return row, wave, f0


def make_shard(out: Path, index: int, seed: int) -> int:
    """Speak one shard; returns its utterance count. Written under a temporary name, then renamed."""
    target = out / f"shard-{index:04d}"
    if target.with_suffix(".json").exists():
        return SHARD
    rows, waves, tracks = [], [], []
    at_wave = at_f0 = 0
    for number, text in enumerate(training_texts(SHARD, seed * 100_003 + index)):
        try:
            made = utterance(text)
        except TeacherError:
            continue
        if made is None:
            continue
        row, wave, f0 = made
        row |= {"id": f"{index:04d}-{number:03d}", "shard": index}
        row |= {"wave_range": [at_wave, at_wave + len(wave)], "f0_range": [at_f0, at_f0 + len(f0)]}
        at_wave, at_f0 = at_wave + len(wave), at_f0 + len(f0)
        rows.append(row)
        waves.append(wave)
        tracks.append(f0)
    partial = out / f"partial-{index:04d}.npz"
    np.savez(partial, wave=np.concatenate(waves), f0=np.concatenate(tracks))
    partial.rename(target.with_suffix(".npz"))
    target.with_suffix(".json").write_text("\n".join(json.dumps(row) for row in rows))
    return len(rows)


def write_manifest(out: Path) -> float:
    """Join the shards' rows into manifest.jsonl; returns hours of audio."""
    shards = sorted(out.glob("shard-*.json"))
    text = "\n".join(shard.read_text() for shard in shards) + "\n"
    temporary = out / "manifest.partial"
    temporary.write_text(text)
    temporary.rename(out / "manifest.jsonl")
    lengths = (json.loads(line)["wave_range"] for line in text.splitlines())
    return sum(end - start for start, end in lengths) / SAMPLE_RATE / 3600


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("data/corpus"))
    parser.add_argument("--hours", type=float, default=20.0, help="hours of speech to make (default: 20)")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    count = max(1, round(args.hours * 3600 / MEAN_SECONDS / SHARD))
    with ProcessPoolExecutor(args.workers) as pool:
        jobs = [pool.submit(make_shard, args.out, index, args.seed) for index in range(count)]
        for job in tqdm(jobs, desc="teacher speaks", unit="shard"):
            job.result()
    print(f"{write_manifest(args.out):.2f} hours in {args.out}")


if __name__ == "__main__":
    main()
