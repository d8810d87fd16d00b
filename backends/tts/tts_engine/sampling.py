"""From logits to what may be drawn and to the token drawn, a whole batch in one vectorised pass.

Every row depends on its own request only. Tokens are drawn in the order of their ids, as acceptance rules do, so that
the same random number gives the same token with and without speculation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tts_engine.request import Settings
from tts_engine.speculative.drawing import draw

# Rows with 1 <= top_k <= NARROW sort only that many candidates. The width is fixed, not the batch's largest top_k,
# so that a row's arithmetic never depends on its company.
NARROW = 32
FOLD = 8

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
        self.top_p = batch.top_p[rows, None]


def uniforms(keys: NDArray[np.uint64], counters: NDArray[np.uint64], stream: int = 0) -> NDArray[np.float64]:
    """Counter-based random numbers in [0, 1): the same (key, counter, stream) gives the same number, in any company.

    Two rounds of the SplitMix64 finaliser (Steele, Lea, Flood 2014) over key and counter. Shapes as they broadcast.
    """
    if stream:
        keys = _mix(keys + np.array([stream], dtype=np.uint64) * _MIX_1)
    bits = _mix(keys ^ _mix(counters * _GOLDEN + _GOLDEN))
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53


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


def sample(logits: NDArray[np.float32], settings: SamplingBatch, uniform: NDArray[np.float64]) -> NDArray[np.int64]:
    """Draw one token a row: temperature, then top-k, then top-p (nucleus) on what is left, then inverse CDF.

    Args:
        logits: float32 [B, V], finite.
        settings: B rows; temperature 0 takes the arg max, top_k 0 and top_p 1 keep everything.
        uniform: float64 [B] in [0, 1).

    Returns:
        int64 [B], indices into V.
    """
    return keep(logits, settings).draw(uniform)


def keep(logits: NDArray[np.float32], settings: SamplingBatch) -> Kept:
    """The distributions that `sample` draws from; arguments as there. A row's numbers do not depend on its company."""
    parts = settings.parts
    if len(parts) == 1 and parts[0].whole:
        return _keep(logits, parts[0])
    made = [(part.rows, _keep(logits[part.rows], part)) for part in parts]
    width = max((kept.tokens.shape[1] for _, kept in made), default=1)
    tokens = np.full((len(logits), width), logits.shape[1], dtype=np.int64)
    probs = np.zeros((len(logits), width))
    tokens[:, 0], probs[:, 0] = logits.argmax(axis=1), 1  # temperature 0; the others are overwritten
    for rows, kept in made:
        tokens[rows] = logits.shape[1]
        probs[rows] = 0
        tokens[rows, : kept.tokens.shape[1]] = kept.tokens
        probs[rows, : kept.tokens.shape[1]] = kept.probs
    return Kept(tokens, probs)


def _keep(logits: NDArray[np.float32], part: _Part) -> Kept:
    rows = np.arange(len(logits))[:, None]
    candidates = largest(logits, min(part.width or logits.shape[1], logits.shape[1]))
    values = logits[rows, candidates].astype(np.float64)
    weights = np.exp((values - values[:, :1]) / part.temperature)
    weights *= np.arange(weights.shape[1]) < part.top_k
    # Cumulative sums run left to right, so zero weights on the right leave a row's bits alone.
    cumulative = weights.cumsum(axis=1)
    # A candidate stays while the mass before it is short of top_p: the smallest set that reaches top_p.
    kept = cumulative - weights < part.top_p * cumulative[:, -1:]
    count = kept.sum(axis=1)
    total = cumulative[rows, count[:, None] - 1]
    widest = int(count.max())
    tokens = np.where(kept[:, :widest], candidates[:, :widest], logits.shape[1])
    order = tokens.argsort(axis=1)
    probs = np.where(kept[:, :widest], weights[:, :widest], 0) / total
    return Kept(tokens[rows, order], probs[rows, order])


def largest(logits: NDArray[np.float32], width: int) -> NDArray[np.intp]:
    """Indices [B, width] of each row's largest logits, largest first."""
    vocabulary = logits.shape[1]
    if width == vocabulary:
        return np.argsort(-logits, axis=1, kind="stable")
    rows = np.arange(len(logits))[:, None]
    candidates = None
    columns = vocabulary // FOLD
    if columns > 2 * width:
        # Fold the row into columns of FOLD: the `width` largest logits lie in the `width` columns of largest maximum,
        # so most of the row is never partitioned (halves the cost of sampling at V = 4097).
        body = logits[:, : FOLD * columns].reshape(len(logits), FOLD, columns)
        best = np.argpartition(body.max(axis=1), columns - width, axis=1)[:, -width:]
        folded = (best[:, None, :] + columns * np.arange(FOLD)[:, None]).reshape(len(logits), -1)
        rest = np.broadcast_to(np.arange(FOLD * columns, vocabulary), (len(logits), vocabulary - FOLD * columns))
        candidates = np.concatenate([folded, rest], axis=1)
        logits = logits[rows, candidates]
    top = np.argpartition(logits, logits.shape[1] - width, axis=1)[:, -width:]
    top = top[rows, np.argsort(-logits[rows, top], axis=1, kind="stable")]
    return top if candidates is None else candidates[rows, top]


def _mix(bits: NDArray[np.uint64]) -> NDArray[np.uint64]:
    bits = (bits ^ (bits >> np.uint64(30))) * _MIX_1
    bits = (bits ^ (bits >> np.uint64(27))) * _MIX_2
    return bits ^ (bits >> np.uint64(31))
