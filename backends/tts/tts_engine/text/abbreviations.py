"""Abbreviations written out, before segmentation, which it spares most dots that end no sentence."""

from __future__ import annotations

import re
from collections.abc import Iterable

from tts_engine.text.english import BARE_ABBREVIATIONS, CLOSING, MIDDLE, NUMBERED, SENTENCE_STARTERS, TITLES


def _any_of(words: Iterable[str]) -> str:
    return "(" + "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True)) + ")"


_START = r"(?<![\w.'])"
_TITLE = re.compile(rf"{_START}(?i:{_any_of(TITLES)})\.(?=\s+[A-Z])")
_NUMBERED = re.compile(rf"{_START}(?i:{_any_of(NUMBERED)})\.\s?(?=\d)|#\s?(?=\d)")
_MIDDLE = re.compile(rf"{_START}(?i:{_any_of(MIDDLE)})\.(?=\W|$)")
_CLOSING = re.compile(rf"{_START}(?i:{_any_of(CLOSING)})\.(\s+[A-Z]|\s*$)?")
_BARE = re.compile(rf"{_START}{_any_of(BARE_ABBREVIATIONS)}\.?(?=\s)")
_STREET = re.compile(r"(?<=[a-z] )St\.(?=\s+[A-Z]|\W|$)")
_STREET_NAME = re.compile(r"(?:\d|\bthe|\b[Oo]n|\b[Ii]n|\b[Aa]t|\bof) [A-Z][a-z]+ $")
_INITIAL = re.compile(rf"{_START}([A-Z])\.(?=\s*[A-Z][a-z.])")
_DOTTED_CAPITALS = re.compile(rf"{_START}((?:[A-Z]\.){{2,9}}|Ph\.D\.|[ap]\.m\.)(\s+[A-Z][a-z']+\b|\s*$)?")


def expand_abbreviations(text: str) -> str:
    """ "Dr. Smith, Main St." -> "doctor Smith, Main Street."; comes before segmentation, which it spares the dots."""
    text = _DOTTED_CAPITALS.sub(_undot, text)
    text = _STREET.sub(_street, text)
    text = _TITLE.sub(lambda m: TITLES[m[1].lower()], text)
    text = _NUMBERED.sub(lambda m: f"{NUMBERED[(m[1] or 'no').lower()]} ", text)
    text = _MIDDLE.sub(lambda m: MIDDLE[m[1].lower()], text)
    text = _CLOSING.sub(lambda m: CLOSING[m[1].lower()] + ("" if m[2] is None else "." + m[2]), text)
    return _INITIAL.sub(r"\1 ", _BARE.sub(lambda m: BARE_ABBREVIATIONS[m[1]], text))


def _undot(match: re.Match[str]) -> str:
    """ "U.S." -> "US"; the last dot stays where the text ends or a new sentence seems to begin."""
    following = match[2]
    ends = following is not None and (not following.strip() or following.strip() in SENTENCE_STARTERS)
    return match[1].replace(".", "").upper() + ("." if ends else "") + (following or "")


def _street(match: re.Match[str]) -> str:
    before, after = (
        match.string[max(0, match.start() - 40) : match.start()],
        match.string[match.end() : match.end() + 40].lstrip(),
    )
    if not _STREET_NAME.search(before):
        return match[0]
    return "Street." if not after or after[0].isupper() else "Street"
