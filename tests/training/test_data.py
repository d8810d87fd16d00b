"""Texts, the teacher's word times, and how an utterance becomes a training example."""

from __future__ import annotations

import numpy as np
import pytest

from training.data import continuous_f0
from training.lm_data import Buckets, Example, collate, pointer
from training.texts import harvard_sentences, words_of
from tts_engine.prompt import Vocabulary
from tts_engine.text import Word


def test_pointer_walks_the_prompt_in_step_with_the_teacher() -> None:
    words = [Word("ab", ("a", "b"), ()), Word("c", ("c",), (".",))]
    track = pointer(words, [[0.1, 0.5], [0.5, 0.9]], 50)
    # prompt: bos a b space c . soa → positions 0 … 6
    assert (np.diff(track) >= 0).all()
    assert track[0] == pytest.approx(0.5)
    assert 0.5 < track[8] < 1.5  # the first half of the first word: phoneme a, position 1
    assert 1.5 < track[20] < 2.6
    assert 3.5 <= track[30] <= 4.5
    assert track[49] >= 5


def example(length: int, codes: int) -> Example:
    prompt = np.zeros((length, 4), np.int64)
    prompt[:, 0] = 2
    return Example(prompt, np.arange(codes, dtype=np.int64), np.zeros(codes, np.float32))


def test_collate_predicts_every_code_then_eos_and_nothing_else() -> None:
    vocabulary = Vocabulary.from_phonemes([" ", "a"])
    batch = collate([example(5, 7), example(4, 3)], vocabulary, np.random.default_rng(0), noise=0.0)
    assert batch.tokens.shape == (2, 12, 4)
    assert batch.targets[1].tolist() == [-1, -1, -1, 1, 2, 3, 0, -1, -1, -1, -1, -1]
    assert batch.tokens[0, 5:, 0].tolist() == [vocabulary.audio_offset + c for c in range(7)]


def test_input_noise_moves_codes_to_grid_neighbours_and_leaves_targets() -> None:
    vocabulary = Vocabulary.from_phonemes([" ", "a"])
    clean = example(2, 4096)
    batch = collate([clean], vocabulary, np.random.default_rng(0), noise=1.0)
    noisy = batch.tokens[0, 2:, 0].numpy() - vocabulary.audio_offset
    digits = [(codes[:, None] // 8 ** np.arange(4)) % 8 for codes in (noisy, clean.codes)]
    assert (np.abs(digits[0] - digits[1]).sum(1) == 1).all()
    assert (batch.targets[0, 1:-1].numpy() - 1 == clean.codes).all()


def test_buckets_hold_the_ceiling_and_the_budget() -> None:
    buckets = Buckets([example(10, n) for n in range(10, 200)], budget=1000)
    random = np.random.default_rng(0)
    for ceiling in (40, 120, np.inf):
        for _ in range(50):
            lengths = [len(e.prompt) + len(e.codes) for e in buckets.draw(random, ceiling)]
            assert max(lengths) <= ceiling
            assert len(lengths) * max(lengths) <= 1000


def test_f0_is_carried_through_unvoiced_stretches() -> None:
    track = continuous_f0(np.array([0, 100, 0, 120, 0], np.float32))
    assert track.tolist() == [100, 100, 110, 120, 120]
    assert continuous_f0(np.zeros(3, np.float32)).tolist() == [100, 100, 100]


def test_evaluation_sentences_are_the_hundred_of_lists_one_to_ten() -> None:
    sentences = harvard_sentences()
    assert len(sentences) == len(set(sentences)) == 100
    assert words_of(sentences[0]) == ("the", "birch", "canoe", "slid", "on", "the", "smooth", "planks")
