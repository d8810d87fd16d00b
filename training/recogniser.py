"""Word error rate by ear: pocketsphinx with its own US-English model, and jiwer.

One setting for teacher, codec and speech synthesis alike, fixed after trials on the teacher's 100 Harvard sentences:

* the decoder's defaults (batch cepstral mean per utterance, flat-lexicon second pass, best path). Wider beams gained
  0.6 points for four times the time; a heavier language model lost 4 points; dropping the second pass lost 1;
* each utterance is decoded whole by a decoder made anew (a quarter of a second): a used one keeps the Gaussians that
  were active last and hears the same wave a little differently, so results would depend on the order of the waves;
* a quarter of a second of faint noise at both ends. The synthesised waves start 40 ms before the first word while the
  teacher's file starts 200 ms before it, and the decoder, which wants silence around the words to estimate its
  cepstral mean, would otherwise judge the edges and not the speech. Noise, not zeros: a digital zero has no logarithm,
  and its floor would weigh in that mean.

Word error rate is plain: homophones and compounds ("half way", "halfway") count as errors for everyone.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from multiprocessing import get_context
from threading import RLock
from typing import Any

import numpy as np
from tqdm import tqdm

# tqdm's own lock is shared between processes and its monitor thread takes it too: beside worker processes the two have
# been seen to wait for each other for ever.
tqdm.set_lock(RLock())
tqdm.monitor_interval = 0

SAMPLE_RATE = 16_000
PAD_SECONDS = 0.25
PAD_LEVEL = 1e-3  # rms, -60 dBFS: the level of a quiet room
WORKERS = 2


@cache
def _decoder() -> Any:
    from pocketsphinx import Config, Decoder

    return Decoder(Config(loglevel="FATAL"))


def _pcm(wave: np.ndarray) -> bytes:
    if wave.ndim != 1:
        raise ValueError(f"a wave must have shape [samples], got {wave.shape}")
    wave = np.nan_to_num(np.asarray(wave, np.float32))
    edge = np.random.default_rng(0).normal(0.0, PAD_LEVEL, (2, int(PAD_SECONDS * SAMPLE_RATE)))
    padded = np.concatenate([edge[0], wave, edge[1]])
    return bytes(np.round(np.clip(padded, -1.0, 1.0) * 32767).astype(np.int16).tobytes())


def _transcribe_one(wave: np.ndarray) -> str:
    decoder = _decoder()
    decoder.reinit(decoder.config)
    decoder.start_utt()
    decoder.process_raw(_pcm(wave), full_utt=True)
    decoder.end_utt()
    hypothesis = decoder.hyp()
    return hypothesis.hypstr if hypothesis else ""


def transcribe(waves: Sequence[np.ndarray], workers: int = WORKERS, label: str = "recognise") -> list[str]:
    """Transcripts of 16 kHz float32 waves [samples] in [-1, 1]; "" where nothing was heard.

    Decodes on `workers` processes and shows a progress bar named `label`. The result does not depend on `workers`.
    """
    with tqdm(total=len(waves), desc=label, unit="wave", leave=False) as bar:
        if workers <= 1:
            texts = []
            for wave in waves:
                texts.append(_transcribe_one(wave))
                bar.update()
            return texts
        # Spawned, not forked: a fork copies the locks of threads that run here (progress bars, engine) as they stand,
        # and one that is held is held for ever.
        with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
            texts = []
            for text in pool.map(_transcribe_one, waves):
                texts.append(text)
                bar.update()
            return texts


def normalise(text: str) -> str:
    """Lower-case words only: digits spelled out, apostrophes dropped ("man's" = "mans"), hyphens as spaces."""
    from num2words import num2words

    text = re.sub(r"\d+", lambda digits: f" {num2words(int(digits.group()))} ", text.lower())
    text = text.replace("'", "").replace("\N{RIGHT SINGLE QUOTATION MARK}", "")
    return " ".join(re.sub(r"[^a-z]+", " ", text).split())


def word_errors(reference: str, hypothesis: str) -> tuple[int, int]:
    """(substitutions + deletions + insertions, reference words) of one normalised pair."""
    import jiwer

    reference = normalise(reference)
    if not reference:
        raise ValueError("a reference needs at least one word")
    found = jiwer.process_words(reference, normalise(hypothesis))
    return found.substitutions + found.deletions + found.insertions, len(reference.split())


def word_error_rate(references: Sequence[str], hypotheses: Sequence[str]) -> float:
    """Errors over all words, in percent; long sentences weigh more than short ones, as usual."""
    if len(references) != len(hypotheses) or not references:
        raise ValueError(f"{len(references)} references against {len(hypotheses)} hypotheses")
    pairs = [word_errors(r, h) for r, h in zip(references, hypotheses, strict=True)]
    return 100.0 * sum(errors for errors, _ in pairs) / sum(words for _, words in pairs)
