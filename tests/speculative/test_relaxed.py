"""What sets tolerance, top-k and bias apart."""

from __future__ import annotations

import numpy as np

from tests.speculative.toy import TRIALS, fits
from tts_engine.speculative import RULES, Accepted, Draft
from tts_engine.speculative.drawing import draw

V = 9
EOS = 0

# Three branches: 1, 1-2, 1-3 and 4-5; depth 2.
FORK = (np.array([[1, 2, 3, 4, 5]]), np.array([-1, 0, 0, -1, 3]))
# Three samples at the root: 1, 4, 4 with these random numbers and probabilities; behind 1: 8, 2, 3; behind 4: 8, 5, 5.
SPREAD = np.zeros((1, 6, V))
SPREAD[0, 0, [1, 4]] = 0.3, 0.7
SPREAD[0, 1, [2, 3, 8]] = 0.5, 0.3, 0.2
SPREAD[0, 4, [5, 8]] = 0.6, 0.4
SPREAD[0, [2, 3, 5], 7] = 1
BOTH = np.array([[[0.1], [0.9], [0.5]]])


def tolerate(uniforms: np.ndarray, target: np.ndarray = SPREAD, tau: int = 3, eos: int = EOS) -> Accepted:
    return RULES["tolerance"].verify(Draft(*FORK), target, uniforms, tolerance=tau, eos=eos)


def test_tolerance_takes_the_longest_branch() -> None:
    """1 and 4 are both accepted and 4 is likelier, but no sample behind 4 is 5; those behind 1 are 8, 2, 3."""
    target = SPREAD.copy()
    target[0, 4] = np.eye(V)[8]
    assert tolerate(BOTH, target).nodes.tolist() == [[0, 1]]
    target[0, 1, [2, 3, 8]] = 0, 0.8, 0.2  # now 8, 3, 3
    assert tolerate(BOTH, target).nodes.tolist() == [[0, 2]]


def test_then_the_most_probable() -> None:
    """4-5 (0.7 x 0.6) before 1-2 (0.3 x 0.5) before 1-3 (0.3 x 0.3), though 1-2 lies further to the left."""
    assert tolerate(BOTH).nodes.tolist() == [[3, 4]]
    target = SPREAD.copy()
    target[0, 0, [1, 4]] = 0.8, 0.2
    assert tolerate(np.array([[[0.2], [0.7], [0.5]]]), target).nodes.tolist() == [[0, 1]]


def test_then_the_leftmost() -> None:
    target = SPREAD.copy()
    target[0, 1, [2, 3, 8]] = 0.4, 0.4, 0.2
    target[0, 0] = np.eye(V)[1]
    assert tolerate(np.array([[[0.5], [0.7], [0.5]]]), target).nodes.tolist() == [[0, 1]]


def test_fewer_samples_accept_less() -> None:
    assert tolerate(BOTH, tau=1).tokens.tolist() == [[1, 8, -1]]  # the first samples: 1, then 8, the next token
    assert tolerate(BOTH, tau=2).nodes.tolist() == [[3, 4]]  # 1, 4; behind 4: 8, 5; behind 1: 8, 2 as well
    assert tolerate(BOTH, tau=2).tokens.tolist() == [[4, 5, 7]]


def test_tolerance_accepts_as_much_as_tau_samples_can() -> None:
    """The union bound, min(1, τ p); and each of the samples is one of the target's: the next token is the first."""
    p = np.array([0.2, 0.5, 0.3])
    target = np.tile(p, (TRIALS, 2, 1))
    u = np.random.default_rng(37).random((TRIALS, 2, 1))
    for tau, token in [(tau, token) for tau in (1, 2, 3, 4) for token in range(3)]:
        draft = Draft.chain(np.full((TRIALS, 1), token))
        outcome = RULES["tolerance"].verify(draft, target, u, tolerance=tau, eos=9)
        hits, rate = int(outcome.lengths.sum()), min(1.0, tau * p[token])
        assert hits == TRIALS if rate == 1 else fits(np.array([hits, TRIALS - hits]), np.array([rate, 1 - rate]))
        refused = outcome.next_tokens[outcome.lengths == 0]
        first = u[outcome.lengths == 0, 0, 0]
        np.testing.assert_array_equal(refused, draw(target[: len(first), 0], first))


