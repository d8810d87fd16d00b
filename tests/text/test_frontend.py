# ruff: noqa: RUF001  (look-alike characters are the subject here)
from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from tests.text.conftest import WORDPIECE
from tts_engine.prompt import Vocabulary, prompt_ids
from tts_engine.text import Sentence, TextFrontend, WordpieceError
from tts_engine.text.segmenter import MAX_CHARS, MAX_SYMBOLS, Segmenter
from tts_engine.text.symbols import PUNCTUATION
from tts_engine.text.wordpiece import MAX_LENGTH

# Characters that take part in some rule, densely.
TRICKY = st.text(alphabet="aAbI0159 .,-:/'$%@#&()?!\n\t\"—–½€°éЖ日😀\u200b\x00\\[]{}<>_~^`|=+*", max_size=60)
MAX_WORD_SYMBOLS = 100  # 32 letters, each named, and punctuation: what one word can come to


def check(sentence: Sentence, table: set[str]) -> None:
    assert sentence.words
    assert sentence.words[-1].punctuation
    symbols = 0
    for word in sentence.words:
        assert word.text and word.text == word.text.lower() and word.text.isascii()
        assert word.phonemes and set(word.phonemes) <= table
        assert len(word.punctuation) <= 2 and set(word.punctuation) <= set(PUNCTUATION)
        symbols += len(word.phonemes) + len(word.punctuation) + 1
    assert len(sentence.words) == 1 or (len(sentence.text) <= MAX_CHARS + 2 and symbols <= MAX_SYMBOLS + 2)
    assert symbols <= max(MAX_SYMBOLS + 2, MAX_WORD_SYMBOLS)


@settings(max_examples=300, deadline=None)
@given(text=st.one_of(TRICKY, st.text(max_size=80)))
def test_any_text_gives_bounded_sentences_of_known_symbols(frontend: TextFrontend, table: list[str], text: str) -> None:
    for sentence in frontend.sentences(text):
        check(sentence, set(table))
        encoding = frontend.encode(sentence)
        assert len(encoding.first_piece) == len(sentence.words)
        assert encoding.first_piece == sorted(set(encoding.first_piece))
        assert encoding.first_piece[0] > 0 and encoding.first_piece[-1] < len(encoding.input_ids) - 1 <= MAX_LENGTH


SILENT = ("", " \n\t ", "...", "?!", "😀", "\x00\x01", "---", "\ud800", "''''", "\u200b", "." * 100_000, "( " * 50_000)


@pytest.mark.parametrize("text", SILENT, ids=[ascii(text[:8]) for text in SILENT])
def test_nothing_speakable_gives_no_sentences(frontend: TextFrontend, text: str) -> None:
    assert frontend.sentences(text) == []


@pytest.mark.parametrize("text", ["a" * 3000, "1" * 3000, "word " * 600, "no,stop;here " * 200, "É" * 500, "日" * 400])
def test_endless_text_is_cut_into_pieces_that_fit(frontend: TextFrontend, table: list[str], text: str) -> None:
    sentences = frontend.sentences(text)
    assert len(sentences) > 1
    for sentence in sentences:
        check(sentence, set(table))


def test_long_sentences_are_cut_at_their_commas_and_lose_no_word(frontend: TextFrontend) -> None:
    clause = "the small boat went slowly down the quiet river"
    text = ", ".join([clause] * 12) + "."
    sentences = frontend.sentences(text)
    assert [word.text for sentence in sentences for word in sentence.words] == clause.split() * 12
    assert all(sentence.text.endswith("river,") for sentence in sentences[:-1])
    assert sentences[-1].text.endswith("river.")


def test_without_commas_it_is_cut_before_a_conjunction(frontend: TextFrontend) -> None:
    text = " and ".join(["the small boat went slowly down the quiet river"] * 8)
    first, second, *_ = frontend.sentences(text)
    assert first.words[-1].text == "river"
    assert second.words[0].text == "and"


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("Dr. Smith met Mr. Jones. They left.", 2),
        ("He paid $3.50 for it. It was good.", 2),
        ("We met at 5 p.m. He left.", 2),
        ("The U.S. is big. It is.", 2),
        ("J. R. Smith left! Why? Nobody knows.", 3),
        ("He came, e.g. on Sunday, to No. 5 Main St. near the sea.", 1),
        ("One line\nand its end.", 1),
        ("A title\n\nAnd a text.", 2),
        ("Wait... what is it? Go!", 2),
    ],
)
def test_segmentation(frontend: TextFrontend, text: str, count: int) -> None:
    assert len(frontend.sentences(text)) == count


