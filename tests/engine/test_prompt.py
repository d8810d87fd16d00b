"""Prompt layout: order of symbols, labels regulated by counts, refusal of what the table does not know."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from tts_engine.prompt import Vocabulary, prompt_ids


@dataclass(frozen=True)
class FakeWord:
    phonemes: tuple[str, ...]
    punctuation: tuple[str, ...] = ()


@dataclass(frozen=True)
class FakeSentence:
    words: tuple[FakeWord, ...]


VOCABULARY = Vocabulary.from_phonemes([" ", ".", ",", "a", "b"], codebook_size=16)


def test_offsets_follow_each_other() -> None:
    assert VOCABULARY.prosody_offset == 3 + 5
    assert VOCABULARY.eos_id == VOCABULARY.logit_offset == 3 + 5 + 6
    assert VOCABULARY.size == 15 + 16
    assert Vocabulary.from_dict(VOCABULARY.to_dict() | {"name": "other keys are ignored"}) == VOCABULARY


def test_prompt_layout_written_out() -> None:
    sentence = FakeSentence((FakeWord(("a", "b"), (",",)), FakeWord(("b",), (".",))))
    prompt = prompt_ids(sentence, np.array([[1, 0, 0], [0, 1, 1]]), VOCABULARY)
    comma, dot, space, a, b = 5, 4, 3, 6, 7
    first, second = [9, 10, 12], [8, 11, 13]
    assert prompt.dtype == np.int64
    assert prompt.tolist() == [
        [1, 0, 0, 0],
        [a, *first],
        [b, *first],
        [comma, *first],
        [space, *first],
        [b, *second],
        [dot, *second],
        [2, 0, 0, 0],
    ]


@pytest.mark.parametrize(
    ("words", "levels", "message"),
    [
        ((), np.zeros((0, 3)), "at least one word"),
        ((FakeWord(("a",)),), np.zeros((2, 3)), "one row a word"),
        ((FakeWord(("a",)),), np.full((1, 3), 2), "0 or 1"),
        ((FakeWord(("?",)),), np.zeros((1, 3)), "not in the voice's phoneme table"),
    ],
)
def test_refusals_say_what_is_wrong(words: tuple[FakeWord, ...], levels: np.ndarray, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        prompt_ids(FakeSentence(words), levels, VOCABULARY)


def test_a_table_without_space_or_with_twins_is_refused() -> None:
    with pytest.raises(ValueError, match="space"):
        Vocabulary.from_phonemes(["a"])
    with pytest.raises(ValueError, match="twice"):
        Vocabulary.from_phonemes([" ", "a", "a"])
