"""Draft heads on the speech LM's last hidden state (VADUSA, section II-A; the heads are MEDUSA's), with its own head.

At the position that reads token t the LM itself predicts token t + 1; head i = 1 … k predicts token t + 1 + i:

    p_i = softmax(U (h_t + V_i SiLU(W_i [h_t; e(x_{t+1})] + b_i)))

V_i = 0 to begin with, so that every head starts as the LM's own. U is the LM's head, shared and frozen, where MEDUSA
gives every head one: at a vocabulary of 4,097 those are nine tenths of the weights, and reading them at every step
costs more than the LM's layers. The embedding of token t + 1, which is drawn before anything is drafted behind it, is
Hydra's addition (Ankner et al. 2024); without it (`reads_next_token` false) a head does not know what was drawn.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from training.models import files
from training.models.llama import SpeechLM

KIND = "heads"


@dataclass(frozen=True)
class DraftHeadsConfig:
    """`heads`: k; `hidden_size`: H of the LM; `logit_count`: V, the logits that the LM exports (eos and the codes)."""

    heads: int
    hidden_size: int
    logit_count: int
    reads_next_token: bool = True
    kind: str = KIND


class Head(nn.Module):
    """A residual block: the state that the LM's head reads."""

    def __init__(self, c: DraftHeadsConfig) -> None:
        super().__init__()
        known = c.hidden_size * (2 if c.reads_next_token else 1)
        self.up_proj = nn.Linear(known, 2 * c.hidden_size)
        self.down_proj = nn.Linear(2 * c.hidden_size, c.hidden_size, bias=False)
        nn.init.zeros_(self.down_proj.weight)

    def forward(self, hidden: Tensor, known: Tensor) -> Tensor:
        state: Tensor = hidden + self.down_proj(F.silu(self.up_proj(known)))
        return state


class DraftHeads(nn.Module):
    """`forward(hidden, following float [B, n, H]) → states float [B, n, k, H]` for the LM's head; [..., i - 1, :] is
    head i's.

    `following`: the LM's embeddings of the tokens behind those that the positions read.
    """

    def __init__(self, config: DraftHeadsConfig) -> None:
        super().__init__()
        self.config = config
        self.heads = nn.ModuleList(Head(config) for _ in range(config.heads))

    @property
    def steps(self) -> int:
        """k: tokens drafted behind the LM's own."""
        return self.config.heads

    @classmethod
    def from_base(cls, base: SpeechLM, heads: int, reads_next_token: bool = True) -> DraftHeads:
        """Untrained heads, each predicting what `base` does."""
        logits = base.config.vocab_size - base.config.logit_offset
        return cls(DraftHeadsConfig(heads, base.config.hidden_size, logits, reads_next_token))

    def forward(self, hidden: Tensor, following: Tensor) -> Tensor:
        known = torch.cat([hidden, following], -1) if self.config.reads_next_token else hidden
        return torch.stack([head(hidden, known) for head in self.heads], -2)

    def save_pretrained(self, directory: str | Path) -> None:
        """fp16 `model.safetensors` and `config.json`."""
        files.save(directory, self, asdict(self.config))

    @classmethod
    def from_pretrained(cls, directory: str | Path) -> DraftHeads:
        """Raises ValueError when the directory holds another kind of model."""
        fields, tensors = files.load(directory)
        if fields.get("kind") != KIND:
            raise ValueError(f"{directory} holds no draft heads; train them with python -m training.draft --kind heads")
        made = cls(DraftHeadsConfig(**fields))
        made.load_state_dict(tensors)
        return made.eval()
