"""Words to phones by espeak-ng (en-us), through its library.

espeak is asked **one word at a time**. Given whole sentences it joins and splits words as it likes, and
the number of phones a word got can then only be guessed; prosody labels are repeated over a word's phones
by those counts (incremental TTS, 2.1.1), so the counts must be exact. It also makes every word cacheable.
What is lost, the weak forms of function words in context, the speech LM learns from its data.

A symbol is a phone with its stress ("ˈæ"); diphthongs and r-coloured vowels are one symbol.
"""

# ruff: noqa: RUF001  (look-alike characters are the subject here)
from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache

from tts_engine.text.symbols import UNKNOWN, simplified

# espeak names the letter where the article is meant; the normaliser writes the letter's name "ay".
USUAL_FORMS: dict[str, tuple[str, ...]] = {"a": ("ə",), "ay": ("ˈeɪ",)}
MAX_WORD_LETTERS = 32  # a longer one is cut by the tokenizer; here only a guard
CACHE_WORDS = 65_536
_PHONE_SEPARATOR = "|"


class PhonemizerError(RuntimeError):
    """espeak cannot be used; the message says what to install."""


class Phonemizer:
    """Phones of single words, cached; safe to call from several threads.

    `table`: the voice's symbols; phones it lacks are replaced by the nearest it has, or `<unk>`. None keeps all.
    Creating one loads espeak (about 0.1 s), so create it once, at start. Raises `PhonemizerError`.
    """

    def __init__(self, table: Iterable[str] | None = None) -> None:
        self._table = None if table is None else frozenset(table)
        self._lock = threading.Lock()  # the library is one set of global variables
        self._backend, self._separator = _espeak()
        self._cached = lru_cache(CACHE_WORDS)(self._phonemes)
        self._nearest = lru_cache(1024)(self._in_table)
        self._cached("warm")

    def phonemes(self, word: str) -> tuple[str, ...]:
        """Phones of one lower-case word (letters and apostrophes); empty where there is nothing to say."""
        return self._cached(word[:MAX_WORD_LETTERS])

    def _phonemes(self, word: str) -> tuple[str, ...]:
        usual = USUAL_FORMS.get(word)
        phones = list(usual) if usual else self._ask(word)
        return tuple(phones if self._table is None else map(self._nearest, phones))

    def _ask(self, word: str) -> list[str]:
        with self._lock:
            spoken = self._backend.phonemize([word], separator=self._separator, strip=True)
        text = spoken[0] if spoken else ""
        return [phone for phone in text.replace(" ", _PHONE_SEPARATOR).split(_PHONE_SEPARATOR) if phone]

    def _in_table(self, phone: str) -> str:
        assert self._table is not None
        if phone in self._table:
            return phone
        return next((form for form in simplified(phone) if form in self._table), UNKNOWN)


def inventory(words: Iterable[str], min_words: int = 1) -> list[str]:
    """All phones of `words`, sorted; those of fewer than `min_words` words are left out."""
    phonemizer = Phonemizer()
    counts: Counter[str] = Counter()
    for word in words:
        counts.update(set(phonemizer.phonemes(word)))
    return sorted(phone for phone, count in counts.items() if count >= min_words)


def _espeak():  # type: ignore[no-untyped-def]  # phonemizer ships no types
    try:
        import espeakng_loader
        from phonemizer.backend import EspeakBackend
        from phonemizer.backend.espeak.wrapper import EspeakWrapper
        from phonemizer.separator import Separator

        EspeakWrapper.set_library(espeakng_loader.get_library_path())
        EspeakWrapper.set_data_path(espeakng_loader.get_data_path())
        logger = logging.getLogger(__name__)
        logger.setLevel(logging.ERROR)  # it warns about every foreign word
        backend = EspeakBackend(
            "en-us", with_stress=True, language_switch="remove-flags", words_mismatch="ignore", logger=logger
        )
    except (ImportError, OSError, RuntimeError) as error:
        raise PhonemizerError(
            f"espeak cannot be loaded: run `pip install phonemizer-fork espeakng-loader` ({error})"
        ) from error
    return backend, Separator(phone=_PHONE_SEPARATOR, word=" ", syllable="")
