"""From logits to what may be drawn and to the token drawn, a whole batch in one vectorised pass.

Every row depends on its own request only. Tokens are drawn in the order of their ids, as acceptance rules do, so that
the same random number gives the same token with and without speculation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tts_engine.request import Settings
from tts_engine.speculative.drawing import draw

# Rows with 1 <= top_k <= NARROW look only at so many candidates, which the graph has found. The width is fixed, not
# the batch's largest top_k, so that a row's arithmetic never depends on its company.
NARROW = 32
NEVER = np.float32(-1e30)

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)


@dataclass(frozen=True)
class SamplingBatch:
    """Per-row settings [B]: temperature float64, top_k int64, top_p float64, keys uint64 (from the seeds)."""

    temperature: NDArray[np.float64]
    top_k: NDArray[np.int64]
    top_p: NDArray[np.float64]
    keys: NDArray[np.uint64]

    @classmethod
    def from_settings(cls, settings: Sequence[Settings]) -> SamplingBatch:
        return cls(
            np.array([row.temperature for row in settings], dtype=np.float64),
            np.array([row.top_k for row in settings], dtype=np.int64),
            np.array([row.top_p for row in settings], dtype=np.float64),
            _mix(np.array([row.seed for row in settings], dtype=np.uint64) + _GOLDEN),
        )

    @cached_property
    def ahead(self) -> Ahead:
        """Random numbers of plain steps."""
        return Ahead(self.keys)

    @cached_property
    def parts(self) -> tuple[_Part, ...]:
        """The rows that are drawn (temperature > 0), by how many candidates they sort; found once, used every step."""
        narrow = (self.top_k > 0) & (self.top_k <= NARROW)
        parts = []
        for mask, width in ((narrow, NARROW), (~narrow, None)):
            rows = np.flatnonzero(mask & (self.temperature > 0))
            if rows.size:
                parts.append(_Part(self, rows, width))
        return tuple(parts)


class _Part:
    """Rows of a batch that sort the same number of candidates (None: all), with their settings as columns."""

    def __init__(self, batch: SamplingBatch, rows: NDArray[np.intp], width: int | None) -> None:
        self.rows = rows
        self.width = width
        self.whole = len(rows) == len(batch.keys)
        self.temperature = batch.temperature[rows, None]
        self.top_k = np.where(batch.top_k == 0, np.iinfo(np.int64).max, batch.top_k)[rows, None]
        self.allowed = None if width is None else np.arange(width) < self.top_k
        self.top_p = batch.top_p[rows, None]


def uniforms(
    keys: NDArray[np.uint64], counters: NDArray[np.uint64], streams: int | NDArray[np.uint64] = 0
) -> NDArray[np.float64]:
    """Counter-based random numbers in [0, 1): the same (key, counter, stream) gives the same number, in any company.

    Two rounds of the SplitMix64 finaliser (Steele, Lea, Flood 2014) over key and counter. Shapes as they broadcast.
    """
    if np.any(streams):
        which = np.asarray(streams, dtype=np.uint64)
        keys = np.where(which == 0, keys, _mix(keys + which * _MIX_1))
    bits = _mix(keys ^ _mix(counters * _GOLDEN + _GOLDEN))
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53


class Ahead:
    """`uniforms` of a batch whose counters go up by one a step, made for some steps at once, as that costs no more."""

    STEPS = 16

    def __init__(self, keys: NDArray[np.uint64]) -> None:
        self._keys = keys
        self._from = np.zeros_like(keys)
        self._made = np.empty((0, len(keys)))

    def take(self, counters: NDArray[np.uint64]) -> NDArray[np.float64]:
        """What `uniforms(keys, counters)` is, float64 [B]."""
        steps = counters - self._from
        if not (steps[0] < len(self._made) and (steps == steps[0]).all()):
            self._from = counters
            self._made = uniforms(self._keys, counters + np.arange(self.STEPS, dtype=np.uint64)[:, None])
            return self._made[0]
        return self._made[int(steps[0])]


@dataclass(frozen=True, eq=False)
class Kept:
    """What temperature, top-k and top-p leave of each row's distribution.

    tokens: int64 [R, K], ascending, V behind the last. probs: float64 [R, K], rows sum to one, 0 behind the last.
    """

    tokens: NDArray[np.int64]
    probs: NDArray[np.float64]

    def draw(self, uniform: NDArray[np.float64]) -> NDArray[np.int64]:
        """One token a row, by inverse CDF; uniform float64 [R] in [0, 1)."""
        return self.tokens[np.arange(len(self.tokens)), draw(self.probs, uniform)]


@dataclass(frozen=True, eq=False)
class Scores:
    """A graph's logits at some positions. logits: float32 [..., V]; values float32 and ids int64 [..., K]: the K
    largest and where they are, largest first, at least NARROW + 1 of them where V allows."""

    logits: NDArray[np.float32]
    values: NDArray[np.float32]
    ids: NDArray[np.int64]

    @classmethod
    def of(cls, logits: NDArray[np.float32]) -> Scores:
        """Of logits [R, V] that no graph has sorted."""
        ids = np.argsort(-logits, axis=1, kind="stable")[:, : NARROW + 1]
        return cls(logits, np.take_along_axis(logits, ids, axis=1), ids)

    @property
    def vocabulary(self) -> int:
        """V."""
        return self.logits.shape[-1]

    def __getitem__(self, index: Any) -> Scores:
        return Scores(self.logits[index], self.values[index], self.ids[index])

    def reshape(self, *shape: int) -> Scores:
        """Positions in another shape; the same memory where it is contiguous."""
        logits, values, ids = self.logits, self.values, self.ids
        return Scores(logits.reshape(*shape, -1), values.reshape(*shape, -1), ids.reshape(*shape, -1))

    def make_finite(self) -> NDArray[np.bool_]:
        """Which rows [R] are numbers; the others become zeros, so that they disturb nobody. A state that is not finite
        makes all its logits so, and the largest tells."""
        finite = np.isfinite(self.values[:, 0])
        if not finite.all():
            self.logits[~finite] = self.values[~finite] = 0
        return finite

    def exclude(self, token: int, rows: NDArray[np.bool_]) -> None:
        """`token` may not be drawn in these rows, bool [R]."""
        if not rows.any():
            return
        self.logits[rows, token] = NEVER
        hit = (self.ids == token) & rows[:, None]
        if hit.any():  # to the end of the list, behind all others
            order = np.argsort(hit, axis=1, kind="stable")
            self.values[hit] = NEVER
            self.values[:] = np.take_along_axis(self.values, order, axis=1)
            self.ids[:] = np.take_along_axis(self.ids, order, axis=1)


def sample(scores: Scores, settings: SamplingBatch, uniform: NDArray[np.float64]) -> NDArray[np.int64]:
    """Draw one token a row: temperature, then top-k, then top-p (nucleus) on what is left, then inverse CDF.

    Args:
        scores: B rows, finite.
        settings: B rows; temperature 0 takes the arg max, top_k 0 and top_p 1 keep everything.
        uniform: float64 [B] in [0, 1).

    Returns:
        int64 [B], indices into V.
    """
    parts = settings.parts
    if len(parts) == 1 and parts[0].whole and parts[0].width is not None:
        return _draw(scores, parts[0], uniform)
    return keep(scores, settings).draw(uniform)


def keep(scores: Scores, settings: SamplingBatch) -> Kept:
    """The distributions that `sample` draws from; arguments as there. A row's numbers do not depend on its company."""
    parts = settings.parts
    if len(parts) == 1 and parts[0].whole:
        return _keep(scores, parts[0])
    made = [(part.rows, _keep(scores[part.rows], part)) for part in parts]
    width = max((kept.tokens.shape[1] for _, kept in made), default=1)
    tokens = np.full((len(scores.ids), width), scores.vocabulary, dtype=np.int64)
    probs = np.zeros((len(scores.ids), width))
    tokens[:, 0], probs[:, 0] = scores.ids[:, 0], 1  # temperature 0; the others are overwritten
    for rows, kept in made:
        tokens[rows] = scores.vocabulary
        probs[rows] = 0
        tokens[rows, : kept.tokens.shape[1]] = kept.tokens
        probs[rows, : kept.tokens.shape[1]] = kept.probs
    return Kept(tokens, probs)


