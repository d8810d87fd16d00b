"""What every rule does alike, and which settings and pairs are refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.speculative.toy import sprout
from tts_engine.speculative import PROPOSERS, RULES, Accepted, Draft, Groups, check_pair
from tts_engine.speculative.drawing import draw

V = 9
EOS = 0
ROWS = 24
SINGLE = Groups(np.arange(V + 1), np.arange(V, dtype=np.int32), V)
OVERLAPPING = Groups.build(np.random.default_rng(30).standard_normal((V, 3)), 0.3, alone=[EOS])


def settings(name: str, rows: int = ROWS) -> dict[str, Any]:
    """A setting a row where the rule takes one."""
    cycle = np.arange(rows)
    every: dict[str, dict[str, Any]] = {
        "exact": {},
        "tolerance": {"tolerance": 1 + cycle % 4, "eos": EOS},
        "bias": {"bias": (cycle % 3) * 0.2, "eos": EOS},
        "top_k": {"k": 2 + cycle % 4, "eos_k": 1 + cycle % 2, "eos": EOS},
        "group": {"groups": OVERLAPPING},
    }
    return every[name]


def row_of(given: dict[str, Any], row: int) -> dict[str, Any]:
    return {key: value[row] if isinstance(value, np.ndarray) else value for key, value in given.items()}


# Settings at which a proposal of probability zero is always refused and a certain one always accepted.
STRICT: dict[str, dict[str, Any]] = {
    "exact": {},
    "tolerance": {"tolerance": 3, "eos": EOS},
    "bias": {"bias": 0.0, "eos": EOS},
    "top_k": {"k": 5, "eos_k": 1, "eos": EOS},
    "group": {"groups": SINGLE},
}


def drafts(name: str, rows: int = ROWS) -> list[Draft]:
    """All kinds of draft that a rule takes, each read-only."""
    rng = np.random.default_rng(31)
    probs = rng.dirichlet(np.ones(V), size=(rows, 3))
    ids = np.stack([draw(probs[:, i], rng.random(rows)) for i in range(3)], axis=1)
    found = [Draft.chain(ids, probs), Draft.chain(ids), Draft.chain(ids[:, :0])]
    if RULES[name].siblings:
        found += [sprout(32, rows, V, shared=True), sprout(33, rows, V, shared=False)]
    for draft in found:
        draft.token_ids.setflags(write=False)
        if draft.probs is not None:
            draft.probs.setflags(write=False)
    return found


def inputs(draft: Draft, name: str) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(34)
    rows, n = draft.token_ids.shape
    target = rng.dirichlet(np.full(V, 0.4), size=(rows, 1 + n))
    uniforms = rng.random((rows, 1 + draft.tree.depth, RULES[name].uniforms))
    target.setflags(write=False)
    uniforms.setflags(write=False)
    return target, uniforms


def same(one: Accepted, other: Accepted) -> None:
    for field in ("tokens", "lengths", "next_tokens", "bonus"):
        np.testing.assert_array_equal(getattr(one, field), getattr(other, field))


@pytest.mark.parametrize("name", RULES)
def test_the_same_random_numbers_give_the_same(name: str) -> None:
    for draft in drafts(name):
        target, uniforms = inputs(draft, name)
        same(*(RULES[name].verify(draft, target, uniforms, **settings(name)) for _ in range(2)))


@pytest.mark.parametrize("name", RULES)
def test_a_batch_equals_its_rows(name: str) -> None:
    lengths = []
    for draft in drafts(name):
        target, uniforms = inputs(draft, name)
        together = RULES[name].verify(draft, target, uniforms, **settings(name))
        lengths.append(together.lengths)
        for row in range(ROWS):
            parents = draft.parents if draft.parents.ndim == 1 else draft.parents[row]
            one = slice(row, row + 1)
            alone = Draft(draft.token_ids[one], parents, None if draft.probs is None else draft.probs[one])
            u = uniforms[one, : 1 + alone.tree.depth]
            outcome = RULES[name].verify(alone, target[one], u, **row_of(settings(name), row))
            length = together.lengths[row]
            assert outcome.lengths[0] == length
            assert outcome.nodes[0, :length].tolist() == together.nodes[row, :length].tolist()
            assert outcome.next_tokens[0] == together.next_tokens[row]
            assert outcome.bonus[0] == together.bonus[row]
    assert {0, 1, 2} <= set(np.concatenate(lengths))


@pytest.mark.parametrize("name", RULES)
def test_what_is_accepted_is_a_path_of_the_draft(name: str) -> None:
    for draft in drafts(name):
        target, uniforms = inputs(draft, name)
        outcome = RULES[name].verify(draft, target, uniforms, **settings(name))
        for row in range(ROWS):
            parents = draft.parents if draft.parents.ndim == 1 else draft.parents[row]
            above = -1
            for node in outcome.nodes[row, : outcome.lengths[row]]:
                assert parents[node] == above
                above = node
            assert outcome.bonus[row] == (above not in parents)
            tokens = [*draft.token_ids[row, outcome.nodes[row, : outcome.lengths[row]]], outcome.next_tokens[row]]
            assert outcome.tokens[row, : len(tokens)].tolist() == tokens
            assert target[row, above + 1, outcome.next_tokens[row]] > 0


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("with_probs", [True, False])
def test_forced_rejection_at_every_position(name: str, with_probs: bool) -> None:
    """Row j: the target is certain of the first j proposals and rules the next one out; the last row accepts all."""
    ids = np.tile(np.array([3, 1, 4, 1]), (5, 1))
    probs = np.full((5, 4, V), 1 / V) if with_probs else None
    target = np.zeros((5, 5, V))
    for row in range(5):
        for place in range(5):
            target[row, place, ids[row, place] if place < row else 7] = 1
    u = np.random.default_rng(35).random((5, 5, RULES[name].uniforms))
    outcome = RULES[name].verify(Draft.chain(ids, probs), target, u, **STRICT[name])
    assert outcome.lengths.tolist() == [0, 1, 2, 3, 4]
    assert outcome.next_tokens.tolist() == [7] * 5
    assert outcome.bonus.tolist() == [False] * 4 + [True]
    assert outcome.tested.sum(axis=0).tolist() == [5, 4, 3, 2]
    assert outcome.accepted.sum(axis=0).tolist() == [4, 3, 2, 1]


@pytest.mark.parametrize("name", [name for name, rule in RULES.items() if rule.siblings])
def test_forced_rejection_on_every_branch(name: str) -> None:
    """Row i: the target is certain of the path to node i and of a token that nobody proposes behind it."""
    parents = np.array([-1, -1, 0, 0, 1, 2, 2, 4])
    n = len(parents)
    ids = np.tile(np.array([1, 2, 1, 2, 3, 4, 5, 6]), (n + 1, 1))
    draft = Draft(ids, parents)
    target = np.zeros((n + 1, n + 1, V))
    target[:, :, 8] = 1
    for row in range(1, n + 1):
        for node in draft.tree.paths[row][draft.tree.paths[row] >= 0]:
            target[row, parents[node] + 1] = np.eye(V)[ids[row, node]]
    u = np.random.default_rng(36).random((n + 1, 1 + draft.tree.depth, RULES[name].uniforms))
    outcome = RULES[name].verify(draft, target, u, **STRICT[name])
    np.testing.assert_array_equal(outcome.nodes, draft.tree.paths)
    np.testing.assert_array_equal(outcome.bonus, draft.tree.leaves)
    assert (outcome.next_tokens == 8).all()


@pytest.mark.parametrize("name", ["exact", "tolerance", "top_k"])
def test_greedy_is_greedy_plain(name: str) -> None:
    """One-hot targets (temperature 0): the tokens are the arg max of each position, whatever was proposed."""
    for draft in drafts(name):
        target, uniforms = inputs(draft, name)
        best = target.argmax(axis=2)
        # Half of the rows: proposals that the target would choose itself, so that long paths are accepted too.
        ids = draft.token_ids.copy()
        for node in range(ids.shape[1] if draft.parents.ndim == 1 else 0):
            ids[::2, node] = best[::2, draft.parents[node] + 1]
        probs = None if draft.probs is None else np.full_like(draft.probs, 1 / V)
        outcome = RULES[name].verify(Draft(ids, draft.parents, probs), np.eye(V)[best], uniforms, **settings(name))
        for row in range(ROWS):
            nodes = [-1, *outcome.nodes[row, : outcome.lengths[row]]]
            assert outcome.tokens[row, : len(nodes)].tolist() == [best[row, node + 1] for node in nodes]
            if draft.tree.is_chain and row % 2 == 0 and EOS not in best[row]:
                assert outcome.lengths[row] == ids.shape[1]


@pytest.mark.parametrize("name", RULES)
def test_no_proposals_is_plain_sampling(name: str) -> None:
    draft = Draft.chain(np.empty((ROWS, 0), dtype=np.int64))
    target, uniforms = inputs(draft, name)
    outcome = RULES[name].verify(draft, target, uniforms, **settings(name))
    np.testing.assert_array_equal(outcome.tokens[:, 0], draw(target[:, 0], uniforms[:, 0, 0]))
    assert outcome.bonus.all()


@pytest.mark.parametrize("given", [("tolerance", {"tolerance": 1, "eos": -1}), ("bias", {"bias": 0.0, "eos": EOS})])
def test_the_mildest_setting_is_the_exact_rule(given: tuple[str, dict[str, Any]]) -> None:
    name, mild = given
    for draft in drafts(name):
        if draft.probs is not None and RULES[name].needs != "probs":
            continue
        target, uniforms = inputs(draft, name)
        same(
            RULES[name].verify(draft, target, uniforms, **mild),
            RULES["exact"].verify(draft, target, np.broadcast_to(uniforms[..., :2], (*uniforms.shape[:2], 2)), **{}),
        )


@pytest.mark.parametrize(
    ("name", "wrong", "message"),
    [
        ("tolerance", {"tolerance": 0, "eos": EOS}, "tolerance must lie between 1 and 4"),
        ("tolerance", {"tolerance": 5, "eos": EOS}, "tolerance must lie between 1 and 4"),
        ("bias", {"bias": 1.5, "eos": EOS}, "bias must lie between 0"),
        ("bias", {"bias": np.nan, "eos": EOS}, "bias must lie between 0"),
        ("top_k", {"k": 2, "eos_k": 3, "eos": EOS}, "eos_k must be at least 1 and at most k"),
        ("top_k", {"k": 2, "eos_k": 0, "eos": EOS}, "eos_k must be at least 1 and at most k"),
    ],
)
def test_settings_out_of_range_are_refused(name: str, wrong: dict[str, Any], message: str) -> None:
    draft = drafts(name)[1]
    with pytest.raises(ValueError, match=message):
        RULES[name].verify(draft, *inputs(draft, name), **wrong)


def test_possible_pairs_pass() -> None:
    for proposer, kind in PROPOSERS.items():
        for name, rule in RULES.items():
            if rule.siblings or not kind.siblings:
                check_pair(proposer, name)


@pytest.mark.parametrize(
    ("proposer", "rule", "message"),
    [
        ("medusa", "group", "cannot verify the tree that 'medusa' proposes, because .* choose one of mtp, draft"),
        ("none", "exact", "nothing to verify"),
        ("medusa", "typical", "acceptance must be exact, tolerance, bias, top_k, group; not 'typical'"),
        ("eagle", "exact", "speculation must be none, medusa, mtp, draft; not 'eagle'"),
    ],
)
def test_impossible_pairs_are_refused(proposer: str, rule: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_pair(proposer, rule)


def test_a_tree_is_refused_by_the_group_rule_itself() -> None:
    with pytest.raises(ValueError, match="group acceptance is for chains"):
        RULES["group"].verify(
            Draft(np.array([[1, 2]]), np.array([-1, -1])), np.ones((1, 3, V)), np.zeros((1, 2, 3)), groups=SINGLE
        )


def test_what_the_rules_say_of_themselves() -> None:
    assert {name for name, rule in RULES.items() if rule.lossless} == {"exact"}
    assert {name: rule.level for name, rule in RULES.items() if rule.level} == {"exact": "token", "group": "group"}
    for name, rule in RULES.items():
        assert set(settings(name)) == set(rule.settings)
