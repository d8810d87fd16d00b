"""Verification of a batch: acceptance rules run over the few tokens that anything is said about, not over all V."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tts_engine.speculative.accepted import Accepted
from tts_engine.speculative.draft import Draft
from tts_engine.speculative.groups import Groups
from tts_engine.speculative.rules import RULES

EOS = 0


class Distributions(Protocol):
    """Sparse rows, as `sampling.Kept`: tokens int64 [R, K] ascending, probs float64 [R, K] with zeros behind."""

    @property
    def tokens(self) -> NDArray[np.int64]: ...
    @property
    def probs(self) -> NDArray[np.float64]: ...


def verify(
    rule: str,
    tokens: NDArray[np.int64],
    parents: NDArray[np.int64],
    proposed: Distributions | None,
    target: Distributions,
    uniforms: NDArray[np.float64],
    settings: Mapping[str, NDArray],
    groups: Groups | None = None,
) -> Accepted:
    """Apply a rule of `RULES`. Tokens that no distribution holds have probability zero, so they can be left out.

    Leaving them out changes no sum and no order, so a row's result is bit for bit that over the whole vocabulary.

    Args:
        tokens: int64 [B, n]; parents: int64 [n].
        proposed: distributions of the tokens, rows in the order of tokens.reshape(-1); None: deterministic.
        target: B * (1 + n) rows, the committed token's first, then the nodes'.
        uniforms: float64 [B, 1 + D, U], as the rule wants them.
        settings: the rule's, a value a row each.
        groups: for rule "group", over all V tokens.
    """
    rows, n = tokens.shape
    parts = [np.array([EOS]), tokens.ravel(), target.tokens.ravel()]
    if proposed is not None:
        parts.append(proposed.tokens.ravel())
    known = np.unique(np.concatenate(parts))
    probs = None if proposed is None else _dense(proposed, known).reshape(rows, n, -1)
    draft = Draft(np.searchsorted(known, tokens), parents, probs)
    extra: dict[str, object] = {name: settings[name] for name in RULES[rule].settings if name in settings}
    if "eos" in RULES[rule].settings:
        extra["eos"] = 0  # known[0] is EOS
    if "groups" in RULES[rule].settings:
        assert groups is not None
        extra["groups"] = groups.among(known)
    accepted = RULES[rule].verify(draft, _dense(target, known).reshape(rows, 1 + n, -1), uniforms, **extra)
    known = np.append(known, -1)  # what -1 stands for
    return replace(accepted, next_tokens=known[accepted.next_tokens], draft_tokens=known[accepted.draft_tokens])


def _dense(sparse: Distributions, known: NDArray[np.int64]) -> NDArray[np.float64]:
    probs = np.zeros((len(sparse.tokens), len(known)))
    np.put_along_axis(probs, np.searchsorted(known, sparse.tokens), sparse.probs, axis=1)
    return probs
