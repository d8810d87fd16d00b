"""The speech LM: a Llama decoder (Hugging Face names) over positions of several summed ids.

Tensor names are those of `LlamaForCausalLM`; with one channel this is a plain Llama.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from training.models import files


@dataclass(frozen=True)
class SpeechLMConfig:
    """Fields of a Hugging Face config.json, and ours: `channels` ids a position, `logit_offset` first predicted."""

    vocab_size: int
    logit_offset: int
    channels: int = 4
    hidden_size: int = 384
    num_hidden_layers: int = 6
    num_attention_heads: int = 6
    num_key_value_heads: int = 2
    head_dim: int = 64
    intermediate_size: int = 1024
    rms_norm_eps: float = 1e-5
    rope_theta: float = 10_000.0
    max_position_embeddings: int = 2048
    tie_word_embeddings: bool = False
    bos_token_id: int = 1
    pad_token_id: int = 0
    model_type: str = "llama"
    architectures: tuple[str, ...] = ("LlamaForCausalLM",)


def rotary(config: SpeechLMConfig, length: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """cos, sin [length, head_dim] of the rotate-half convention."""
    half = torch.arange(0, config.head_dim, 2, device=device).float() / config.head_dim
    angle = torch.outer(torch.arange(length, device=device).float(), config.rope_theta**-half)
    return torch.cat([angle, angle], -1).cos(), torch.cat([angle, angle], -1).sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    left, right = x.chunk(2, -1)
    return x * cos + torch.cat([-right, left], -1) * sin


class Attention(nn.Module):
    def __init__(self, c: SpeechLMConfig) -> None:
        super().__init__()
        self.c = c
        self.q_proj = nn.Linear(c.hidden_size, c.num_attention_heads * c.head_dim, bias=False)
        self.k_proj = nn.Linear(c.hidden_size, c.num_key_value_heads * c.head_dim, bias=False)
        self.v_proj = nn.Linear(c.hidden_size, c.num_key_value_heads * c.head_dim, bias=False)
        self.o_proj = nn.Linear(c.num_attention_heads * c.head_dim, c.hidden_size, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """x [B, T, H] → output [B, T, H], and head 0's query and key [B, T, D] for alignment supervision."""
        batch, length, _ = x.shape
        q, k, v = (
            project(x).view(batch, length, -1, self.c.head_dim).transpose(1, 2)
            for project in (self.q_proj, self.k_proj, self.v_proj)
        )
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        groups = self.c.num_attention_heads // self.c.num_key_value_heads
        y = F.scaled_dot_product_attention(
            q, k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1), is_causal=True
        )
        return self.o_proj(y.transpose(1, 2).reshape(batch, length, -1)), q[:, 0], k[:, 0]


class MLP(nn.Module):
    def __init__(self, c: SpeechLMConfig) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(c.hidden_size, c.intermediate_size, bias=False)
        self.up_proj = nn.Linear(c.hidden_size, c.intermediate_size, bias=False)
        self.down_proj = nn.Linear(c.intermediate_size, c.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))
        return y


class Layer(nn.Module):
    def __init__(self, c: SpeechLMConfig) -> None:
        super().__init__()
        self.self_attn, self.mlp = Attention(c), MLP(c)
        self.input_layernorm = nn.RMSNorm(c.hidden_size, c.rms_norm_eps)
        self.post_attention_layernorm = nn.RMSNorm(c.hidden_size, c.rms_norm_eps)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        attended, query, key = self.self_attn(self.input_layernorm(x), cos, sin)
        x = x + attended
        return x + self.mlp(self.post_attention_layernorm(x)), query, key


class Backbone(nn.Module):
    """Embedding table, layers and final norm: what Hugging Face calls `model`."""

    def __init__(self, c: SpeechLMConfig) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(c.vocab_size, c.hidden_size, padding_idx=c.pad_token_id)
        self.layers = nn.ModuleList(Layer(c) for _ in range(c.num_hidden_layers))
        self.norm = nn.RMSNorm(c.hidden_size, c.rms_norm_eps)


class SpeechLM(nn.Module):
    """`forward(tokens int64 [B, n, C]) → logits float [B, n, vocab_size]`, teacher forced and causal."""

    def __init__(self, config: SpeechLMConfig) -> None:
        super().__init__()
        self.config = c = config
        self.model = Backbone(c)
        self.lm_head = nn.Linear(c.hidden_size, c.vocab_size, bias=False)
        for name, weight in self.named_parameters():
            if weight.dim() == 2:
                deep = name.endswith(("o_proj.weight", "down_proj.weight"))
                nn.init.normal_(weight, std=0.02 / ((2 * c.num_hidden_layers) ** 0.5 if deep else 1.0))
        with torch.no_grad():
            self.model.embed_tokens.weight[c.pad_token_id] = 0

    def hidden(self, tokens: Tensor, watch: int | None = None) -> tuple[Tensor, tuple[Tensor, Tensor] | None]:
        """Last hidden states [B, n, H]; with `watch`, also head 0's (query, key) of that layer."""
        embedded = self.model.embed_tokens(tokens)
        x = embedded.sum(2) * (tokens[:, :, :1] != self.config.pad_token_id)
        cos, sin = rotary(self.config, tokens.shape[1], tokens.device)
        watched = None
        for index, layer in enumerate(self.model.layers):
            x, query, key = layer(x, cos.to(x.dtype), sin.to(x.dtype))
            if index == watch:
                watched = query, key
        return self.model.norm(x), watched

    def forward(self, tokens: Tensor) -> Tensor:
        logits: Tensor = self.lm_head(self.hidden(tokens)[0])
        return logits

    def save_pretrained(self, directory: str | Path) -> None:
        """fp16 `model.safetensors` and `config.json`."""
        files.save(directory, self, asdict(self.config))

    @classmethod
    def from_pretrained(cls, directory: str | Path) -> SpeechLM:
        fields, tensors = files.load(directory)
        known = {k: v for k, v in fields.items() if k in SpeechLMConfig.__dataclass_fields__}
        model = cls(SpeechLMConfig(**{**known, "architectures": tuple(fields["architectures"])}))
        model.load_state_dict(tensors)
        return model.eval()