def _filtered(scores: Scores, part: _Part) -> tuple[NDArray[np.int64], NDArray, NDArray[np.bool_], NDArray]:
    """Candidates of each row, the largest first, their weights, which ones stay, and the mass up to each: [R, K]."""
    if part.width is None:
        candidates = np.argsort(-scores.logits, axis=1, kind="stable")
        values = np.take_along_axis(scores.logits, candidates, axis=1).astype(np.float64)
    else:
        candidates = scores.ids[:, : part.width]
        values = scores.values[:, : part.width].astype(np.float64)
    weights = np.exp((values - values[:, :1]) / part.temperature)
    width = weights.shape[1]
    weights *= np.arange(width) < part.top_k if part.allowed is None else part.allowed[:, :width]
    # Cumulative sums run left to right, so zero weights on the right leave a row's bits alone.
    cumulative = weights.cumsum(axis=1)
    # A candidate stays while the mass before it is short of top_p: the smallest set that reaches top_p.
    kept = cumulative - weights < part.top_p * cumulative[:, -1:]
    return candidates, weights, kept, cumulative


def _draw(scores: Scores, part: _Part, uniform: NDArray[np.float64]) -> NDArray[np.int64]:
    """`_keep(scores, part).draw(uniform)`, bit for bit, in fewer passes: what is dropped stays, with weight zero."""
    candidates, weights, kept, cumulative = _filtered(scores, part)
    weights *= kept
    cumulative *= kept
    order = candidates.argsort(axis=1)
    probs = weights[part.rows[:, None], order] / cumulative.max(axis=1, keepdims=True)
    return candidates[part.rows, order[part.rows, draw(probs, uniform)]]


def _keep(scores: Scores, part: _Part) -> Kept:
    rows = np.arange(len(scores.ids))[:, None]
    candidates, weights, kept, cumulative = _filtered(scores, part)
    count = kept.sum(axis=1)
    total = cumulative[rows, count[:, None] - 1]
    widest = int(count.max())
    tokens = np.where(kept[:, :widest], candidates[:, :widest], scores.vocabulary)
    order = tokens.argsort(axis=1)
    probs = np.where(kept[:, :widest], weights[:, :widest], 0) / total
    return Kept(tokens[rows, order], probs[rows, order])


def _mix(bits: NDArray[np.uint64]) -> NDArray[np.uint64]:
    bits = (bits ^ (bits >> np.uint64(30))) * _MIX_1
    bits = (bits ^ (bits >> np.uint64(27))) * _MIX_2
    return bits ^ (bits >> np.uint64(31))