def test_nothing_is_accepted_behind_an_end_of_sentence() -> None:
    """With 4 as the end the branch 4-5 counts one token, so the two of 1-2 win."""
    assert tolerate(BOTH, eos=4).nodes.tolist() == [[0, 1]]
    outcome = RULES["top_k"].verify(Draft(*FORK), SPREAD, np.zeros((1, 3, 1)), k=3, eos_k=3, eos=4)
    assert outcome.nodes.tolist() == [[0, 1]]


def test_top_k_is_membership_and_the_failing_token_is_resampled() -> None:
    target = np.tile(np.array([0.4, 0.3, 0.2, 0.1, 0.0]), (TRIALS, 2, 1))
    u = np.random.default_rng(38).random((TRIALS, 2, 1))
    for token, k, accepted in [(2, 3, True), (2, 2, False), (3, 3, False), (4, 5, False)]:
        draft = Draft.chain(np.full((TRIALS, 1), token))
        outcome = RULES["top_k"].verify(draft, target, u, k=k, eos_k=1, eos=EOS)
        assert (outcome.lengths == accepted).all()
        # From the target itself, the refused token included; behind an accepted one from the next position's.
        assert fits(np.bincount(outcome.next_tokens, minlength=5), target[0, int(accepted)])


def test_an_end_of_sentence_has_its_own_k() -> None:
    target = np.tile(np.array([0.4, 0.3, 0.2, 0.1]), (4, 2, 1))
    draft = Draft.chain(np.array([[0], [1], [1], [2]]))
    outcome = RULES["top_k"].verify(draft, target, np.zeros((4, 2, 1)), k=3, eos_k=np.array([1, 1, 2, 1]), eos=1)
    assert outcome.lengths.tolist() == [1, 0, 1, 1]


def test_bias_is_added_to_the_ratio_except_for_an_end_of_sentence() -> None:
    target = np.tile(np.array([0.2, 0.5, 0.3]), (TRIALS, 2, 1))
    probs = np.tile(np.array([0.4, 0.2, 0.4]), (TRIALS, 1, 1))
    u = np.random.default_rng(39).random((TRIALS, 2, 2))
    for q, token, eos, rate in [
        (probs, 2, EOS, 0.75 + 0.1),
        (probs, 0, EOS, 0.5),
        (None, 2, EOS, 0.3 + 0.1),
        (None, 2, 2, 0.3),
    ]:
        draft = Draft.chain(np.full((TRIALS, 1), token), q)
        outcome = RULES["bias"].verify(draft, target, u, bias=0.1, eos=eos)
        hits = int(outcome.lengths.sum())
        assert fits(np.array([hits, TRIALS - hits]), np.array([rate, 1 - rate]))


def test_bias_of_siblings_in_turn() -> None:
    """Each sibling's probability under what the refused ones left, plus the constant; then what is left."""
    p, bias = np.array([0.1, 0.2, 0.3, 0.4]), 0.15
    first = p[1] + bias
    second = (1 - first) * (p[2] / (1 - p[1]) + bias)
    rest = (1 - first - second) * np.array([p[0], 0, 0, p[3]]) / (p[0] + p[3])
    draft = Draft(np.tile([1, 2], (TRIALS, 1)), np.array([-1, -1]))
    u = np.random.default_rng(40).random((TRIALS, 2, 2))
    outcome = RULES["bias"].verify(draft, np.tile(p, (TRIALS, 3, 1)), u, bias=bias, eos=0)
    counts = np.bincount(outcome.tokens[:, 0], minlength=4)
    assert fits(counts, rest + np.array([0, first, second, 0]))
