"""What `exact` emits is distributed as the target's own tokens; the same check finds every term that is left out."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from tests.speculative.toy import TRIALS, V, Verify, fits, joint, sampled_chain, tables, target_probs, triples
from tts_engine.speculative import Accepted, Draft, exact, tolerance
from tts_engine.speculative import bias as bias_rule
from tts_engine.speculative.drawing import draw
from tts_engine.speculative.sequential import Stand

TARGET, PROPOSAL = tables(1), tables(2)
NOBODY = -1  # no token is the end of a sentence
#   root ── 2 ── 0
#      │     └── 3
#      └─── 0 ── 1
BRANCHES = (np.array([2, 0, 0, 3, 1]), np.array([-1, -1, 0, 0, 1]))


def branching() -> Draft:
    return Draft(np.tile(BRANCHES[0], (TRIALS, 1)), BRANCHES[1])


def test_the_check_itself_tells_close_distributions_apart() -> None:
    rng = np.random.default_rng(0)
    law = joint(TARGET).ravel()
    draws = np.bincount(draw(np.tile(law, (TRIALS, 1)), rng.random(TRIALS)), minlength=law.size)
    other = 0.97 * law + 0.03 / law.size
    assert fits(draws, law)
    assert not fits(draws, other)


@pytest.mark.parametrize("seed", [3, 4])
def test_a_chain_with_draft_probabilities(seed: int) -> None:
    counts = triples(exact.verify, sampled_chain(PROPOSAL, seed), TARGET, seed, 2)
    assert fits(counts, joint(TARGET))


def test_a_chain_of_float32_probabilities() -> None:
    draft = sampled_chain(PROPOSAL, 5)
    assert draft.probs is not None
    draft = Draft.chain(draft.token_ids, draft.probs.astype(np.float32))

    def verify(draft: Draft, target: np.ndarray, uniforms: np.ndarray) -> Accepted:
        return exact.verify(draft, target.astype(np.float32), uniforms)

    assert fits(triples(verify, draft, TARGET, 5, 2), joint(TARGET))


@pytest.mark.parametrize("seed", [6, 7])
def test_a_tree_of_deterministic_siblings(seed: int) -> None:
    assert fits(triples(exact.verify, branching(), TARGET, seed, 2), joint(TARGET))


def test_the_joint_law_is_that_of_siblings_tried_in_turn() -> None:
    """SpecInfer's sequential sampling written out: which sibling, or which recovered token, and how often."""
    p, siblings = TARGET[0], [2, 0]
    expected, left, refused = np.zeros((3, V)), p.copy(), 1.0
    for place, token in enumerate(siblings):
        accept = left[token]
        expected[place, token] = refused * accept
        refused *= 1 - accept
        left[token] = 0
        left /= left.sum()
    expected[2] = refused * left
    outcome = exact.verify(
        draft := branching(), target_probs(draft, TARGET), np.random.default_rng(8).random((TRIALS, 3, 2))
    )
    counts = np.zeros((3, V))
    np.add.at(counts, (outcome.nodes[:, 0], outcome.tokens[:, 0]), 1)  # node -1 is the last row
    assert fits(counts, expected)


def test_a_perfect_draft_model_is_always_accepted() -> None:
    draft = sampled_chain(TARGET, 9, 5000)
    outcome = exact.verify(draft, target_probs(draft, TARGET), np.random.default_rng(9).random((5000, 3, 2)))
    assert (outcome.lengths == 2).all()


def test_acceptance_rate_is_the_overlap() -> None:
    """Leviathan et al., theorem 3.5: the expected acceptance is the sum of min(p, q)."""
    draft = sampled_chain(PROPOSAL, 10)
    outcome = exact.verify(draft, target_probs(draft, TARGET), np.random.default_rng(10).random((TRIALS, 3, 2)))
    overlap = np.minimum(TARGET[0], PROPOSAL[0]).sum()
    assert fits(
        np.array([outcome.accepted[:, 0].sum(), (~outcome.accepted[:, 0]).sum()]), np.array([overlap, 1 - overlap])
    )


