"""Draft heads on the speech LM's last hidden state (VADUSA, section II-A; the heads are MEDUSA's), with its own head.

At the position that reads token t the LM itself predicts token t + 1; head i = 1 … k predicts token t + 1 + i:

    s_0 = h_t,   s_i = s_{i-1} + V_i SiLU(W_i [s_{i-1}; e(x_{t+i})] + b_i),   p_i = softmax(U s_i)

V_i = 0 to begin with, so that every head starts as the LM's own. U is the LM's head, shared and frozen, where MEDUSA
gives every head one: at a vocabulary of 4,097 those are nine tenths of the weights, and reading them at every step
costs more than the LM's layers. That a head builds on the one before and reads the embedding of the token it drafts
behind is Hydra's addition (Ankner et al. 2024): a branch of the tree is drafted for what stands on it. Without it
(`reads_path` false) all heads read h_t alone, as VADUSA's do.
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
    reads_path: bool = True
    kind: str = KIND


class Head(nn.Module):
    """A residual block: the state that the LM's head reads."""

    def __init__(self, c: DraftHeadsConfig) -> None:
        super().__init__()
        known = c.hidden_size * (2 if c.reads_path else 1)
        self.up_proj = nn.Linear(known, 2 * c.hidden_size)
        self.down_proj = nn.Linear(2 * c.hidden_size, c.hidden_size, bias=False)
        nn.init.zeros_(self.down_proj.weight)

    def forward(self, state: Tensor, known: Tensor) -> Tensor:
        after: Tensor = state + self.down_proj(F.silu(self.up_proj(known)))
        return after


class DraftHeads(nn.Module):
    """`forward(hidden float [..., H], following float [..., k, H]) → states float [..., k, H]` for the LM's head.

    `following[..., i - 1, :]`: the LM's embedding of the token i behind the one that the position reads, which is what
    head i drafts behind; its state is `states[..., i - 1, :]`.
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
    def from_base(cls, base: SpeechLM, heads: int, reads_path: bool = True) -> DraftHeads:
        """Untrained heads, each predicting what `base` does."""
        logits = base.config.vocab_size - base.config.logit_offset
        return cls(DraftHeadsConfig(heads, base.config.hidden_size, logits, reads_path))

    def forward(self, hidden: Tensor, following: Tensor) -> Tensor:
        states: list[Tensor] = []
        for ahead, head in enumerate(self.heads):
            if self.config.reads_path:
                before = states[-1] if states else hidden
                states.append(head(before, torch.cat([before, following[..., ahead, :]], -1)))
            else:
                states.append(head(hidden, hidden))
        return torch.stack(states, -2)

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
