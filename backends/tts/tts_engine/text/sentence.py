"""What the text frontend says: sentences of words of phones."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Word:
    """`text` as spoken (lower case, apostrophes kept), its `phonemes` (at least one), `punctuation` after it."""

    text: str
    phonemes: tuple[str, ...]
    punctuation: tuple[str, ...] = ()


@dataclass(frozen=True)
class Sentence:
    """A piece of text that is synthesised in one go; at least one word, closed by punctuation."""

    text: str
    words: tuple[Word, ...]


def spoken_text(words: tuple[Word, ...] | list[Word]) -> str:
    """The words as read: "hello, world."."""
    return " ".join(word.text + "".join(word.punctuation) for word in words)
