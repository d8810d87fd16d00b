"""What `group` emits is distributed as the target's own tokens at the level of overlapping groups."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.speculative.toy import TRIALS, fits
from tts_engine.speculative import Draft, Groups, group
from tts_engine.speculative.drawing import draw

RNG = np.random.default_rng(20)
# Overlapping: token 1 is in two groups, token 2 in three, tokens 4 and 5 in two and one.
GROUPS = Groups(np.array([0, 3, 5, 8, 9]), np.array([0, 1, 2, 1, 2, 2, 3, 4, 4], dtype=np.int32), 5)
P, Q = RNG.dirichlet(np.full(5, 0.7), size=2)


def outcome(columns: int, seed: int, certain: int | None = None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """One position, many trials: proposals drawn from P, or always the token `certain`."""
    rng = np.random.default_rng(seed)
    p = np.tile(P if certain is None else np.eye(5)[certain], (TRIALS, 1))
    return group.decide_group(
        GROUPS, draw(p, rng.random(TRIALS)), p, np.tile(Q, (TRIALS, 1)), rng.random((TRIALS, columns))
    )


def label_counts(labels: np.ndarray) -> np.ndarray:
    return np.bincount(labels, minlength=GROUPS.count)


def group_law(probs: np.ndarray) -> np.ndarray:
    """Eq. 5 written out."""
    law = np.zeros(GROUPS.count)
    for k in range(GROUPS.count):
        for token in GROUPS.members[GROUPS.starts[k] : GROUPS.starts[k + 1]]:
            law[k] += probs[token] / (GROUPS.members == token).sum()
    return law


def test_masses_are_eq_5_and_sum_to_one() -> None:
    assert group_law(Q).sum() == pytest.approx(1)
    np.testing.assert_allclose(GROUPS.masses(Q[None])[0], group_law(Q))
    labels = np.array([2, 0, 3, 1])
    np.testing.assert_allclose(GROUPS.mass(np.tile(Q, (4, 1)), labels), group_law(Q)[labels])


@pytest.mark.parametrize("columns", [3, 6, group.UNIFORMS])
@pytest.mark.parametrize("certain", [None, 2])
def test_labels_follow_the_target_at_group_level(columns: int, certain: int | None) -> None:
    """With no, one and eight thinning trials; with draft probabilities and with a deterministic proposal."""
    accepted, _, labels = outcome(columns, 21, certain)
    assert 0.1 < accepted.mean() < 0.95
    assert fits(label_counts(labels), group_law(Q))


@pytest.mark.parametrize("columns", [3, 6, group.UNIFORMS])
def test_recovered_tokens_follow_the_target_within_the_residual_groups(columns: int) -> None:
    """Eqs. 8 and 10: label k with [Q_c - P_c]+, then token t with q(t) w(k, t) / Q_c(k)."""
    accepted, tokens, labels = outcome(columns, 22)
    residual = np.maximum(group_law(Q) - group_law(P), 0)
    law = np.zeros((GROUPS.count, 5))
    for k, token in zip(GROUPS.owners, GROUPS.members, strict=True):
        law[k, token] = residual[k] / group_law(Q)[k] * Q[token] / GROUPS.counts[token]
    counts = np.zeros_like(law)
    np.add.at(counts, (labels[~accepted], tokens[~accepted]), 1)
    assert fits(counts, law / law.sum())


def test_an_accepted_token_is_the_drafts() -> None:
    """The paper's choice within a group: the token's law differs from the target's, so this is not lossless."""
    _, tokens, _ = outcome(group.UNIFORMS, 23)
    assert not fits(np.bincount(tokens, minlength=5), Q)


def lowest_group(self: Groups, tokens: np.ndarray, uniforms: np.ndarray) -> np.ndarray:
    return np.array([self.owners[self.members == token][0] for token in range(self.vocabulary)])[tokens]


def without_split(self: Groups, probs: np.ndarray, labels: np.ndarray) -> np.ndarray:
    member = np.zeros((self.count, self.vocabulary))
    member[self.owners, self.members] = 1
    return np.einsum("rv,rv->r", probs, member[labels])


def without_thinning(p_mass: np.ndarray, q_mass: np.ndarray) -> np.ndarray:
    return np.ones_like(q_mass)


