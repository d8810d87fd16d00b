"""The language model's vocabulary and how a sentence becomes a prompt. Pure numpy: training and serving share it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

CHANNELS = 4  # phoneme, prosodic word, phonological phrase, intonational phrase
PROSODY_LEVELS = 3
SPACE = " "


class WordLike(Protocol):
    """What a prompt needs of a word."""

    @property
    def phonemes(self) -> Sequence[str]: ...
    @property
    def punctuation(self) -> Sequence[str]: ...


class SentenceLike(Protocol):
    """What a prompt needs of a sentence."""

    @property
    def words(self) -> Sequence[WordLike]: ...


@dataclass(frozen=True)
class Vocabulary:
    """One id space for everything the language model reads (docs/ARCHITECTURE.md, "Unified vocabulary").

    `0` pad · `1` bos · `2` soa · phonemes · 6 prosody ids · eos (`logit_offset`) · codes (`logit_offset + 1 + code`).
    The model's logits are the last part: logit 0 is eos, logit `1 + c` is code `c`.
    """

    pad_id: int
    bos_id: int
    soa_id: int
    phoneme_offset: int
    phonemes: tuple[str, ...]
    prosody_offset: int
    logit_offset: int
    codebook_size: int

    def __post_init__(self) -> None:
        if len(set(self.phonemes)) != len(self.phonemes):
            raise ValueError("the phoneme table lists a symbol twice; make its entries unique")
        if SPACE not in self.phonemes:
            raise ValueError('the phoneme table lacks the space symbol " "; add it')
        if self.prosody_offset < self.phoneme_offset + len(self.phonemes):
            raise ValueError("prosody_offset overlaps the phonemes; compute offsets with Vocabulary.from_phonemes")
        if self.logit_offset < self.prosody_offset + 2 * PROSODY_LEVELS:
            raise ValueError("logit_offset overlaps the prosody ids; compute offsets with Vocabulary.from_phonemes")

    @classmethod
    def from_phonemes(cls, phonemes: Sequence[str], codebook_size: int = 4096) -> Vocabulary:
        """The standard layout for a phoneme table (which holds `" "` and the punctuation symbols too)."""
        phoneme_offset = 3
        prosody_offset = phoneme_offset + len(phonemes)
        return cls(
            pad_id=0,
            bos_id=1,
            soa_id=2,
            phoneme_offset=phoneme_offset,
            phonemes=tuple(phonemes),
            prosody_offset=prosody_offset,
            logit_offset=prosody_offset + 2 * PROSODY_LEVELS,
            codebook_size=codebook_size,
        )

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Vocabulary:
        """Read the vocabulary's keys out of a mapping (voice.json holds more); KeyError names a missing one."""
        numbers = {name: int(fields[name]) for name in cls.__dataclass_fields__ if name != "phonemes"}
        return cls(phonemes=tuple(fields["phonemes"]), **numbers)

    def to_dict(self) -> dict[str, Any]:
        """The keys as they stand in voice.json (JSON types only)."""
        return asdict(self) | {"phonemes": list(self.phonemes)}

    @property
    def eos_id(self) -> int:
        return self.logit_offset

    @property
    def audio_offset(self) -> int:
        """Input id of audio code 0."""
        return self.logit_offset + 1

    @property
    def logit_count(self) -> int:
        """V: number of logits (eos and the codes)."""
        return 1 + self.codebook_size

    @property
    def size(self) -> int:
        """Number of input ids = rows of the embedding table."""
        return self.logit_offset + self.logit_count

    @cached_property
    def phoneme_ids(self) -> dict[str, int]:
        """Symbol -> input id."""
        return {symbol: self.phoneme_offset + index for index, symbol in enumerate(self.phonemes)}


def prompt_ids(sentence: SentenceLike, prosody_levels: NDArray[Any], vocabulary: Vocabulary) -> NDArray[np.int64]:
    """The prompt of one sentence: `bos, phonemes…, soa`, each word's prosody labels repeated over its symbols.

    A word contributes its phonemes, then its punctuation; every word but the last is followed by a space symbol. All of
    them carry the word's labels (incremental_tts eq. 1: the model sums the four channels' embeddings).

    Args:
        sentence: anything with `words`, each with `phonemes` and `punctuation` symbols of the table.
        prosody_levels: int [W, 3], 0/1 for prosodic word, phonological phrase, intonational phrase of each word.
        vocabulary: the voice's ids.

    Returns:
        int64 [L, 4].

    Raises:
        ValueError: no words, a shape other than [W, 3], a label other than 0/1, or a symbol outside the table.
    """
    words = sentence.words
    levels = np.asarray(prosody_levels, dtype=np.int64)
    if not words:
        raise ValueError("a prompt needs at least one word; drop empty sentences before")
    if levels.shape != (len(words), PROSODY_LEVELS):
        raise ValueError(
            f"prosody_levels must be [{len(words)}, {PROSODY_LEVELS}] (one row a word), not {levels.shape}"
        )
    if ((levels < 0) | (levels > 1)).any():
        raise ValueError("prosody labels must be 0 or 1")
    table = vocabulary.phoneme_ids
    symbols: list[int] = []
    counts: list[int] = []
    try:
        for index, word in enumerate(words):
            ids = [table[symbol] for symbol in word.phonemes]
            ids += [table[symbol] for symbol in word.punctuation]
            if index + 1 < len(words):
                ids.append(table[SPACE])
            symbols += ids
            counts.append(len(ids))
    except KeyError as error:
        raise ValueError(f"symbol {error.args[0]!r} is not in the voice's phoneme table") from error
    prompt = np.full((len(symbols) + 2, CHANNELS), vocabulary.pad_id, dtype=np.int64)
    prompt[0, 0] = vocabulary.bos_id
    prompt[-1, 0] = vocabulary.soa_id
    prompt[1:-1, 0] = symbols
    level_ids = vocabulary.prosody_offset + 2 * np.arange(PROSODY_LEVELS) + levels
    prompt[1:-1, 1:] = np.repeat(level_ids, counts, axis=0)
    return prompt