def test_long_text_costs_the_segmenter_time_in_proportion() -> None:
    """Counted, not timed: characters handed to the quadratic library, for 5 kB and 20 kB."""

    def handed_over(text: str) -> tuple[int, int]:
        segmenter = Segmenter()
        sizes: list[int] = []
        inner = segmenter._segmenter.segment

        def counting(window: str) -> list[str]:
            sizes.append(len(window))
            return list(inner(window))

        segmenter._segmenter.segment = counting
        assert " ".join(segmenter.segments(text)) == text
        return sum(sizes), max(sizes)

    text = "The quick brown fox, as they say, jumps over Mr. Dog. He does not mind. "
    small, _ = handed_over((text * 70).strip())
    large, longest = handed_over((text * 280).strip())
    assert large <= 4.2 * small
    assert longest <= 1000


def test_iterate_gives_the_first_sentence_before_reading_the_rest(
    frontend: TextFrontend, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    normalize = frontend._normalizer.normalize

    def counting(text: str) -> str:
        read.append(text)
        return normalize(text)

    monkeypatch.setattr(frontend._normalizer, "normalize", counting)
    sentences = frontend.iterate("This is first. " + "Then 1 more. " * 400)
    assert next(sentences).text == "this is first."
    assert len(read) == 1
    assert len(list(sentences)) == 400


@settings(max_examples=30, deadline=None)
@given(
    words=st.lists(
        st.sampled_from(["the", "birch,", "canoe", "slid;", "on", "smooth", "planks?", "don't"]),
        min_size=1,
        max_size=12,
    )
)
def test_prosody_is_regulated_by_exact_counts(frontend: TextFrontend, table: list[str], words: list[str]) -> None:
    vocabulary = Vocabulary.from_phonemes(table)
    for sentence in frontend.sentences(" ".join(words)):
        labels = np.arange(len(sentence.words) * 3).reshape(-1, 3) % 2
        prompt = prompt_ids(sentence, labels, vocabulary)
        counts = [len(w.phonemes) + len(w.punctuation) + 1 for w in sentence.words]
        counts[-1] -= 1  # no space behind the last word
        assert len(prompt) == sum(counts) + 2
        said = vocabulary.prosody_offset + 2 * np.arange(3) + labels
        assert (prompt[1:-1, 1:] == np.repeat(said, counts, axis=0)).all()


@settings(max_examples=100, deadline=None)
@given(text=st.one_of(TRICKY, st.text(max_size=80), st.just("Unfathomable zyzzyvas, zyzzyvas don't think: 12.5 km?")))
def test_words_are_encoded_as_their_sentence_is(frontend: TextFrontend, text: str) -> None:
    """One by one and remembered, but as the tokenizer encodes all at once."""
    tokenizer = Tokenizer.from_file(str(WORDPIECE))
    for sentence in frontend.sentences(text):
        words = [part for word in sentence.words for part in (word.text, *word.punctuation)]
        whole = tokenizer.encode(words, is_pretokenized=True, add_special_tokens=False)
        assert frontend.encode(sentence).input_ids[1:-1] == whole.ids[: MAX_LENGTH - 2]


def test_encoding_points_at_first_pieces(frontend: TextFrontend) -> None:
    vocabulary = json.loads(WORDPIECE.read_text(encoding="utf-8"))["model"]["vocab"]
    pieces = {index: piece for piece, index in vocabulary.items()}
    (sentence,) = frontend.sentences("Unfathomable zyzzyvas, don't you think?")
    encoding = frontend.encode(sentence)
    names = [pieces[i] for i in encoding.input_ids]
    assert names[0] == "[CLS]" and names[-1] == "[SEP]"
    for word, start, end in zip(sentence.words, encoding.first_piece, [*encoding.first_piece[1:], -1], strict=True):
        assert "".join(names[start:end]).replace("##", "") == word.text + "".join(word.punctuation)


def test_encoding_without_a_vocabulary_says_what_to_do(table: list[str]) -> None:
    plain = TextFrontend(table)
    with pytest.raises(WordpieceError, match="wordpiece_path"):
        plain.encode(plain.sentences("hello")[0])
