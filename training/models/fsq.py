"""Finite scalar quantisation: one codebook that is a grid, so nothing in it can collapse."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class FSQ(nn.Module):
    """Rounds each latent dimension to `levels[d]` values; the code is their mixed-radix number."""

    sizes: Tensor
    basis: Tensor
    grid: Tensor

    def __init__(self, levels: tuple[int, ...]) -> None:
        super().__init__()
        self.levels = levels
        sizes = torch.tensor(levels)
        basis = torch.cumprod(torch.tensor([1, *levels[:-1]]), 0)
        self.register_buffer("sizes", sizes, persistent=False)
        self.register_buffer("basis", basis, persistent=False)
        digits = (torch.arange(int(sizes.prod()))[:, None] // basis) % sizes
        self.register_buffer("grid", (digits - sizes // 2) / (sizes // 2), persistent=False)

    @property
    def size(self) -> int:
        return int(self.grid.shape[0])

    def forward(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """z float [..., dims] -> quantised values in [-1, 1] with a straight-through gradient, codes int64 [...]."""
        half = (self.sizes - 1) * 1.001 / 2
        offset = torch.where(self.sizes % 2 == 0, 0.5, 0.0)
        bounded = torch.tanh(z + torch.atanh(offset / half)) * half - offset
        rounded = bounded + (bounded.round() - bounded).detach()
        digits = rounded.detach().round().long() + self.sizes // 2
        return rounded / (self.sizes // 2), (digits * self.basis).sum(-1)
