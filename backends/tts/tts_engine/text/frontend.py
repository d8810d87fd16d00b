"""The text frontend: raw text to sentences of words with phones and punctuation."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tts_engine.text.normalizer import Normalizer
from tts_engine.text.phonemizer import Phonemizer
from tts_engine.text.segmenter import Segmenter, closed, split_words
from tts_engine.text.sentence import Sentence, Word
from tts_engine.text.tokenizer import tokenize
from tts_engine.text.wordpiece import WordpieceEncoder, WordpieceEncoding, WordpieceError


class TextFrontend:
    """Normalises, segments and phonemizes; one per process, safe to call from several threads.

    `phonemes`: the voice's symbol table, to which every symbol is mapped (None: keep espeak's own).
    `wordpiece_path`: a Hugging Face `tokenizer.json`; needed for `encode` only.
    Raises `PhonemizerError`, `WordpieceError`.
    """

    def __init__(self, phonemes: list[str] | None = None, wordpiece_path: Path | None = None) -> None:
        self._normalizer = Normalizer()
        self._segmenter = Segmenter()
        self._phonemizer = Phonemizer(phonemes)
        self._table = None if phonemes is None else frozenset(phonemes)
        self._wordpiece = WordpieceEncoder(wordpiece_path) if wordpiece_path else None

    def sentences(self, text: str) -> list[Sentence]:
        """Sentences of any text, in order; empty where nothing in it can be spoken. Never raises on a str."""
        return list(self.iterate(text))

    def iterate(self, text: str) -> Iterator[Sentence]:
        """The same one by one: a long text's first sentence is there before its last is read."""
        for segment in self._segmenter.segments(self._normalizer.clean(text)):
            pieces = list(split_words(self._words(self._normalizer.normalize(segment))))
            for index, piece in enumerate(pieces):
                yield Sentence(*closed(piece, goes_on=index + 1 < len(pieces)))

    def encode(self, sentence: Sentence) -> WordpieceEncoding:
        """Wordpieces of a sentence and where each word's first one is. Raises `WordpieceError` without a vocabulary."""
        if self._wordpiece is None:
            raise WordpieceError("this frontend has no wordpiece vocabulary: give TextFrontend a wordpiece_path")
        return self._wordpiece.encode(sentence)

    def _words(self, text: str) -> list[Word]:
        words: list[Word] = []
        for token, marks in tokenize(text):
            phonemes = self._phonemizer.phonemes(token)
            if phonemes:
                words.append(Word(token, phonemes, marks))
        return words
