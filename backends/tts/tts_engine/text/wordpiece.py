"""Wordpieces of a sentence for the prosody BERT, with the place of each word's first piece."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from tokenizers import Tokenizer

from tts_engine.text.sentence import Sentence

WORDS_KEPT = 1 << 14  # a sentence of known words takes 12 µs, asking the tokenizer 62
MAX_LENGTH = 256  # positions of the demo voice; a BERT-base has 512


class WordpieceError(ValueError):
    """The vocabulary cannot be used; the message says why."""


@dataclass(frozen=True)
class WordpieceEncoding:
    """`input_ids`: [CLS] pieces [SEP]; `first_piece[w]`: the position in `input_ids` of word w's first piece."""

    input_ids: list[int]
    first_piece: list[int]


class WordpieceEncoder:
    """WordPiece of Hugging Face `tokenizers`, read from a `tokenizer.json` with [CLS] and [SEP].

    `max_length` bounds `input_ids`; words that do not fit would point at [SEP], but the segmenter's sentences of some
    220 letters always fit.
    """

    def __init__(self, path: Path, max_length: int = MAX_LENGTH) -> None:
        try:
            self._tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises plain Exception
            raise WordpieceError(f"{path} is not a tokenizer.json of the tokenizers library ({error})") from error
        cls, sep = self._tokenizer.token_to_id("[CLS]"), self._tokenizer.token_to_id("[SEP]")
        if cls is None or sep is None:
            raise WordpieceError(f"{path} has no [CLS] and [SEP] tokens: it is not a BERT vocabulary")
        self._cls, self._sep, self._max_length = cls, sep, max_length
        self._pieces = lru_cache(WORDS_KEPT)(self._encode)

    @property
    def vocabulary_size(self) -> int:
        return int(self._tokenizer.get_vocab_size())

    def encode(self, sentence: Sentence) -> WordpieceEncoding:
        """Words are split beforehand, each followed by its punctuation as a word of its own."""
        ids, places = [self._cls], []
        for word in sentence.words:
            pieces = self._pieces(word.text)
            places.append(len(ids) if pieces else self._max_length)
            ids += pieces
            for mark in word.punctuation:
                ids += self._pieces(mark)
        end = min(len(ids), self._max_length - 1)
        return WordpieceEncoding([*ids[:end], self._sep], [min(place, end) for place in places])

    def _encode(self, word: str) -> list[int]:
        return list(self._tokenizer.encode([word], is_pretokenized=True, add_special_tokens=False).ids)
