"""The sampler draws from exactly the filtered softmax, row by row, in any company."""

from __future__ import annotations

import numpy as np
import pytest

from tts_engine.request import Settings
from tts_engine.sampling import Ahead, SamplingBatch, Scores, keep, sample, uniforms


def settings(temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0, seed: int = 0) -> Settings:
    return Settings(temperature, top_k, top_p, seed, 10.0, 16, 4)


def reference(logits: np.ndarray, temperature: float, top_k: int, top_p: float) -> np.ndarray:
    """The filtered distribution, written out for one row."""
    probabilities = np.exp((logits - logits.max()) / temperature)
    order = np.argsort(-probabilities)
    if top_k:
        probabilities[order[top_k:]] = 0
    probabilities /= probabilities.sum()
    mass = 0.0
    for token in order:
        if mass >= top_p:
            probabilities[token] = 0
        mass += probabilities[token]
    return probabilities / probabilities.sum()


def draws(logits: np.ndarray, one: Settings, count: int) -> np.ndarray:
    batch = SamplingBatch.from_settings([one] * count)
    u = uniforms(batch.keys, np.arange(count, dtype=np.uint64))
    return sample(Scores.of(np.tile(logits, (count, 1))), batch, u)


@pytest.mark.parametrize(
    ("temperature", "top_k", "top_p", "vocabulary"),
    [
        (1.0, 0, 1.0, 40),
        (0.7, 10, 1.0, 200),
        (1.3, 0, 0.8, 40),
        (0.9, 20, 0.9, 200),
        (1.0, 150, 0.95, 200),
        (1.0, 40, 1.0, 1101),
    ],
)
def test_chi_square_against_the_filtered_softmax(temperature: float, top_k: int, top_p: float, vocabulary: int) -> None:
    logits = np.random.default_rng(5).standard_normal(vocabulary).astype(np.float32) * 1.5
    expected = reference(logits.astype(np.float64), temperature, top_k, top_p)
    count = 20_000
    observed = np.bincount(draws(logits, settings(temperature, top_k, top_p, seed=11), count), minlength=vocabulary)
    assert observed[expected == 0].sum() == 0
    common = expected * count >= 5
    pairs = [(observed[common], expected[common] * count)]
    rare = ~common & (expected > 0)
    chi_square = sum(((o - e) ** 2 / e).sum() for o, e in pairs)
    if expected[rare].sum() * count >= 5:
        chi_square += (observed[rare].sum() - expected[rare].sum() * count) ** 2 / (expected[rare].sum() * count)
    freedom = common.sum()
    assert chi_square < freedom + 4.5 * np.sqrt(2 * freedom)  # about 4.5 standard deviations


def test_a_row_does_not_depend_on_its_company() -> None:
    rng = np.random.default_rng(1)
    rows = [
        settings(0, 5),
        settings(1.0, 50, 0.9, 1),
        settings(0.8, 100, 0.9, 2),
        settings(1.2, 0, 1, 3),
        settings(1, 3),
    ]
    logits = rng.standard_normal((len(rows), 500)).astype(np.float32)
    batch = SamplingBatch.from_settings(rows)
    counters = np.arange(len(rows), dtype=np.uint64)
    together = sample(Scores.of(logits), batch, uniforms(batch.keys, counters))
    for row, one in enumerate(rows):
        alone = SamplingBatch.from_settings([one])
        token = sample(Scores.of(logits[row : row + 1]), alone, uniforms(alone.keys, counters[row : row + 1]))
        assert token[0] == together[row]
    assert together[0] == logits[0].argmax()


