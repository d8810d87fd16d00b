"""Sentences of a text, and pieces of sentences that are too long for one prompt.

Boundaries come from `pysbd` (rule-based, knows abbreviations and initials, pure Python). It is quadratic in the
length of what it is given, so it reads windows; a window's last sentence may be cut and starts the next window.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator

from tts_engine.text.english import CONJUNCTIONS
from tts_engine.text.sentence import Word, spoken_text

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # its regular expressions predate Python's stricter escapes
    import pysbd

WINDOW_CHARS = 1_000
MAX_CHARS = 220  # about 13 s of speech
MAX_SYMBOLS = 180
_BREAKS = re.compile(r"[.?!]\s+\S|[\n\r]")


class Segmenter:
    """Splits raw text into sentences in time linear in its length."""

    def __init__(self) -> None:
        self._segmenter = pysbd.Segmenter(language="en", clean=False)

    def segments(self, text: str) -> Iterator[str]:
        """Sentences of `text`, none empty, none over `WINDOW_CHARS`; an empty line ends a sentence."""
        for paragraph in re.split(r"\n\s*\n", text):
            yield from self._paragraph(" ".join(paragraph.split()))

    def _paragraph(self, text: str) -> Iterator[str]:
        start = 0
        while start < len(text):
            window = text[start : start + WINDOW_CHARS]
            if start + len(window) < len(text):
                window = window[: window.rfind(" ") + 1] or window
            last = start + len(window) >= len(text)
            found = self._sentences(window)
            if len(found) > 1 and not last:  # the last one may go on behind the window
                window = window[: len(window) - len(found.pop())]
            yield from filter(None, map(str.strip, found))
            start += len(window)

    def _sentences(self, window: str) -> list[str]:
        """Pieces that join to exactly `window`."""
        if not _BREAKS.search(window):
            return [window]
        found = [str(piece) for piece in self._segmenter.segment(window)]
        return found if "".join(found) == window else re.split(r"(?<=[.?!]\s)", window)


def split_words(words: list[Word]) -> Iterator[list[Word]]:
    """Pieces of a sentence within `MAX_CHARS` and `MAX_SYMBOLS`, cut at the best place in their later half.

    Best is after punctuation, then before a conjunction, then at any word. One piece only where all fits.
    """
    start = 0
    while start < len(words):
        end = _fitting(words, start)
        if end < len(words):
            end = _best_cut(words, start, end)
        yield words[start:end]
        start = end


def _fitting(words: list[Word], start: int) -> int:
    chars = symbols = 0
    for index in range(start, len(words)):
        word = words[index]
        chars += len(word.text) + len(word.punctuation) + 1
        symbols += len(word.phonemes) + len(word.punctuation) + 1
        if index > start and (chars > MAX_CHARS or symbols > MAX_SYMBOLS):
            return index
    return len(words)


def _best_cut(words: list[Word], start: int, end: int) -> int:
    later_half = range(end, start + (end - start + 1) // 2, -1)
    for cut in later_half:
        if words[cut - 1].punctuation:
            return cut
    return next((cut for cut in later_half if words[cut].text in CONJUNCTIONS), end)


def closed(words: list[Word], goes_on: bool) -> tuple[str, tuple[Word, ...]]:
    """A piece's text and words, its last word given a comma or full stop where it has no punctuation."""
    last = words[-1]
    if not last.punctuation:
        words = [*words[:-1], Word(last.text, last.phonemes, ("," if goes_on else ".",))]
    return spoken_text(words), tuple(words)