def token_residual(groups: Groups, p: np.ndarray, q: np.ndarray, uniforms: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    tokens = draw(np.maximum(q - p, 0), uniforms[:, 0])
    return tokens, groups.label(tokens, uniforms[:, 3])


def accept_all(groups: Groups, token: np.ndarray, p: np.ndarray, q: np.ndarray, u: np.ndarray) -> Any:
    return np.ones(len(token), dtype=bool), token, groups.label(token, u[:, 1])


@pytest.mark.parametrize(
    ("owner", "piece", "mutant"),
    [
        (Groups, "label", lowest_group),
        (Groups, "mass", without_split),
        (group, "surplus", without_thinning),
        (group, "recover", token_residual),
        (group, "decide_group", accept_all),
    ],
)
def test_mutants_are_found(monkeypatch: pytest.MonkeyPatch, owner: Any, piece: str, mutant: Callable[..., Any]) -> None:
    monkeypatch.setattr(owner, piece, mutant)
    assert not fits(label_counts(outcome(group.UNIFORMS, 21)[2]), group_law(Q))


PARTITION = Groups(np.array([0, 2, 4, 5]), np.array([0, 1, 2, 3, 4], dtype=np.int32), 5)
OF_TOKEN = np.array([0, 0, 1, 1, 2])


def test_the_joint_law_of_two_positions() -> None:
    """Disjoint groups, so that a token tells its label; the second position from verification or a fresh draw."""
    rng = np.random.default_rng(24)
    q, p = rng.dirichlet(np.ones(5), size=3), rng.dirichlet(np.ones(5), size=2)
    probs = np.tile(p, (TRIALS, 1, 1))
    ids = np.stack([draw(probs[:, i], rng.random(TRIALS)) for i in range(2)], axis=1)
    verified = group.verify(
        Draft.chain(ids, probs), np.tile(q, (TRIALS, 1, 1)), rng.random((TRIALS, 3, group.UNIFORMS)), groups=PARTITION
    )
    tokens = verified.tokens
    fresh = draw(np.tile(q[1], (TRIALS, 1)), rng.random(TRIALS))
    second = np.where(tokens[:, 1] < 0, fresh, tokens[:, 1])
    counts, law = np.zeros((3, 3)), np.zeros((3, 3))
    np.add.at(counts, (OF_TOKEN[tokens[:, 0]], OF_TOKEN[second]), 1)
    np.add.at(law, (OF_TOKEN[:, None], OF_TOKEN), q[0][:, None] * q[1])
    assert fits(counts, law)
    full = verified.bonus
    assert 1000 < full.sum() < TRIALS
    assert fits(np.bincount(verified.next_tokens[full], minlength=5), q[2])


def test_groups_of_one_token_are_the_exact_rule() -> None:
    single = Groups(np.arange(6), np.arange(5, dtype=np.int32), 5)
    rng = np.random.default_rng(25)
    p, q = np.tile(P, (TRIALS, 1)), np.tile(Q, (TRIALS, 1))
    u = rng.random((TRIALS, group.UNIFORMS))
    _, tokens, labels = group.decide_group(single, draw(p, rng.random(TRIALS)), p, q, u)
    np.testing.assert_array_equal(tokens, labels)
    assert fits(np.bincount(tokens, minlength=5), Q)


def sets(groups: Groups) -> list[list[int]]:
    return [groups.members[a:b].tolist() for a, b in zip(groups.starts, groups.starts[1:], strict=False)]


def test_build_finds_what_lies_within_theta() -> None:
    angles = np.deg2rad([0, 10, 20, 90, 100, 200])
    embedding = np.stack([np.cos(angles), np.sin(angles)], axis=1) * np.array([[1, 2, 3, 4, 5, 6]]).T
    build = partial(Groups.build, embedding, np.cos(np.deg2rad(15)))
    assert sets(build()) == [[0, 1], [0, 1, 2], [1, 2], [3, 4], [5]]  # 3 and 4 have equal sets: one group
    assert sets(build(alone=[1])) == [[0], [1], [2], [3, 4], [5]]


def test_build_in_blocks_equals_one_matrix() -> None:
    embedding = np.random.default_rng(26).standard_normal((1100, 6))
    groups = Groups.build(embedding, 0.8)
    unit = (embedding / np.linalg.norm(embedding, axis=1, keepdims=True)).astype(np.float32)
    expected = {tuple(np.flatnonzero(row)) for row in unit @ unit.T > 0.8}
    assert set(map(tuple, sets(groups))) == expected
    assert groups.count == len(expected)


def test_groups_are_kept_on_disk(tmp_path: Path) -> None:
    GROUPS.save(tmp_path / "groups.npz")
    loaded = Groups.load(tmp_path / "groups.npz")
    np.testing.assert_array_equal(loaded.starts, GROUPS.starts)
    np.testing.assert_array_equal(loaded.members, GROUPS.members)
    assert loaded.vocabulary == GROUPS.vocabulary
    np.savez(tmp_path / "other.npz", starts=GROUPS.starts)
    with pytest.raises(ValueError, match="lacks members, vocabulary"):
        Groups.load(tmp_path / "other.npz")


@pytest.mark.parametrize(
    ("starts", "members", "message"),
    [
        ([0, 2], [0, 1, 2], "starts must run"),
        ([0, 0, 3], [0, 1, 2], "a group has no members"),
        ([0, 3], [0, 1, 3], "members must lie between 0 and 2"),
        ([0, 2], [0, 2], "token 1 is in no group"),
    ],
)
def test_bad_groups_are_refused(starts: list[int], members: list[int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Groups(np.array(starts), np.array(members, dtype=np.int32), 3)


def test_groups_of_another_vocabulary_are_refused() -> None:
    with pytest.raises(ValueError, match="groups are over 5 tokens"):
        group.verify(Draft.chain(np.array([[0]])), np.ones((1, 2, 6)), np.zeros((1, 2, 3)), groups=GROUPS)
