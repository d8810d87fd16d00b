"""Spoken text to words and the punctuation behind them."""

# ruff: noqa: RUF001  (look-alike characters are the subject here)
from __future__ import annotations

import re

from tts_engine.text.phonemizer import MAX_WORD_LETTERS

MAX_PUNCTUATION = 2  # "?!" says something, "?!?!?!" nothing more
# Dots and apostrophes inside words, and hyphens between them, are no pauses; brackets are small ones.
_EQUIVALENTS = str.maketrans({"(": ",", ")": ",", "[": ",", "]": ",", "{": ",", "}": ",", "–": "—", "…": "."})
_TOKENS = re.compile(r"(?P<word>[a-z']+)|(?P<dash>--+|(?<=\s)-(?=\s)|—)|(?P<inner>[.:](?=[a-z]))|(?P<mark>[,.?!;:])")
_STRENGTH = {mark: rank for rank, mark in enumerate((",", ":", ";", "—", ".", "!", "?"))}
# Words that begin with an apostrophe; around all others it is a quote.
_ELIDED = frozenset({"'em", "'til", "'tis", "'twas", "'cause", "'bout", "'round"})


def tokenize(text: str) -> list[tuple[str, tuple[str, ...]]]:
    """(word, punctuation after it) of ASCII text; words are lower case, hyphens separate them.

    Of several marks after one word the strongest two different ones stay, in order; over-long letter strings are cut.
    """
    words: list[str] = []
    marks: list[list[str]] = []
    for match in _TOKENS.finditer(text.lower().translate(_EQUIVALENTS)):
        if match.lastgroup == "word":
            word = match.group().rstrip("'")
            word = word if word in _ELIDED else word.lstrip("'")
            for start in range(0, len(word), MAX_WORD_LETTERS):
                words.append(word[start : start + MAX_WORD_LETTERS])
                marks.append([])
        elif match.lastgroup != "inner" and words:
            marks[-1].append("—" if match.lastgroup == "dash" else match.group())
    return [(word, _strongest(after)) for word, after in zip(words, marks, strict=True)]


def _strongest(marks: list[str]) -> tuple[str, ...]:
    distinct = list(dict.fromkeys(marks))
    if len(distinct) < 2:
        return tuple(distinct)
    kept = sorted(distinct, key=_STRENGTH.__getitem__)[-MAX_PUNCTUATION:]
    if set(kept) != {"?", "!"}:
        kept = kept[-1:]
    return tuple(mark for mark in distinct if mark in kept)
