"""Draft: what a proposer hands to an acceptance rule, for a whole batch."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tts_engine.speculative.tree import Tree


@dataclass(frozen=True, eq=False)
class Draft:
    """n proposed tokens a row, arranged as a tree behind each row's last committed token.

    Attributes:
        token_ids: int64 [B, n], logit indices.
        parents: int64 [n] (one shape for all rows) or [B, n]; -1 is the root. A chain is -1, 0, 1, ...
        probs: float [B, n, V], the distribution each token was drawn from, temperature, top-k and top-p included and
            every row summing to one; None: the proposals are deterministic (one-hot distributions).

    Raises:
        ValueError: shapes or types do not fit, a parent does not come before its child, or a token has no
            probability under the distribution that it is said to be drawn from.
    """

    token_ids: NDArray[np.int64]
    parents: NDArray[np.int64]
    probs: NDArray[np.floating] | None = None

    def __post_init__(self) -> None:
        if self.token_ids.ndim != 2 or self.token_ids.dtype != np.int64:
            raise ValueError(f"token_ids must be int64 [B, n], not {self.token_ids.dtype} {list(self.token_ids.shape)}")
        rows, n = self.token_ids.shape
        if self.parents.shape not in ((n,), (rows, n)):
            raise ValueError(f"parents must be [{n}] or [{rows}, {n}], not {list(self.parents.shape)}")
        if (self.token_ids < 0).any():
            raise ValueError("token_ids must not be negative")
        _ = self.tree
        if self.probs is None:
            return
        if self.probs.ndim != 3 or self.probs.shape[:2] != (rows, n):
            raise ValueError(f"probs must be [{rows}, {n}, V], not {list(self.probs.shape)}")
        if (self.token_ids >= self.probs.shape[2]).any():
            raise ValueError(f"token_ids must lie below the {self.probs.shape[2]} tokens that probs has")
        if not (np.take_along_axis(self.probs, self.token_ids[:, :, None], axis=2) > 0).all():
            raise ValueError("a draft token has no probability in probs: give the distribution it was drawn from")

    @classmethod
    def chain(cls, token_ids: NDArray[np.int64], probs: NDArray[np.floating] | None = None) -> Draft:
        """A draft whose tokens [B, n] follow each other."""
        return cls(token_ids, np.arange(-1, token_ids.shape[-1] - 1), probs)

    @cached_property
    def tree(self) -> Tree:
        return Tree.of(self.parents)

    def check(self, target_probs: NDArray[np.floating], uniforms: NDArray[np.float64], columns: int) -> None:
        """Whether a rule that uses `columns` random numbers a position can verify this draft with these arrays.

        Raises:
            ValueError: target_probs is not [B, 1 + n, V], uniforms not [B, 1 + D, at least `columns`], or a token
                is not among the V.
        """
        rows, n = self.token_ids.shape
        if target_probs.ndim != 3 or target_probs.shape[:2] != (rows, 1 + n):
            raise ValueError(f"target_probs must be [{rows}, {1 + n}, V], not {list(target_probs.shape)}")
        if (self.token_ids >= target_probs.shape[2]).any():
            raise ValueError(f"token_ids must lie below the {target_probs.shape[2]} tokens that target_probs has")
        if self.probs is not None and self.probs.shape[2] != target_probs.shape[2]:
            raise ValueError(f"probs has {self.probs.shape[2]} tokens but target_probs has {target_probs.shape[2]}")
        depth = self.tree.depth
        if uniforms.ndim != 3 or uniforms.shape[:2] != (rows, 1 + depth) or uniforms.shape[2] < columns:
            raise ValueError(f"uniforms must be [{rows}, {1 + depth}, {columns} or more], not {list(uniforms.shape)}")
