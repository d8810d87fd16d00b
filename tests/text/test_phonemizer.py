# ruff: noqa: RUF001  (look-alike characters are the subject here)
from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from tts_engine.text.phonemizer import Phonemizer, inventory
from tts_engine.text.symbols import PUNCTUATION, SPACE, UNKNOWN, symbol_table


@pytest.fixture(scope="module")
def phonemizer() -> Phonemizer:
    return Phonemizer()


@pytest.mark.parametrize(
    ("word", "phones"),
    [
        ("cat", "k ˈæ t"),
        ("birch", "b ˈɜː tʃ"),
        ("a", "ə"),
        ("ay", "ˈeɪ"),
        ("the", "ð ə"),
        ("of", "ʌ v"),
        ("i", "ˈaɪ"),
        ("don't", "d ˈoʊ n t"),
        ("canoe", "k ə n ˈuː"),
    ],
)
def test_phones_of_words(phonemizer: Phonemizer, word: str, phones: str) -> None:
    assert phonemizer.phonemes(word) == tuple(phones.split())


def test_nothing_to_say_has_no_phones(phonemizer: Phonemizer) -> None:
    assert phonemizer.phonemes("") == ()
    assert phonemizer.phonemes("'") == ()


def test_phones_outside_the_table_go_to_their_nearest() -> None:
    poor = Phonemizer(["k", "æ", "t", UNKNOWN])  # no stressed vowel, no "d"
    assert poor.phonemes("cat") == ("k", "æ", "t")
    assert poor.phonemes("dot") == (UNKNOWN, UNKNOWN, "t")


def test_threads_get_what_one_thread_gets(phonemizer: Phonemizer) -> None:
    words = [
        f"{head}{tail}" for head in ("bro", "spla", "mu", "ti", "crea") for tail in ("ken", "shing", "ter", "s")
    ] * 5
    fresh = Phonemizer()
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(fresh.phonemes, words)) == [phonemizer.phonemes(word) for word in words]


def test_inventory_collects_and_drops_rare_phones() -> None:
    assert inventory(["cat", "at"]) == sorted({"k", "ˈæ", "æ", "t"} & {*inventory(["cat"]), *inventory(["at"])})
    assert inventory(["cat", "cap"], min_words=2) == ["k", "ˈæ"]


def test_the_voices_table_is_in_its_fixed_order(table: list[str]) -> None:
    assert table[: len(PUNCTUATION) + 2] == [*PUNCTUATION, SPACE, UNKNOWN]
    assert table == symbol_table(table)
    assert len(table) == len(set(table))
