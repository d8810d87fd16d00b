"""lm.onnx: a Llama decoder over an in-place, slotted key-value cache; prefill, decode and verification are one graph.

Weights are those of Hugging Face's `LlamaForCausalLM`; a position's C ids are embedded and summed (incremental_tts
eq. 1; one channel is a plain Llama). The graph's form is the one that ONNX Runtime and TensorRT both take: per layer
RMSNormalization, one fused QKV MatMul, RotaryEmbedding with explicit positions, TensorScatter into the cache, Attention
with an additive bias and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from export.checkpoint import Checkpoint
from export.errors import ExportError
from export.graph import MAX_BYTES, Graph

F32, I64 = np.float32, np.int64
TOP = 33  # largest logits that a graph names: the widest top-k sampled from them, and the end of a sentence


@dataclass(frozen=True)
class LlamaConfig:
    """The fields of a Llama config.json that the graph depends on, and ours: `channels`, `logit_offset`, `pad_id`.

    The first `logit_offset` rows of the head are left out of the graph. With several channels the embedding of
    `pad_id` is zero, so that an unused channel adds nothing.
    """

    vocab_size: int
    hidden_size: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate_size: int
    rms_norm_eps: float
    max_positions: int
    rope_theta: float
    rope: Mapping[str, Any]
    channels: int
    logit_offset: int
    pad_id: int

    @property
    def logit_count(self) -> int:
        return self.vocab_size - self.logit_offset

    @property
    def rope_type(self) -> str:
        return str(self.rope.get("rope_type", self.rope.get("type", "default")))

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> LlamaConfig:
        """Read config.json, with `rope_theta` and `rope_scaling` or the newer `rope_parameters`.

        Raises ExportError saying what is missing or not supported.
        """
        for name, only in (("hidden_act", "silu"), ("attention_bias", False), ("mlp_bias", False)):
            if fields.get(name, only) != only:
                raise ExportError(f"only {name} = {only!r} is supported; config.json has {fields[name]!r}")
        rope = dict(fields.get("rope_parameters") or fields.get("rope_scaling") or {})
        try:
            heads, hidden = int(fields["num_attention_heads"]), int(fields["hidden_size"])
            return cls(
                vocab_size=int(fields["vocab_size"]),
                hidden_size=hidden,
                layers=int(fields["num_hidden_layers"]),
                heads=heads,
                kv_heads=int(fields.get("num_key_value_heads") or heads),
                head_dim=int(fields.get("head_dim") or hidden // heads),
                intermediate_size=int(fields["intermediate_size"]),
                rms_norm_eps=float(fields.get("rms_norm_eps", 1e-6)),
                max_positions=int(fields.get("max_position_embeddings", 2048)),
                rope_theta=float(rope.get("rope_theta", fields.get("rope_theta", 10_000.0))),
                rope=rope,
                channels=int(fields.get("channels", 1)),
                logit_offset=int(fields.get("logit_offset", 0)),
                pad_id=int(fields.get("pad_token_id") or 0),
            )
        except KeyError as error:
            raise ExportError(f"config.json lacks {error.args[0]!r}; it is not a Llama's") from error


def inverse_frequencies(config: LlamaConfig) -> NDArray[np.float64]:
    """Rotation a position in radians, [head_dim / 2]; rope types default, linear and llama3 (Llama 3.1)."""
    scaling, kind = config.rope, config.rope_type
    frequency = config.rope_theta ** -(np.arange(0, config.head_dim, 2) / config.head_dim)
    if kind == "default":
        return frequency
    if kind == "linear":
        return frequency / float(scaling["factor"])
    if kind == "llama3":
        # Long wavelengths are stretched by `factor`, short ones kept, the band between interpolated.
        low, high = float(scaling["low_freq_factor"]), float(scaling["high_freq_factor"])
        turns = float(scaling["original_max_position_embeddings"]) * frequency / (2 * np.pi)
        kept = np.clip((turns - low) / (high - low), 0.0, 1.0)
        return frequency * (kept + (1 - kept) / float(scaling["factor"]))
    raise ExportError(f"rope type {kind!r} is not supported; default, linear and llama3 are")


def build_lm(checkpoint: Checkpoint) -> onnx.ModelProto:
    """The fp32 graph of a Llama checkpoint; inputs and outputs as in docs/ARCHITECTURE.md, "lm.onnx".

    Raises:
        ExportError: a missing weight, an unsupported option, or more weights than one ONNX file holds.
    """
    config = LlamaConfig.from_dict(checkpoint.config)
    graph = Graph("lm")
    cache: list[int | str] = ["B", config.kv_heads, "T", config.head_dim]
    graph.input("tokens", I64, ["B", "n", config.channels])
    graph.input("position_ids", I64, ["B", "n"])
    graph.input("write_idx", I64, ["B"])
    graph.input("bias", F32, ["B", 1, "n", "T"])
    graph.input("logit_idx", I64, ["B", "m"])
    graph.output("hidden", F32, ["B", "m", config.hidden_size])
    add_shared(graph, config)
    x = add_embedding(graph, checkpoint, config)
    for layer in range(config.layers):
        for kind in "kv":
            graph.input(f"past_{kind}.{layer}", F32, cache)
            graph.output(f"present_{kind}.{layer}", F32, cache)
        x = add_layer(graph, checkpoint, config, layer, x, wanted_only=layer == config.layers - 1)
    add_norm(graph, checkpoint, config, x, "model.norm", "hidden")
    add_head(graph, "hidden", ["B", "m"], head_rows(checkpoint, config))
    model = graph.model()
    size = model.ByteSize()
    if size > MAX_BYTES:
        raise ExportError(f"the graph is {size / 2**30:.1f} GiB; one ONNX file holds at most 2 GiB of weights")
    return model


def add_head(graph: Graph, x: str, shape: list[int | str], weight: NDArray[np.float32]) -> None:
    """Outputs `logits` [shape, V], and the `TOP` largest of them, largest first: `top_logits`, `top_ids` [shape, TOP].

    Sampling rarely needs more, and a graph finds them without the interpreter's lock.
    """
    add_linear(graph, x, [weight], "logits")
    top = min(TOP, len(weight))
    graph.node("TopK", ["logits", graph.weight("top", np.array([top], I64))], ["top_logits", "top_ids"])
    graph.output("logits", F32, [*shape, len(weight)])
    graph.output("top_logits", F32, [*shape, top])
    graph.output("top_ids", I64, [*shape, top])


def head_rows(checkpoint: Checkpoint, config: LlamaConfig) -> NDArray[np.float32]:
    """The rows of the head that the graph has logits for, [V, H]."""
    tied = "lm_head.weight" not in checkpoint.names
    return checkpoint.tensor("model.embed_tokens.weight" if tied else "lm_head.weight")[config.logit_offset :]


def add_shared(graph: Graph, config: LlamaConfig) -> None:
    """What every `add_layer` reads: the tables that queries and keys are rotated by, the bias of its attention."""
    angle = np.outer(np.arange(config.max_positions), inverse_frequencies(config))
    graph.weight("rotary.cos", np.cos(angle).astype(F32))
    graph.weight("rotary.sin", np.sin(angle).astype(F32))
    graph.node("Concat", ["bias"] * (config.heads // config.kv_heads), "bias.grouped", axis=2)


def add_selection(graph: Graph, x: str) -> str:
    """The positions `logit_idx` [B, m] of x [B, n, H]."""
    last_axis = graph.weight("last_axis", np.array([-1], I64))
    index = graph.node("Unsqueeze", ["logit_idx", last_axis], f"{x}.wanted_idx")
    return graph.node("GatherND", [x, index], f"{x}.wanted", batch_dims=1)


def add_embedding(graph: Graph, checkpoint: Checkpoint, config: LlamaConfig) -> str:
    """The embeddings of input `tokens` [B, n, C], summed over channels."""
    table = checkpoint.tensor("model.embed_tokens.weight")
    if table.shape != (config.vocab_size, config.hidden_size):
        raise ExportError(f"embed_tokens is {table.shape}, config.json says {(config.vocab_size, config.hidden_size)}")
    weight = "model.embed_tokens.weight"
    if config.channels == 1:
        ids = graph.node("Squeeze", ["tokens", graph.weight("last_axis", np.array([-1], I64))], "tokens.flat")
        return graph.node("Gather", [graph.weight(weight, table), ids], "embedded")
    table = table.copy()
    table[config.pad_id] = 0
    each = graph.node("Gather", [graph.weight(weight, table), "tokens"], "embedded.channels")
    axis = graph.weight("channel_axis", np.array([2], I64))
    return graph.node("ReduceSum", [each, axis], "embedded", keepdims=0)


def add_layer(
    graph: Graph, checkpoint: Checkpoint, config: LlamaConfig, layer: int, x: str, wanted_only: bool = False
) -> str:
    """Decoder layer `layer` over x [B, n, H], with the inputs and the cache that `build_lm` declares.

    wanted_only: the last layer, of which nobody reads but the positions `logit_idx`. All others end with their keys and
    values there: a sixth of a prompt's work in six layers, and the head, which is the widest MatMul.
    """
    name = f"model.layers.{layer}"
    rotated, kv = config.heads + config.kv_heads, config.kv_heads

    def weights(*kinds: str) -> list[NDArray[np.float32]]:
        return [checkpoint.tensor(f"{name}.{kind}.weight") for kind in kinds]

    h = add_norm(graph, checkpoint, config, x, f"{name}.input_layernorm")
    projections = weights("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
    qkv = add_linear(graph, h, projections, f"{name}.qkv")
    # Heads first, so that queries and keys are rotated in one go before they part.
    shape = graph.weight("heads_shape", np.array([0, 0, rotated + kv, config.head_dim], I64))
    heads = graph.node("Reshape", [qkv, shape], f"{name}.heads")
    heads = graph.node("Transpose", [heads], f"{name}.heads_first", perm=[0, 2, 1, 3])
    parts = [f"{name}.qk", f"{name}.v"]
    graph.node("Split", [heads, graph.weight("qk_v", np.array([rotated, kv], I64))], parts, axis=1)
    turned = graph.node("RotaryEmbedding", [parts[0], "rotary.cos", "rotary.sin", "position_ids"], f"{name}.rotated")
    q, k = f"{name}.q", f"{name}.k"
    graph.node("Split", [turned, graph.weight("q_k", np.array([config.heads, kv], I64))], [q, k], axis=1)
    for kind, new in (("k", k), ("v", parts[1])):
        past = f"past_{kind}.{layer}"
        graph.node("TensorScatter", [past, new, "write_idx"], f"present_{kind}.{layer}", axis=-2)
    caches = [f"present_k.{layer}", f"present_v.{layer}"]
    # The query heads that share a key head are rows of one product, which reads the cache once for all of them: in the
    # server's decode step of long contexts the cache is most of what is read. With several positions the same bits.
    grouped = graph.weight("grouped_shape", np.array([0, kv, -1, config.head_dim], I64))
    by_head = graph.weight("by_head_shape", np.array([0, config.heads, -1, config.head_dim], I64))
    q = graph.node("Reshape", [q, grouped], f"{name}.q.grouped")
    y = graph.node("Attention", [q, *caches, "bias.grouped"], f"{name}.attention.grouped")
    y = graph.node("Reshape", [y, by_head], f"{name}.attention")
    y = graph.node("Transpose", [y], f"{name}.attention.by_position", perm=[0, 2, 1, 3])
    flat = graph.weight("flat_shape", np.array([0, 0, config.heads * config.head_dim], I64))
    y = graph.node("Reshape", [y, flat], f"{name}.attention.flat")
    if wanted_only:
        x, y = add_selection(graph, x), add_selection(graph, y)
    y = add_linear(graph, y, weights("self_attn.o_proj"), f"{name}.self_attn.o_proj")
    x = graph.node("Add", [x, y], f"{name}.attended")
    h = add_norm(graph, checkpoint, config, x, f"{name}.post_attention_layernorm")
    # Two products: one of both would have to be split, a copy that takes a prompt longer than a product's begin.
    gate = add_linear(graph, h, weights("mlp.gate_proj"), f"{name}.mlp.gate")
    up = add_linear(graph, h, weights("mlp.up_proj"), f"{name}.mlp.up")
    sigmoid = graph.node("Sigmoid", [gate], f"{name}.mlp.sigmoid")
    gate = graph.node("Mul", [gate, sigmoid], f"{name}.mlp.silu")
    h = graph.node("Mul", [gate, up], f"{name}.mlp.gated")
    y = add_linear(graph, h, weights("mlp.down_proj"), f"{name}.mlp.down_proj")
    return graph.node("Add", [x, y], f"{name}.out")


def add_norm(
    graph: Graph, checkpoint: Checkpoint, config: LlamaConfig, x: str, name: str, output: str | None = None
) -> str:
    """RMSNorm with weight `name`.weight."""
    weight = graph.weight(f"{name}.weight", checkpoint.tensor(f"{name}.weight"))
    return graph.node("RMSNormalization", [x, weight], output or f"{name}.out", axis=-1, epsilon=config.rms_norm_eps)


def add_linear(graph: Graph, x: str, weights: list[NDArray[np.float32]], output: str) -> str:
    """x @ concatenated(weights [out_i, in]).T as one MatMul."""
    weight = np.concatenate(weights).T if len(weights) > 1 else weights[0].T
    return graph.node("MatMul", [x, graph.weight(f"{output}.weight", weight)], output)
