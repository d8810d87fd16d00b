"""Multi-token prediction modules behind the speech LM (Llasa+, section II-A, eq. 1): cascaded, with the LM's own head.

    h^i_t = norm(Layer(M_i [norm(h^{i-1}_t); norm(e(x_{t+i}))])),   p_i = softmax(U h^i_t)

where h^0_t is the LM's last hidden state at the position that reads token x_t, U its head and e its embeddings: module
i = 1, 2 predicts token t + 1 + i. The embedding of the next token x_{t+i} is DeepSeek-V3's; without it
(`reads_next_token` false) this is eq. 1 as Llasa+ uses it, whose authors saw worse acceptance with it (Table I, DPSK).
Weight names are DeepSeek-V3's, the layer's those of `LlamaForCausalLM`.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from training.models import files
from training.models.llama import Layer, SpeechLM, SpeechLMConfig, rotary

KIND = "mtp"


class Module(Layer):
    """Norms and linear in front of a decoder layer, and the norm behind it."""

    def __init__(self, c: SpeechLMConfig, reads_next_token: bool) -> None:
        super().__init__(c)
        self.hnorm = nn.RMSNorm(c.hidden_size, c.rms_norm_eps)
        self.enorm = nn.RMSNorm(c.hidden_size, c.rms_norm_eps) if reads_next_token else None
        self.eh_proj = nn.Linear(c.hidden_size * (2 if reads_next_token else 1), c.hidden_size, bias=False)
        self.norm = nn.RMSNorm(c.hidden_size, c.rms_norm_eps)
        with torch.no_grad():  # starts by passing the hidden state on
            self.eh_proj.weight.zero_()
            self.eh_proj.weight[:, : c.hidden_size] = torch.eye(c.hidden_size)

    def following(self, hidden: Tensor, embedded: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """h^{i-1} and e(x_{t+i}), both [B, n, H] → h^i [B, n, H]."""
        x = self.hnorm(hidden)
        if self.enorm is not None:
            x = torch.cat([x, self.enorm(embedded)], -1)
        # The sum that layers add to stays float32 under autocast, as in the LM.
        out: Tensor = self.norm(self(self.eh_proj(x).to(hidden.dtype), cos, sin)[0])
        return out


class Modules(nn.Module):
    """What Hugging Face calls `model`: here the modules alone."""

    def __init__(self, c: SpeechLMConfig, reads_next_token: bool) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Module(c, reads_next_token) for _ in range(c.num_hidden_layers))


class MTP(nn.Module):
    """`forward(hidden [B, n, H], embedded [B, n, H]) → [B, n, k, H]`: states for the LM's head, teacher forced.

    `embedded` are the summed embeddings of the tokens that the positions themselves read; each module looks i ahead.
    config: the LM's, with the number of modules k as `num_hidden_layers`.
    """

    def __init__(self, config: SpeechLMConfig, reads_next_token: bool = True) -> None:
        super().__init__()
        self.config, self.reads_next_token = config, reads_next_token
        self.model = Modules(config, reads_next_token)
        for name, weight in self.named_parameters():
            if weight.dim() == 2 and "eh_proj" not in name:
                deep = name.endswith(("o_proj.weight", "down_proj.weight"))
                nn.init.normal_(weight, std=0.02 / (2**0.5 if deep else 1.0))

    @property
    def layers(self) -> list[Module]:
        return cast(list[Module], list(self.model.layers))

    @property
    def steps(self) -> int:
        """k: tokens drafted behind the LM's own."""
        return self.config.num_hidden_layers

    @classmethod
    def from_base(cls, base: SpeechLM, modules: int, reads_next_token: bool = True) -> MTP:
        """Untrained modules of the base's sizes, their last norms those of the base."""
        made = cls(replace(base.config, num_hidden_layers=modules), reads_next_token)
        with torch.no_grad():
            for module in made.layers:
                module.norm.weight.copy_(base.model.norm.weight)
        return made

    def forward(self, hidden: Tensor, embedded: Tensor) -> Tensor:
        cos, sin = (x.to(hidden.dtype) for x in rotary(self.config, hidden.shape[1], hidden.device))
        states = []
        for ahead, module in enumerate(self.layers, start=1):
            hidden = module.following(hidden, F.pad(embedded[:, ahead:], (0, 0, 0, ahead)), cos, sin)
            states.append(hidden)
        return torch.stack(states, -2)

    def save_pretrained(self, directory: str | Path) -> None:
        """fp16 `model.safetensors` and `config.json`; the base's embeddings and head are not in it."""
        config = asdict(self.config) | {"kind": KIND, "reads_next_token": self.reads_next_token}
        files.save(directory, self, config)

    @classmethod
    def from_pretrained(cls, directory: str | Path) -> MTP:
        """Raises ValueError when the directory holds another kind of model."""
        fields, tensors = files.load(directory)
        if fields.get("kind") != KIND:
            raise ValueError(f"{directory} holds no MTP modules; train them with python -m training.draft --kind mtp")
        known = {k: v for k, v in fields.items() if k in SpeechLMConfig.__dataclass_fields__}
        config = SpeechLMConfig(**{**known, "architectures": tuple(fields["architectures"])})
        made = cls(config, fields["reads_next_token"])
        made.load_state_dict(tensors)
        return made.eval()
