"""Written text to spoken text: "It cost $5 on Jan. 3." -> "It cost five dollars on the third of january."

Numbers, dates, times, measures, fractions, telephone numbers and the like are read by **wetext**: the grammars of
NVIDIA's NeMo text processing compiled to finite-state transducers (C++ runtime, bundled, offline, 1-2 ms a sentence
that needs it). Considered and left: `nemo_text_processing` itself (pynini and compiling grammars for minutes, for the
same answers), `num2words` + `inflect` (numbers only; finding them in text would be ours), which still names what wetext
misses. `rewrites.py` holds the small things around it. Text of plain words takes none of these paths (some 10 µs).
"""

# ruff: noqa: RUF001  (look-alike characters are the subject here)
from __future__ import annotations

import re
import threading
import unicodedata
from collections.abc import Iterator

from anyascii import anyascii
from wetext import Normalizer as WeText

from tts_engine.text.abbreviations import expand_abbreviations
from tts_engine.text.rewrites import (
    prepare_numbers,
    read_addresses,
    read_leftovers,
    read_roman_numerals,
    spell_acronyms,
)

# Its time grows faster than its input where every character is ambiguous, so it reads short pieces.
LIBRARY_CHARS = 120
_BEFORE_NFKC = str.maketrans(
    {
        "™": " ",
        "®": " ",
        "©": " ",
        "²": " squared",
        "³": " cubed",
        "’": "'",
        "‘": "'",
        "ʼ": "'",
        "`": "'",
        "“": '"',
        "”": '"',
        "…": "...",
    }
    | {fraction: f" {fraction}" for fraction in "½⅓⅔¼¾⅕⅖⅗⅘⅙⅚⅛⅜⅝⅞"}
)
_AFTER_NFKC = str.maketrans(
    {"\u2044": "/", "−": "-", "‐": "-", "‑": "-", "–": "—", "―": "—", "×": " times ", "÷": " divided by "}
)
_DROPPED = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "So", "Sk"})  # controls, unassigned, emoji and dingbats
_KEPT = frozenset("\n\t °`^")
_ELLIPSIS = re.compile(r"\.(?:\s?\.)+")
_NUMBER_RANGE = re.compile(r"(?<=\d)—(?=\d)")
_WORDS_ONLY = re.compile(r"[A-Za-z' ,.?!;:\"()—-]*")
_UNREADABLE = re.compile(r"[^A-Za-z0-9 ,.?!;:'()$£€¥%&@+=/°#—*<>-]+")
_NON_ASCII = re.compile(r"[^\x00-\x7f£€¥°—]+")
_PLAIN_GAP = re.compile(r"(?<=[A-Za-z]) (?=[A-Za-z])")


class Normalizer:
    """Holds the library; safe to call from several threads. Neither method raises on a str."""

    def __init__(self) -> None:
        self._library = WeText(lang="en", operator="tn")
        self._lock = threading.Lock()
        self._read("1")  # it loads its transducers on first use (0.1 s)

    def clean(self, text: str) -> str:
        """Whole text, before segmentation: one Unicode form, plain quotes and dashes, no emoji, no abbreviations."""
        if not text.isascii():
            text = unicodedata.normalize("NFKC", text.translate(_BEFORE_NFKC)).translate(_AFTER_NFKC)
        if not text.isprintable() or not text.isascii():
            text = "".join(c if c in _KEPT or unicodedata.category(c) not in _DROPPED else " " for c in text)
        return expand_abbreviations(_ELLIPSIS.sub(_ellipsis, text))

    def normalize(self, text: str) -> str:
        """One cleaned sentence as ASCII words and plain punctuation; dashes are " -- "."""
        if not _WORDS_ONLY.fullmatch(text):
            text = self._numbers(read_addresses(_NON_ASCII.sub(lambda m: anyascii(m[0]), text)))
        text = spell_acronyms(read_roman_numerals(text))
        return text.replace("—", " -- ")

    def _numbers(self, text: str) -> str:
        text = _UNREADABLE.sub(" ", prepare_numbers(_NUMBER_RANGE.sub("-", text)))
        return read_leftovers(" ".join(map(self._read, _pieces(text))))

    def _read(self, piece: str) -> str:
        if _WORDS_ONLY.fullmatch(piece):
            return piece
        closing = piece.rstrip()[-1:]
        try:
            with self._lock:
                spoken = self._library.normalize(piece).replace("\\", "")
        except Exception:  # input its grammar cannot cover raises whatever the depths raise
            return piece
        # A last full stop may have been read as part of an abbreviation ("p.m.").
        return spoken + closing if closing in (".", "?", "!") and not spoken.endswith(closing) else spoken


def _ellipsis(match: re.Match[str]) -> str:
    """A pause inside a sentence or its end, by what follows."""
    following = match.string[match.end() : match.end() + 4].lstrip()
    return ", " if following[:1].islower() else ". "


def _pieces(text: str) -> Iterator[str]:
    """`text` in pieces of at most `LIBRARY_CHARS`, cut between two words where there is such a place."""
    start = 0
    while len(text) - start > LIBRARY_CHARS:
        window = text[start : start + LIBRARY_CHARS]
        gaps = [match.end() for match in _PLAIN_GAP.finditer(window)]
        cut = (gaps[-1] if gaps else window.rfind(" ") + 1) or LIBRARY_CHARS
        yield window[:cut].strip()
        start += cut
    yield text[start:].strip()
