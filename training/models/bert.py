"""The prosody BERT: a BERT encoder with Hugging Face names and three two-way labels a position.

Post-layer-norm, GELU, learnt absolute positions, as in the original; tensor names are those of `BertModel` under
`bert.`, so any BERT-base safetensors loads. The head is the three linear layers of incremental TTS, 2.1.1, kept as one
matrix: rows 2·level and 2·level + 1 score values 0 and 1 of prosodic word, phonological phrase, intonational phrase.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from training.models import files

LEVELS = 3  # prosodic word, phonological phrase, intonational phrase
INIT_STD = 0.02  # as BERT


@dataclass(frozen=True)
class BertConfig:
    """Fields as in a Hugging Face BERT config.json; the defaults are the demo voice's size."""

    vocab_size: int
    hidden_size: int = 192
    num_hidden_layers: int = 4
    num_attention_heads: int = 4
    intermediate_size: int = 768
    max_position_embeddings: int = 256
    type_vocab_size: int = 2
    layer_norm_eps: float = 1e-12
    hidden_dropout_prob: float = 0.1
    pad_token_id: int = 0
    model_type: str = "bert"

    @classmethod
    def from_file(cls, path: Path) -> BertConfig:
        """Read config.json; keys that are not ours are ignored. ValueError for an architecture that is not this one."""
        values = json.loads(path.read_text())
        if (
            values.get("hidden_act", "gelu") != "gelu"
            or values.get("position_embedding_type", "absolute") != "absolute"
        ):
            raise ValueError(f"{path}: only GELU and absolute positions are supported")
        return cls(**{field.name: values[field.name] for field in fields(cls) if field.name in values})


class Embeddings(nn.Module):
    def __init__(self, c: BertConfig) -> None:
        super().__init__()
        self.word_embeddings = nn.Embedding(c.vocab_size, c.hidden_size, padding_idx=c.pad_token_id)
        self.position_embeddings = nn.Embedding(c.max_position_embeddings, c.hidden_size)
        self.token_type_embeddings = nn.Embedding(c.type_vocab_size, c.hidden_size)
        self.LayerNorm = nn.LayerNorm(c.hidden_size, eps=c.layer_norm_eps)
        self.dropout = nn.Dropout(c.hidden_dropout_prob)

    def forward(self, input_ids: Tensor) -> Tensor:
        positions = self.position_embeddings.weight[: input_ids.shape[1]]
        one_sentence = self.token_type_embeddings.weight[0]
        return self.dropout(self.LayerNorm(self.word_embeddings(input_ids) + positions + one_sentence))


class AddNorm(nn.Module):
    """`LayerNorm(residual + dense(x))`."""

    def __init__(self, c: BertConfig, inputs: int) -> None:
        super().__init__()
        self.dense = nn.Linear(inputs, c.hidden_size)
        self.LayerNorm = nn.LayerNorm(c.hidden_size, eps=c.layer_norm_eps)
        self.dropout = nn.Dropout(c.hidden_dropout_prob)

    def forward(self, x: Tensor, residual: Tensor) -> Tensor:
        return self.LayerNorm(residual + self.dropout(self.dense(x)))


class SelfAttention(nn.Module):
    def __init__(self, c: BertConfig) -> None:
        super().__init__()
        self.heads = c.num_attention_heads
        self.query = nn.Linear(c.hidden_size, c.hidden_size)
        self.key = nn.Linear(c.hidden_size, c.hidden_size)
        self.value = nn.Linear(c.hidden_size, c.hidden_size)

    def forward(self, x: Tensor, bias: Tensor) -> Tensor:
        q, k, v = (
            layer(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for layer in (self.query, self.key, self.value)
        )
        return F.scaled_dot_product_attention(q, k, v, attn_mask=bias).transpose(1, 2).flatten(2)


class Layer(nn.Module):
    def __init__(self, c: BertConfig) -> None:
        super().__init__()
        self.attention = nn.ModuleDict({"self": SelfAttention(c), "output": AddNorm(c, c.hidden_size)})
        self.intermediate = nn.ModuleDict({"dense": nn.Linear(c.hidden_size, c.intermediate_size)})
        self.output = AddNorm(c, c.intermediate_size)

    def forward(self, x: Tensor, bias: Tensor) -> Tensor:
        x = self.attention["output"](self.attention["self"](x, bias), x)
        return self.output(F.gelu(self.intermediate["dense"](x)), x)


class ProsodyBert(nn.Module):
    """`forward(input_ids, attention_mask)`, both int64 [B, L] (mask 1 = real) → float32 [B, L, 3, 2] label scores."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.config = config
        layers = nn.ModuleList(Layer(config) for _ in range(config.num_hidden_layers))
        self.bert = nn.ModuleDict({"embeddings": Embeddings(config), "encoder": nn.ModuleDict({"layer": layers})})
        self.prosody = nn.Linear(config.hidden_size, 2 * LEVELS)
        self.apply(_initialise)

    def hidden(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Last hidden state [B, L, H]; rows of padding hold nothing of meaning."""
        x: Tensor = self.bert["embeddings"](input_ids)
        bias = (1.0 - attention_mask[:, None, None, :].to(x.dtype)) * -1e4  # -1e4 also fits fp16
        bias = bias.expand(-1, -1, x.shape[1], -1)  # ONNX Runtime's Attention does not broadcast over queries
        for layer in self.bert["encoder"]["layer"]:  # type: ignore[index]
            x = layer(x, bias)
        return x

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        return self.prosody(self.hidden(input_ids, attention_mask)).unflatten(-1, (LEVELS, 2))

    @classmethod
    def from_pretrained(cls, directory: Path, new_head: bool = False) -> ProsodyBert:
        """Load `config.json` and `model.safetensors`, ours or any BERT's (poolers and other heads are ignored).

        `new_head`: start from an encoder that has no prosody head yet. Raises ValueError naming what is missing.
        """
        model = cls(BertConfig.from_file(directory / files.CONFIG))
        state = {_our_name(name): tensor for name, tensor in files.load(directory)[1].items()}
        wanted = model.state_dict()
        head = {name for name in wanted if name.startswith("prosody.")}
        missing = set(wanted) - set(state) - (head if new_head else set())
        if missing:
            raise ValueError(
                f"{directory / files.WEIGHTS} lacks {sorted(missing)[0]} ({len(missing)} tensors): not a prosody BERT"
            )
        model.load_state_dict({name: state.get(name, tensor) for name, tensor in wanted.items()})
        return model.eval()

    def save_pretrained(self, directory: Path) -> None:
        """Write `config.json` and fp16 `model.safetensors`."""
        config = asdict(self.config) | {"hidden_act": "gelu", "position_embedding_type": "absolute"}
        files.save(directory, self, config)


def _our_name(name: str) -> str:
    """Bare `BertModel` files have no `bert.`; the first ones of 2018 call a norm's parameters gamma and beta."""
    if name.startswith(("embeddings.", "encoder.")):
        name = "bert." + name
    return name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")


def _initialise(module: nn.Module) -> None:
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=INIT_STD)
    if isinstance(module, nn.Linear):
        nn.init.zeros_(module.bias)
    if isinstance(module, nn.Embedding) and module.padding_idx is not None:
        with torch.no_grad():
            module.weight[module.padding_idx].zero_()