@pytest.mark.parametrize("top_k", [32, 5, 0])
def test_what_is_excluded_leaves_the_distribution_of_the_others(top_k: int) -> None:
    """Wherever the token stands: first, in the middle, behind what the graph named."""
    logits = np.random.default_rng(3).standard_normal((4, 300)).astype(np.float32)
    order = np.argsort(-logits, axis=1)
    token = 7
    for row, rank in enumerate((0, 20, 200)):
        logits[row, [token, order[row, rank]]] = logits[row, [order[row, rank], token]]
    batch = SamplingBatch.from_settings([settings(1.0, top_k)] * 4)
    excluded = Scores.of(logits.copy())
    excluded.exclude(token, np.array([True, True, True, False]))
    kept = keep(excluded, batch)
    without = logits.copy()
    without[:3, token] = -1e30
    for row in range(4):
        expected = reference(without[row].astype(np.float64), 1.0, top_k, 1.0)
        dense = np.zeros(301)
        dense[kept.tokens[row]] += kept.probs[row]
        np.testing.assert_allclose(dense[:300], expected, atol=1e-12)
    assert (kept.tokens[3] == token).any() == (expected[token] > 0)


def test_rows_that_are_no_numbers_are_told_and_disturb_nobody() -> None:
    logits = np.random.default_rng(4).standard_normal((3, 100)).astype(np.float32)
    broken = Scores.of(logits.copy())
    broken.logits[1], broken.values[1] = np.nan, np.nan
    np.testing.assert_array_equal(broken.make_finite(), [True, False, True])
    batch = SamplingBatch.from_settings([settings(1.0, 10)] * 3)
    tokens = sample(broken, batch, np.full(3, 0.5))
    np.testing.assert_array_equal(tokens[[0, 2]], sample(Scores.of(logits), batch, np.full(3, 0.5))[[0, 2]])


def test_uniforms_are_reproducible_uniform_and_uncorrelated() -> None:
    keys = SamplingBatch.from_settings([settings(seed=1), settings(seed=2)]).keys
    counters = np.arange(50_000, dtype=np.uint64)
    first, second = (uniforms(np.full_like(counters, key), counters) for key in keys)
    assert first.min() >= 0
    assert first.max() < 1
    for numbers in (first, second):
        histogram = np.bincount((numbers * 50).astype(int), minlength=50)
        assert ((histogram - 1000.0) ** 2 / 1000).sum() < 49 + 4.5 * np.sqrt(98)
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.02
    assert abs(np.corrcoef(first[1:], first[:-1])[0, 1]) < 0.02
    np.testing.assert_array_equal(first, uniforms(np.full_like(counters, keys[0]), counters))


@pytest.mark.parametrize("uniform", [0.0, np.nextafter(1.0, 0.0)])
def test_extreme_random_numbers_stay_inside_the_kept_set(uniform: float) -> None:
    logits = np.array([[3.0, 2.0, 1.0, -50.0]], dtype=np.float32)
    batch = SamplingBatch.from_settings([settings(1.0, 0, 0.9)])
    assert sample(Scores.of(logits), batch, np.array([uniform]))[0] in (0, 1)


def test_numbers_made_ahead_are_those_of_each_step() -> None:
    """Step by step, past a block's end, back to an earlier step, and where one item has begun another sentence."""
    keys = np.array([3, 5, 8], dtype=np.uint64)
    ahead, counters = Ahead(keys), np.array([0, 7, 100], dtype=np.uint64)
    steps = [*range(2 * Ahead.STEPS + 3), 5, 6, 0]
    for step in steps:
        now = counters + np.uint64(step)
        np.testing.assert_array_equal(ahead.take(now), uniforms(keys, now))
    now = counters + np.array([1, 1 << 32, 1], dtype=np.uint64)
    np.testing.assert_array_equal(ahead.take(now), uniforms(keys, now))


@pytest.mark.parametrize("rows", [1, 7])
def test_one_draw_is_the_draw_from_what_is_kept(rows: int) -> None:
    """The short way of a plain step and the long one of acceptance rules, for the same random numbers."""
    chance = np.random.default_rng(6)
    for _ in range(200):
        scores = Scores.of(chance.normal(0, chance.uniform(0.1, 6), (rows, 300)).astype(np.float32))
        batch = SamplingBatch.from_settings(
            [
                settings(chance.uniform(0.1, 2), int(chance.integers(1, 33)), chance.choice([0.05, 0.9, 1.0]))
                for _ in range(rows)
            ]
        )
        uniform = chance.random(rows)
        np.testing.assert_array_equal(sample(scores, batch, uniform), keep(scores, batch).draw(uniform))
