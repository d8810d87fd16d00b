"""Groups: tokens that sound alike, in compressed rows; built once from the target's embedding, read at each step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

BLOCK = 512  # rows of the similarity matrix held at a time


@dataclass(frozen=True, eq=False)
class Groups:
    """M overlapping acoustic similarity groups over V tokens (PCG, section 2.1), each token in at least one.

    Attributes:
        starts: int64 [M + 1], where each group's members begin.
        members: int32 [sum of sizes], tokens, ascending within a group.
        vocabulary: V.

    Raises:
        ValueError: the arrays are no such groups.
    """

    starts: NDArray[np.int64]
    members: NDArray[np.int32]
    vocabulary: int

    def __post_init__(self) -> None:
        sizes = np.diff(self.starts)
        if self.starts.ndim != 1 or not len(sizes) or self.starts[0] != 0 or self.starts[-1] != len(self.members):
            raise ValueError("starts must run from 0 to the number of members")
        if (sizes < 1).any():
            raise ValueError("a group has no members")
        if self.members.min() < 0 or self.members.max() >= self.vocabulary:
            raise ValueError(f"members must lie between 0 and {self.vocabulary - 1}")
        if (self.counts == 0).any():
            raise ValueError(f"token {self.counts.argmin()} is in no group")

    @classmethod
    def build(cls, embedding: NDArray[np.floating], theta: float, alone: Sequence[int] = ()) -> Groups:
        """Eq. 1: G(t) = tokens whose embedding has a cosine above theta with that of t; equal sets are one group.

        Args:
            embedding: float [V, H], the target's, one row a token.
            theta: cosine in (-1, 1); lower values make larger groups.
            alone: tokens that are like no other, such as the end of a sentence.
        """
        if embedding.ndim != 2 or not -1 < theta < 1:
            raise ValueError("embedding must be [V, H] and theta a cosine between -1 and 1")
        unit = embedding.astype(np.float32)
        unit /= np.maximum(np.linalg.norm(unit, axis=1, keepdims=True), 1e-12)
        kept: dict[bytes, None] = {}  # distinct sets, in the order of their first token
        for begin in range(0, len(unit), BLOCK):
            alike = unit[begin : begin + BLOCK] @ unit.T > theta
            alike[:, list(alone)] = False
            here = np.arange(begin, begin + len(alike))
            alike[np.isin(here, alone)] = False
            alike[here - begin, here] = True  # also where rounding or a zero embedding says otherwise
            for row in alike:
                kept[np.flatnonzero(row).astype(np.int32).tobytes()] = None
        groups = [np.frombuffer(group, dtype=np.int32) for group in kept]
        starts = np.concatenate([[0], np.cumsum([len(group) for group in groups])]).astype(np.int64)
        return cls(starts, np.concatenate(groups), len(unit))

    def among(self, tokens: NDArray[np.int64]) -> Groups:
        """The groups as they are among `tokens` int64 [U] (ascending) alone, which are numbered 0 … U - 1.

        Every group of a token is kept, so N(t) and the order of a token's groups stay what they are. Ids beyond V
        stand for no token and form a group of their own.
        """
        starts, groups = self._of_token
        real = tokens[tokens < self.vocabulary]
        counts = self.counts[real]
        owner = groups[np.repeat(starts[real] - (np.cumsum(counts) - counts), counts) + np.arange(counts.sum())]
        member = np.repeat(np.arange(len(real)), counts)
        width = max(1, len(real))
        # Ascending groups, within them ascending members: one number each, as sorting is faster than finding an order.
        owner, member = np.divmod(np.sort(owner * width + member), width)
        begins = np.flatnonzero(np.diff(owner, prepend=-1))
        beyond = np.arange(len(real), len(tokens))
        starts = np.concatenate([begins, len(member) + np.arange(len(beyond) + 1)])
        return Groups(starts.astype(np.int64), np.concatenate([member, beyond]).astype(np.int32), len(tokens))

    def save(self, path: Path) -> None:
        """An .npz of `starts`, `members` (16 bits wide where that holds every token) and `vocabulary`."""
        narrow = self.members.astype(np.uint16 if self.vocabulary <= 1 << 16 else np.int32)
        np.savez_compressed(path, starts=self.starts, members=narrow, vocabulary=np.int64(self.vocabulary))

    @classmethod
    def load(cls, path: Path) -> Groups:
        """Raises ValueError if the file holds no groups."""
        with np.load(path, allow_pickle=False) as file:
            missing = {"starts", "members", "vocabulary"} - set(file.files)
            if missing:
                raise ValueError(f"{path} lacks {', '.join(sorted(missing))}: write it with Groups.save")
            return cls(file["starts"].astype(np.int64), file["members"].astype(np.int32), int(file["vocabulary"]))

    @property
    def count(self) -> int:
        """M."""
        return len(self.starts) - 1

    @cached_property
    def counts(self) -> NDArray[np.int64]:
        """N(t), int64 [V]: in how many groups each token is."""
        return np.bincount(self.members, minlength=self.vocabulary)

    @cached_property
    def owners(self) -> NDArray[np.int64]:
        """The group of each entry of `members`, int64."""
        return np.repeat(np.arange(self.count), np.diff(self.starts))

    @cached_property
    def _of_token(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The same in the other direction: where each token's groups begin [V], and the groups."""
        return np.cumsum(self.counts) - self.counts, self.owners[np.argsort(self.members, kind="stable")]

    def label(self, tokens: NDArray[np.int64], uniforms: NDArray[np.float64]) -> NDArray[np.int64]:
        """Eq. 6 with the equal split of eq. 3: one of the groups that hold each token; [R], [R] -> int64 [R]."""
        starts, groups = self._of_token
        return groups[starts[tokens] + (uniforms * self.counts[tokens]).astype(np.int64)]

    def mass(self, probs: NDArray[np.floating], labels: NDArray[np.int64]) -> NDArray[np.float64]:
        """Eq. 5 for one group a row: sum of p(t) / N(t) over its members; [R, V], [R] -> float64 [R]."""
        begin, sizes = self.starts[labels], self.starts[labels + 1] - self.starts[labels]
        row = np.repeat(np.arange(len(labels)), sizes)
        tokens = self.members[np.arange(len(row)) + np.repeat(begin - (np.cumsum(sizes) - sizes), sizes)]
        return np.bincount(row, probs[row, tokens] / self.counts[tokens], minlength=len(labels)).astype(np.float64)

    def shares(self, probs: NDArray[np.floating]) -> NDArray[np.float64]:
        """p(t) w(k, t) of every member of every group: float64 [R, sum of sizes], in the order of `members`."""
        return (probs / self.counts)[:, self.members].astype(np.float64)

    def masses(self, probs: NDArray[np.floating]) -> NDArray[np.float64]:
        """Eq. 5 for every group: [R, V] -> float64 [R, M]."""
        return np.add.reduceat(self.shares(probs), self.starts[:-1], axis=1)
