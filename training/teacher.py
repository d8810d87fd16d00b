"""The demo voice's teacher: flite's clustergen voice `rms`, called through its C library.

Beside the waveform the teacher tells everything it decided on the way: segments, words, phrase
breaks, pauses and the fundamental frequency of every 5 ms frame. Nothing has to be estimated back
from audio, so alignments and prosody labels are the teacher's own.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

SAMPLE_RATE = 16_000
F0_HOP = 80  # samples a teacher frame (5 ms)


class TeacherError(RuntimeError):
    """The teacher cannot be used; the message says what to install."""


class _Wave(ctypes.Structure):
    _fields_ = [
        ("type", ctypes.c_char_p),
        ("sample_rate", ctypes.c_int),
        ("num_samples", ctypes.c_int),
        ("num_channels", ctypes.c_int),
        ("samples", ctypes.POINTER(ctypes.c_short)),
    ]


class _Track(ctypes.Structure):
    _fields_ = [
        ("type", ctypes.c_char_p),
        ("num_frames", ctypes.c_int),
        ("num_channels", ctypes.c_int),
        ("times", ctypes.POINTER(ctypes.c_float)),
        ("frames", ctypes.POINTER(ctypes.POINTER(ctypes.c_float))),
    ]


class _Utterance(ctypes.Structure):
    _fields_ = [("features", ctypes.c_void_p), ("ffunctions", ctypes.c_void_p), ("relations", ctypes.c_void_p)]


@dataclass(frozen=True)
class TaughtWord:
    """One word as the teacher spoke it; times in seconds."""

    text: str
    start: float
    end: float
    content: bool  # a content word, by the teacher's own guess of part of speech
    phrase_break: str  # the teacher's break behind it: "" inside a phrase, "B" after a phrase, "BB" after the last
    pause_after: float  # seconds of silence the teacher put behind it


@dataclass(frozen=True)
class Utterance:
    """`wave` float32 [samples] in [-1, 1]; `f0` float32 [frames] in Hz, 0 where unvoiced, 5 ms a frame."""

    wave: np.ndarray
    f0: np.ndarray
    words: list[TaughtWord] = field(default_factory=list)


@cache
def _library() -> tuple[Any, Any]:
    try:
        flite = ctypes.CDLL("libflite.so.1", mode=ctypes.RTLD_GLOBAL)
        for name in ("libflite_usenglish.so.1", "libflite_cmulex.so.1"):
            ctypes.CDLL(name, mode=ctypes.RTLD_GLOBAL)
        rms = ctypes.CDLL("libflite_cmu_us_rms.so.1", mode=ctypes.RTLD_GLOBAL)
    except OSError as error:
        raise TeacherError(f"flite is not installed: run `apt-get install flite libflite1` ({error})") from error
    pointer, text = ctypes.c_void_p, ctypes.c_char_p
    signatures = {
        "flite_synth_text": (pointer, [text, pointer]),
        "utt_wave": (ctypes.POINTER(_Wave), [pointer]),
        "utt_relation": (pointer, [pointer, text]),
        "relation_head": (pointer, [pointer]),
        "item_next": (pointer, [pointer]),
        "flite_path_to_item": (pointer, [pointer, text]),
        "flite_ffeature_string": (text, [pointer, text]),
        "flite_ffeature_float": (ctypes.c_float, [pointer, text]),
        "feat_val": (pointer, [pointer, text]),
        "val_track": (ctypes.POINTER(_Track), [pointer]),
        "delete_utterance": (None, [pointer]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(flite, name)
        function.restype, function.argtypes = result, arguments
    flite.flite_init()
    rms.register_cmu_us_rms.restype = pointer
    rms.register_cmu_us_rms.argtypes = [text]
    return flite, rms.register_cmu_us_rms(None)


def _siblings(flite: Any, item: int | None) -> list[int]:
    found = []
    while item:
        found.append(item)
        item = flite.item_next(item)
    return found


def _word(flite: Any, token: int) -> TaughtWord | None:
    """A token is one word of our text; the teacher may split it ("dog", "'s")."""
    parts = _siblings(flite, flite.flite_path_to_item(token, b"daughter1"))
    if not parts:
        return None

    def string(item: int, path: bytes) -> str:
        return (flite.flite_ffeature_string(item, path) or b"").decode("ascii", "replace")

    def seconds(item: int, path: bytes) -> float:
        return float(flite.flite_ffeature_float(item, path))

    last_segment = b"R:SylStructure.daughtern.daughtern"
    pause, end = 0.0, seconds(parts[-1], last_segment + b".end")
    if string(parts[-1], last_segment + b".R:Segment.n.name") == "pau":
        pause = seconds(parts[-1], last_segment + b".R:Segment.n.end") - end
    return TaughtWord(
        text=string(token, b"name"),
        start=seconds(parts[0], b"R:SylStructure.daughter1.daughter1.R:Segment.p.end"),
        end=end,
        content=any(string(part, b"gpos") == "content" for part in parts),
        phrase_break=string(parts[-1], b"R:Phrase.parent.name") if string(parts[-1], b"R:Phrase.n.name") == "0" else "",
        pause_after=pause,
    )


def speak(text: str) -> Utterance:
    """Synthesise `text` (ASCII words and plain punctuation).

    Raises `TeacherError` when flite is missing or makes no sound.
    """
    flite, voice = _library()
    utterance = flite.flite_synth_text(text.encode("ascii", "ignore"), voice)
    if not utterance:
        raise TeacherError(f"the teacher could not speak {text[:60]!r}")
    try:
        wave = flite.utt_wave(utterance).contents
        if wave.sample_rate != SAMPLE_RATE or wave.num_samples == 0:
            raise TeacherError(f"the teacher made no {SAMPLE_RATE} Hz sound of {text[:60]!r}")
        samples = np.ctypeslib.as_array(wave.samples, (wave.num_samples,)).astype(np.float32) / 32768.0
        features = ctypes.cast(utterance, ctypes.POINTER(_Utterance)).contents.features
        track = flite.val_track(flite.feat_val(features, b"param_track")).contents
        f0 = np.array([track.frames[i][0] for i in range(track.num_frames)], np.float32)
        tokens = _siblings(flite, flite.relation_head(flite.utt_relation(utterance, b"Token")))
        words = [word for word in (_word(flite, token) for token in tokens) if word]
    finally:
        flite.delete_utterance(utterance)
    return Utterance(samples, f0, words)
