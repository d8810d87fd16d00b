"""head_I.onnx and mtp_I.onnx: what drafts for the LM, fed with its last hidden states.

Every weight multiplies in a MatMul of two dimensions, so that the forms of `export.quantize` apply to drafts too.

**head_I.onnx** (I = 1 …) `hidden` float32 [B,n,H] (the state of the head before, of the first the LM's; the LM's for
all where heads read no tokens), `tokens` int64 [B,n,C] (the token that state led to, which is drafted behind) →
`logits`, `top_logits`, `top_ids`, `next_hidden` float32 [B,n,H].
**mtp_I.onnx** (I = 1 …) as lm.onnx with one layer and a cache of its own: `hidden` float32 [B,n,H] (the LM's, or the
module's before), `tokens` int64 [B,n,C] (the token I behind the one the position reads; absent where the module reads
none), `position_ids`, `write_idx`, `bias`, `logit_idx`, `past_k.(I-1)`, `past_v.(I-1)` → `logits`, `top_logits`,
`top_ids`, `next_hidden` float32 [B,n,H], `present_k.(I-1)`, `present_v.(I-1)`.
"""

from __future__ import annotations

import onnx

from export.checkpoint import Checkpoint
from export.graph import Graph
from export.lm import (
    F32,
    I64,
    LlamaConfig,
    add_embedding,
    add_head,
    add_layer,
    add_linear,
    add_norm,
    add_selection,
    add_shared,
    head_rows,
)


def build_head(checkpoint: Checkpoint, lm: Checkpoint, head: int) -> onnx.ModelProto:
    """The fp32 graph of draft head I = head + 1 (training/models/draft_heads.py), with the LM's embeddings and head."""
    hidden = int(checkpoint.config["hidden_size"])
    name = f"heads.{head}"
    graph = Graph(f"head_{head + 1}")
    graph.input("hidden", F32, ["B", "n", hidden])
    known, config = "hidden", LlamaConfig.from_dict(lm.config)
    if checkpoint.config["reads_path"]:
        graph.input("tokens", I64, ["B", "n", config.channels])
        known = graph.node("Concat", ["hidden", add_embedding(graph, lm, config)], "known", axis=-1)
    graph.output("next_hidden", F32, ["B", "n", hidden])
    x = add_linear(graph, known, [checkpoint.tensor(f"{name}.up_proj.weight")], f"{name}.up_proj")
    bias = graph.weight(f"{name}.up_proj.bias", checkpoint.tensor(f"{name}.up_proj.bias"))
    x = graph.node("Add", [x, bias], f"{name}.biased")
    gate = graph.node("Sigmoid", [x], f"{name}.sigmoid")
    x = graph.node("Mul", [x, gate], f"{name}.silu")
    x = add_linear(graph, x, [checkpoint.tensor(f"{name}.down_proj.weight")], f"{name}.down_proj")
    graph.node("Add", ["hidden", x], "next_hidden")
    add_head(graph, "next_hidden", ["B", "n"], head_rows(lm, config))
    return graph.model()


def build_mtp(checkpoint: Checkpoint, lm: Checkpoint, module: int) -> onnx.ModelProto:
    """The fp32 graph of MTP module I = module + 1 (training/models/mtp.py), with the LM's embeddings and head in it."""
    config = LlamaConfig.from_dict(checkpoint.config)
    name = f"model.layers.{module}"
    graph = Graph(f"mtp_{module + 1}")
    graph.input("hidden", F32, ["B", "n", config.hidden_size])
    x = add_norm(graph, checkpoint, config, "hidden", f"{name}.hnorm")
    if checkpoint.config["reads_next_token"]:
        graph.input("tokens", I64, ["B", "n", config.channels])
        embedded = add_norm(graph, checkpoint, config, add_embedding(graph, lm, config), f"{name}.enorm")
        x = graph.node("Concat", [x, embedded], f"{name}.both", axis=-1)
    x = add_linear(graph, x, [checkpoint.tensor(f"{name}.eh_proj.weight")], f"{name}.eh_proj")
    graph.input("position_ids", I64, ["B", "n"])
    graph.input("write_idx", I64, ["B"])
    graph.input("bias", F32, ["B", 1, "n", "T"])
    graph.input("logit_idx", I64, ["B", "m"])
    graph.output("next_hidden", F32, ["B", "n", config.hidden_size])
    for kind in "kv":
        cache: list[int | str] = ["B", config.kv_heads, "T", config.head_dim]
        graph.input(f"past_{kind}.{module}", F32, cache)
        graph.output(f"present_{kind}.{module}", F32, cache)
    add_shared(graph, config)
    x = add_layer(graph, checkpoint, config, module, x)
    add_norm(graph, checkpoint, config, x, f"{name}.norm", "next_hidden")
    wanted = add_selection(graph, "next_hidden")
    add_head(graph, wanted, ["B", "m"], head_rows(lm, config))
    return graph.model()