def test_deterministic_proposals_leave_the_tokens_as_they_are_without_speculation() -> None:
    """Not only in law: each depth's token is the one that drawing with its first random number gives."""
    draft = branching()
    target = target_probs(draft, TARGET)
    uniforms = np.random.default_rng(11).random((TRIALS, 3, 2))
    outcome = exact.verify(draft, target, uniforms)
    every = np.arange(TRIALS)
    node = np.full(TRIALS, -1)
    for depth in range(3):
        alive = outcome.lengths >= depth
        plain = draw(target[every, node + 1], uniforms[:, depth, 0])
        np.testing.assert_array_equal(outcome.tokens[alive, depth], plain[alive])
        if depth < 2:
            node = outcome.nodes[:, depth]


def token_for_certain(target: np.ndarray, draft: np.ndarray, token: np.ndarray) -> np.ndarray:
    return np.ones(len(token))


def target_alone(target: np.ndarray, draft: np.ndarray, token: np.ndarray) -> np.ndarray:
    return target[np.arange(len(token)), token]


def target_as_residual(target: np.ndarray, draft: np.ndarray) -> np.ndarray:
    return target


def difference_both_ways(target: np.ndarray, draft: np.ndarray) -> np.ndarray:
    return np.abs(target - draft)


@pytest.mark.parametrize(
    ("piece", "mutant"),
    [
        ("ratio", token_for_certain),
        ("ratio", target_alone),
        ("residual", target_as_residual),
        ("residual", difference_both_ways),
    ],
)
def test_chain_mutants_are_found(monkeypatch: pytest.MonkeyPatch, piece: str, mutant: Callable[..., Any]) -> None:
    monkeypatch.setattr(exact, piece, mutant)
    assert not fits(triples(exact.verify, sampled_chain(PROPOSAL, 3), TARGET, 3, 2), joint(TARGET))


def drawn_afresh(stand: Stand) -> tuple[np.ndarray, np.ndarray]:
    """The recovered token from the target instead of what the refused siblings left."""
    place = exact.first(stand.tokens == draw(stand.target, stand.uniforms[:, 0])[:, None])
    return place, draw(stand.target, stand.uniforms[:, 1])


def not_normalised(stand: Stand) -> tuple[np.ndarray, np.ndarray]:
    """Siblings in turn, each with its own probability as if none had been refused before."""
    rows = np.arange(len(stand.tokens))
    left = stand.target.copy()
    accepted = np.zeros(stand.tokens.shape, dtype=bool)
    for place, token in enumerate(stand.tokens.T):
        accepted[:, place] = (stand.uniforms[:, 1 + place] < stand.target[rows, token]) & (token >= 0)
        left[rows[token >= 0], token[token >= 0]] = 0
    return exact.first(accepted), draw(left, stand.uniforms[:, 0])


def first_sibling_only_leaves(stand: Stand) -> tuple[np.ndarray, np.ndarray]:
    """The residual takes the first refused sibling out of the target and forgets the others."""
    rows = np.arange(len(stand.tokens))
    place = exact.first(stand.tokens == draw(stand.target, stand.uniforms[:, 0])[:, None])
    left = stand.target.copy()
    some = stand.tokens[:, 0] >= 0
    left[rows[some], stand.tokens[some, 0]] = 0
    return place, draw(left, stand.uniforms[:, 1])


@pytest.mark.parametrize("mutant", [drawn_afresh, not_normalised, first_sibling_only_leaves])
def test_tree_mutants_are_found(monkeypatch: pytest.MonkeyPatch, mutant: Callable[..., Any]) -> None:
    monkeypatch.setattr(exact, "match", mutant)
    assert not fits(triples(exact.verify, branching(), TARGET, 6, 3), joint(TARGET))


@pytest.mark.parametrize("name", ["tolerance", "bias", "bias with probs"])
def test_rules_that_are_not_lossless_are_found_to_be_so(name: str) -> None:
    verify: Verify = partial(tolerance.verify, tolerance=2, eos=NOBODY)
    if name != "tolerance":
        verify = partial(bias_rule.verify, bias=0.05, eos=NOBODY)
    draft = sampled_chain(PROPOSAL, 3) if name == "bias with probs" else branching()
    assert not fits(triples(verify, draft, TARGET, 6, 4), joint(TARGET))


def test_probabilities_with_siblings_are_refused() -> None:
    draft = Draft(np.array([[0, 1]]), np.array([-1, -1]), np.full((1, 2, V), 1 / V))
    with pytest.raises(ValueError, match="draft probabilities are for chains"):
        exact.verify(draft, np.full((1, 3, V), 1 / V), np.zeros((1, 2, 2)))
