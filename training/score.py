"""Score of one system's waves on the Harvard sentences: word errors, durations, and sentences gone wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from training.recogniser import SAMPLE_RATE, WORKERS, normalise, transcribe, word_errors

SENTENCES_FILE = Path(__file__).with_name("harvard.txt")

FRAME = SAMPLE_RATE // 50  # samples of an energy frame, 20 ms
SPEECH_DB = -45.0  # a frame this loud (dB full scale) is speech; the teacher's noise floor is near -75
SHORTEST_SPEECH = 0.2  # seconds; less than this is silence, whatever was asked
LONGEST_GAP = 0.8  # seconds of silence inside one short sentence; the teacher's longest comma is 0.3
SPEECH_RATIO = (0.75, 1.35)  # seconds of speech against the teacher's, outside of it a word is gone or said again
WORDS_RATIO = (0.5, 1.6)  # recognised words against written ones; plain recognition errors stay inside


@dataclass(frozen=True)
class Row:
    """One sentence as one system said it. `speech_seconds` and `longest_gap` are measured by energy, in seconds."""

    id: str
    system: str
    text: str
    hypothesis: str
    errors: int
    words: int
    seconds: float
    speech_seconds: float
    longest_gap: float
    finish_reason: str = ""
    faults: str = ""  # "", or a list of cut, looped, silent

    @property
    def wer(self) -> float:
        """Word error rate of this sentence in percent."""
        return 100.0 * self.errors / self.words


def load_sentences(limit: int | None = None) -> dict[str, str]:
    """The IEEE Harvard sentences, lists 1 to 10: {"list.sentence": text}; `limit` takes an even spread of them."""
    lines = SENTENCES_FILE.read_text(encoding="utf-8").splitlines()
    sentences = dict(line.split("\t", 1) for line in lines)
    if limit is None or limit >= len(sentences):
        return sentences
    chosen = np.linspace(0, len(sentences) - 1, max(1, limit)).round().astype(int)
    keys = list(sentences)
    return {keys[i]: sentences[keys[i]] for i in chosen}


def speech_and_gap(wave: np.ndarray) -> tuple[float, float]:
    """(seconds of frames above `SPEECH_DB`, longest stretch below it between two such frames) of wave [samples]."""
    count = len(wave) // FRAME
    frames = np.asarray(wave[: count * FRAME], np.float64).reshape(count, FRAME)
    loud = np.flatnonzero(np.mean(frames**2, axis=1) > 10 ** (SPEECH_DB / 10))
    if len(loud) == 0:
        return 0.0, 0.0
    gap = int(np.max(np.diff(loud), initial=1)) - 1
    return len(loud) * FRAME / SAMPLE_RATE, gap * FRAME / SAMPLE_RATE


def score(
    waves_by_id: Mapping[str, np.ndarray],
    system: str = "waves",
    texts: Mapping[str, str] | None = None,
    finish_reasons: Mapping[str, str] | None = None,
    workers: int = WORKERS,
) -> list[Row]:
    """Recognise and measure waves [samples] float32 at 16 kHz, keyed by sentence id.

    `texts` defaults to the Harvard sentences; KeyError names an id without a text.
    """
    texts = texts or load_sentences()
    missing = [key for key in waves_by_id if key not in texts]
    if missing:
        raise KeyError(f"no sentence is called {missing[0]!r}; ids look like 1.1 … 10.10")
    hypotheses = transcribe(list(waves_by_id.values()), workers, label=system)
    rows = []
    for (key, wave), hypothesis in zip(waves_by_id.items(), hypotheses, strict=True):
        errors, words = word_errors(texts[key], hypothesis)
        speech, gap = speech_and_gap(wave)
        reason = (finish_reasons or {}).get(key, "")
        seconds = len(wave) / SAMPLE_RATE
        rows.append(Row(key, system, texts[key], normalise(hypothesis), errors, words, seconds, speech, gap, reason))
    return rows


def wer(rows: Sequence[Row]) -> float:
    """Word error rate over all rows, in percent."""
    return 100.0 * sum(row.errors for row in rows) / sum(row.words for row in rows)


def faults(row: Row, teacher: Row) -> str:
    """What is wrong with a sentence beyond single words, judged against the teacher's: cut, looped, silent, or ""."""
    found = []
    ratio = row.speech_seconds / max(teacher.speech_seconds, SHORTEST_SPEECH)
    heard = len(row.hypothesis.split()) / row.words
    if row.speech_seconds < SHORTEST_SPEECH or row.longest_gap > LONGEST_GAP:
        found.append("silent")
    if ratio < SPEECH_RATIO[0] or heard < WORDS_RATIO[0]:
        found.append("cut")
    # A stream that ends for length never said that it was done: it was still talking.
    if ratio > SPEECH_RATIO[1] or heard > WORDS_RATIO[1] or row.finish_reason == "length":
        found.append("looped")
    return " ".join(found)
