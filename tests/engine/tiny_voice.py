"""A complete voice directory: small random graphs with the exported ones' interface; and a toy text frontend.

The poison phoneme "☠" embeds to NaN, so that non-finite logits come from a real graph run.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tts_engine.prompt import CHANNELS, Vocabulary
from tts_engine.sampling import NARROW
from tts_engine.speculative import Groups
from tts_engine.text import Sentence, Word, WordpieceEncoding

LAYERS, HIDDEN, HEADS, KV_HEADS, HEAD_DIM, MAX_POSITIONS = 2, 64, 4, 1, 16, 512
CODEBOOK, FRAME_SAMPLES, SAMPLE_RATE = 255, 320, 16_000
VOCODER_WIDTH, VOCODER_KERNEL = 16, 4
POISON = "☠"
PHONEMES = [" ", ".", ",", *"abcdefghijklmnopqrstuvwxyz", POISON]
VOCABULARY = Vocabulary.from_phonemes(PHONEMES, CODEBOOK)
WORDPIECES = 32


class ToyText:
    """Letters are phonemes, full stops end sentences, a word is one wordpiece."""

    def iterate(self, text: str) -> Iterator[Sentence]:
        for piece in text.lower().split("."):
            words = piece.split()
            if words:
                last = len(words) - 1
                spoken = [Word(word, tuple(word), (".",) if at == last else ()) for at, word in enumerate(words)]
                yield Sentence(" ".join(words), tuple(spoken))

    def encode(self, sentence: Sentence) -> WordpieceEncoding:
        ids = [1 + sum(map(ord, word.text)) % (WORDPIECES - 1) for word in sentence.words]
        return WordpieceEncoding(ids, list(range(len(ids))))


class Graph:
    """A few lines around onnx.helper: `node` returns the name of its first output, `const` of an initializer."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def const(self, value: np.ndarray) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(value, name))
        return name

    def ints(self, *values: int) -> str:
        return self.const(np.array(values, dtype=np.int64))

    def weights(self, *shape: int, scale: float | None = None) -> str:
        scale = scale or shape[0] ** -0.5
        return self.const((self.rng.standard_normal(shape) * scale).astype(np.float32))

    def node(self, op: str, *inputs: str, outputs: list[str] | None = None, **attributes: Any) -> str:
        names = outputs or [f"node{len(self.nodes)}"]
        self.nodes.append(helper.make_node(op, list(inputs), names, **attributes))
        return names[0]

    def head(self, x: str, weight: str, shape: list, vocabulary: Vocabulary) -> dict[str, tuple]:
        """Logits of x and the largest of them; the outputs' types and shapes."""
        top = min(NARROW + 1, vocabulary.logit_count)
        self.node("MatMul", x, weight, outputs=["logits"])
        self.node("TopK", "logits", self.ints(top), outputs=["top_logits", "top_ids"])
        return {
            "logits": (TensorProto.FLOAT, [*shape, vocabulary.logit_count]),
            "top_logits": (TensorProto.FLOAT, [*shape, top]),
            "top_ids": (TensorProto.INT64, [*shape, top]),
        }

    def save(self, path: Path, inputs: dict[str, tuple], outputs: dict[str, tuple]) -> None:
        def infos(values: dict[str, tuple]) -> list[onnx.ValueInfoProto]:
            return [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in values.items()]

        graph = helper.make_graph(self.nodes, path.stem, infos(inputs), infos(outputs), self.constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)], ir_version=10)
        onnx.checker.check_model(model)
        onnx.save(model, str(path))


def write_language_model(path: Path, vocabulary: Vocabulary, other: float = 0.0) -> None:
    """Llama-shaped, in the form of docs/ARCHITECTURE.md (TensorScatter into the cache, then masked Attention).

    other: how far the head is from the LM's own, for a draft model that guesses well but not perfectly.
    """
    g = Graph(seed=1)
    table = g.rng.standard_normal((vocabulary.size, HIDDEN)).astype(np.float32)
    table[vocabulary.pad_id] = 0
    if POISON in vocabulary.phonemes:
        table[vocabulary.phoneme_ids[POISON]] = np.nan
    x = g.node("ReduceSum", g.node("Gather", g.const(table), "tokens"), g.ints(2), keepdims=0)
    angles = np.arange(MAX_POSITIONS)[:, None] * 10_000.0 ** (-np.arange(HEAD_DIM // 2) / (HEAD_DIM // 2))
    cos, sin = (g.const(f(angles).astype(np.float32)) for f in (np.cos, np.sin))
    one = g.const(np.ones(HIDDEN, dtype=np.float32))

    def heads(value: str, count: int) -> str:
        return g.node("Transpose", g.node("Reshape", value, g.ints(0, 0, count, HEAD_DIM)), perm=[0, 2, 1, 3])

    for layer in range(LAYERS):
        normed = g.node("RMSNormalization", x, one, axis=-1, epsilon=1e-5)
        sizes = [HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM]
        names = [f"{part}{layer}" for part in "qkv"]
        g.node("Split", g.node("MatMul", normed, g.weights(HIDDEN, sum(sizes))), g.ints(*sizes), outputs=names, axis=-1)
        q, k, v = (heads(name, count) for name, count in zip(names, (HEADS, KV_HEADS, KV_HEADS), strict=True))
        q, k = (g.node("RotaryEmbedding", part, cos, sin, "position_ids") for part in (q, k))
        cached = [
            g.node(
                "TensorScatter",
                f"past_{kind}.{layer}",
                new,
                "write_idx",
                outputs=[f"present_{kind}.{layer}"],
                axis=-2,
            )
            for kind, new in (("k", k), ("v", v))
        ]
        attended = g.node("Attention", q, *cached, "bias")
        merged = g.node("Reshape", g.node("Transpose", attended, perm=[0, 2, 1, 3]), g.ints(0, 0, HEADS * HEAD_DIM))
        x = g.node("Add", x, g.node("MatMul", merged, g.weights(HEADS * HEAD_DIM, HIDDEN)))
        normed = g.node("RMSNormalization", x, one, axis=-1, epsilon=1e-5)
        gate = g.node("MatMul", normed, g.weights(HIDDEN, 2 * HIDDEN))
        gate = g.node("Mul", gate, g.node("Sigmoid", gate))
        up = g.node("Mul", gate, g.node("MatMul", normed, g.weights(HIDDEN, 2 * HIDDEN)))
        x = g.node("Add", x, g.node("MatMul", up, g.weights(2 * HIDDEN, HIDDEN)))
    final = g.node("RMSNormalization", x, one, axis=-1, epsilon=1e-5)
    places = g.node("Unsqueeze", "logit_idx", g.ints(2))
    hidden = g.node("GatherND", final, places, outputs=["hidden"], batch_dims=1)
    head = (g.rng.standard_normal((HIDDEN, vocabulary.logit_count)) * 0.2).astype(np.float32)
    head += (other * g.rng.standard_normal(head.shape)).astype(np.float32)
    tops = g.head(hidden, g.const(head), ["B", "m"], vocabulary)
    cache = (TensorProto.FLOAT, ["B", KV_HEADS, "T", HEAD_DIM])
    slots = [f"{kind}.{layer}" for layer in range(LAYERS) for kind in "kv"]
    g.save(
        path,
        {
            "tokens": (TensorProto.INT64, ["B", "n", CHANNELS]),
            "position_ids": (TensorProto.INT64, ["B", "n"]),
            "write_idx": (TensorProto.INT64, ["B"]),
            "bias": (TensorProto.FLOAT, ["B", 1, "n", "T"]),
            "logit_idx": (TensorProto.INT64, ["B", "m"]),
            **{f"past_{slot}": cache for slot in slots},
        },
        {
            **tops,
            "hidden": (TensorProto.FLOAT, ["B", "m", HIDDEN]),
            **{f"present_{slot}": cache for slot in slots},
        },
    )


def write_head(path: Path, vocabulary: Vocabulary, head: int) -> None:
    """A random head over the state before it and the embedding of the token it drafts behind."""
    g = Graph(seed=40 + head)
    read = g.node(
        "ReduceSum", g.node("Gather", g.weights(vocabulary.size, HIDDEN, scale=1.0), "tokens"), g.ints(2), keepdims=0
    )
    both = g.node("Concat", "hidden", read, axis=-1)
    state = g.node("MatMul", both, g.weights(2 * HIDDEN, HIDDEN), outputs=["next_hidden"])
    tops = g.head(state, g.weights(HIDDEN, vocabulary.logit_count), ["B", "n"], vocabulary)
    g.save(
        path,
        {
            "hidden": (TensorProto.FLOAT, ["B", "n", HIDDEN]),
            "tokens": (TensorProto.INT64, ["B", "n", CHANNELS]),
        },
        {**tops, "next_hidden": (TensorProto.FLOAT, ["B", "n", HIDDEN])},
    )


def write_mtp(path: Path, vocabulary: Vocabulary, module: int) -> None:
    """One attention over states and next tokens, with a cache of its own."""
    g = Graph(seed=5 + module)
    read = g.node(
        "ReduceSum", g.node("Gather", g.weights(vocabulary.size, HIDDEN, scale=1.0), "tokens"), g.ints(2), keepdims=0
    )
    x = g.node("MatMul", g.node("Concat", "hidden", read, axis=-1), g.weights(2 * HIDDEN, HIDDEN))
    angles = np.arange(MAX_POSITIONS)[:, None] * 10_000.0 ** (-np.arange(HEAD_DIM // 2) / (HEAD_DIM // 2))
    cos, sin = (g.const(f(angles).astype(np.float32)) for f in (np.cos, np.sin))
    sizes = [HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM]
    g.node(
        "Split", g.node("MatMul", x, g.weights(HIDDEN, sum(sizes))), g.ints(*sizes), outputs=["q", "k", "v"], axis=-1
    )

    def heads(value: str, count: int) -> str:
        return g.node("Transpose", g.node("Reshape", value, g.ints(0, 0, count, HEAD_DIM)), perm=[0, 2, 1, 3])

    q, k, v = (heads(name, count) for name, count in zip("qkv", (HEADS, KV_HEADS, KV_HEADS), strict=True))
    q, k = (g.node("RotaryEmbedding", part, cos, sin, "position_ids") for part in (q, k))
    cached = [
        g.node(
            "TensorScatter", f"past_{kind}.{module}", new, "write_idx", outputs=[f"present_{kind}.{module}"], axis=-2
        )
        for kind, new in (("k", k), ("v", v))
    ]
    attended = g.node("Attention", q, *cached, "bias")
    merged = g.node("Reshape", g.node("Transpose", attended, perm=[0, 2, 1, 3]), g.ints(0, 0, HEADS * HEAD_DIM))
    x = g.node("Add", x, g.node("MatMul", merged, g.weights(HEADS * HEAD_DIM, HIDDEN)), outputs=["next_hidden"])
    wanted = g.node("GatherND", x, g.node("Unsqueeze", "logit_idx", g.ints(2)), batch_dims=1)
    tops = g.head(wanted, g.weights(HIDDEN, vocabulary.logit_count, scale=0.2), ["B", "m"], vocabulary)
    cache = (TensorProto.FLOAT, ["B", KV_HEADS, "T", HEAD_DIM])
    g.save(
        path,
        {
            "hidden": (TensorProto.FLOAT, ["B", "n", HIDDEN]),
            "tokens": (TensorProto.INT64, ["B", "n", CHANNELS]),
            "position_ids": (TensorProto.INT64, ["B", "n"]),
            "write_idx": (TensorProto.INT64, ["B"]),
            "bias": (TensorProto.FLOAT, ["B", 1, "n", "T"]),
            "logit_idx": (TensorProto.INT64, ["B", "m"]),
            **{f"past_{kind}.{module}": cache for kind in "kv"},
        },
        {
            **tops,
            "next_hidden": (TensorProto.FLOAT, ["B", "n", HIDDEN]),
            **{f"present_{kind}.{module}": cache for kind in "kv"},
        },
    )


def write_drafts(directory: Path, vocabulary: Vocabulary = VOCABULARY) -> Path:
    """Add every kind of draft, and groups, to the voice in `directory`."""
    for head in range(3):
        write_head(directory / f"head_{head + 1}.onnx", vocabulary, head)
    write_mtp(directory / "mtp_1.onnx", vocabulary, 0)
    write_mtp(directory / "mtp_2.onnx", vocabulary, 1)
    write_language_model(directory / "draft.onnx", vocabulary, other=0.02)
    embedding = np.random.default_rng(6).standard_normal((vocabulary.logit_count, 4))
    Groups.build(embedding, 0.6, alone=(0,)).save(directory / "groups.npz")

    def entry(path: str) -> dict[str, str]:
        return {"path": path, "sha256": hashlib.sha256((directory / path).read_bytes()).hexdigest()}

    manifest = json.loads((directory / "voice.json").read_text())
    manifest["speculation"] = {
        "medusa": {
            "files": {f"head_{head}": entry(f"head_{head}.onnx") for head in (1, 2, 3)},
            "heads": 3,
            "reads_path": True,
            "parents": [-1, -1, 0, 2, 0, 1, 4, -1],
            "ranks": [0, 1, 0, 0, 1, 0, 0, 2],
            "acceptance": [[0.5, 0.2, 0.1]] * 3,
        },
        "mtp": {
            "files": {name: entry(f"{name}.onnx") for name in ("mtp_1", "mtp_2")},
            "modules": 2,
            "reads_next_token": True,
            "acceptance": [0.5, 0.4],
        },
        "draft": {"files": {"draft": entry("draft.onnx")}, "layers": LAYERS, "acceptance": [0.8, 0.7]},
        "groups": {"files": {"0.6": entry("groups.npz")}},
    }  # fmt: skip
    (directory / "voice.json").write_text(json.dumps(manifest))
    return directory


def write_vocoder(path: Path) -> None:
    """A causal convolution over code embeddings; its state is the last kernel - 1 valid frames."""
    g = Graph(seed=2)
    overlap = VOCODER_KERNEL - 1
    embedded = g.node("Gather", g.weights(CODEBOOK + 1, VOCODER_WIDTH, scale=0.5), "codes")
    frames = g.node("Concat", "state.conv", embedded, axis=1)  # [B, overlap + n, W]
    ends = g.node("Add", g.node("Unsqueeze", "lengths", g.ints(1)), g.ints(*range(overlap)))
    g.node("GatherND", frames, g.node("Unsqueeze", ends, g.ints(2)), outputs=["next_state.conv"], batch_dims=1)
    channels_first = g.node("Transpose", frames, perm=[0, 2, 1])
    mixed = g.node("Conv", channels_first, g.weights(VOCODER_WIDTH, VOCODER_WIDTH, VOCODER_KERNEL))
    smooth = g.node("Transpose", g.node("Tanh", mixed), perm=[0, 2, 1])
    samples = g.node("Tanh", g.node("MatMul", smooth, g.weights(VOCODER_WIDTH, FRAME_SAMPLES)))
    g.node("Reshape", samples, g.ints(0, -1), outputs=["pcm"])
    state = (TensorProto.FLOAT, ["B", overlap, VOCODER_WIDTH])
    g.save(
        path,
        {"codes": (TensorProto.INT64, ["B", "n"]), "lengths": (TensorProto.INT64, ["B"]), "state.conv": state},
        {"pcm": (TensorProto.FLOAT, ["B", "samples"]), "next_state.conv": state},
    )


def write_frontend(path: Path, wordpieces: int) -> None:
    """Labels from a wordpiece's embedding and the masked mean of the sentence."""
    g = Graph(seed=3)
    embedded = g.node("Gather", g.weights(wordpieces, 8, scale=1.0), "input_ids")
    mask = g.node("Unsqueeze", g.node("Cast", "attention_mask", to=TensorProto.FLOAT), g.ints(2))
    total = g.node("ReduceSum", g.node("Mul", embedded, mask), g.ints(1), keepdims=1)
    mean = g.node("Div", total, g.node("ReduceSum", mask, g.ints(1), keepdims=1))
    scores = g.node("MatMul", g.node("Add", embedded, mean), g.weights(8, 6))
    g.node("Reshape", scores, g.ints(0, 0, 3, 2), outputs=["logits"])
    ids = (TensorProto.INT64, ["B", "L"])
    g.save(path, {"input_ids": ids, "attention_mask": ids}, {"logits": (TensorProto.FLOAT, ["B", "L", 3, 2])})


def write_voice(
    directory: Path,
    vocabulary: Vocabulary = VOCABULARY,
    wordpiece: str = "{}",
    wordpieces: int = WORDPIECES,
) -> Path:
    """Write the whole voice; `wordpiece` is its tokenizer.json with `wordpieces` entries. Returns the directory."""
    directory.mkdir(parents=True, exist_ok=True)
    write_language_model(directory / "lm.onnx", vocabulary)
    write_vocoder(directory / "vocoder.onnx")
    write_frontend(directory / "frontend.onnx", wordpieces)
    (directory / "wordpiece.json").write_text(wordpiece, encoding="utf-8")
    paths = {"lm": "lm.onnx", "vocoder": "vocoder.onnx", "frontend": "frontend.onnx", "wordpiece": "wordpiece.json"}
    files = {
        name: {"path": path, "sha256": hashlib.sha256((directory / path).read_bytes()).hexdigest()}
        for name, path in paths.items()
    }
    manifest = {
        "name": "tiny",
        "sample_rate": SAMPLE_RATE,
        "frame_samples": FRAME_SAMPLES,
        "channels": CHANNELS,
        "layers": LAYERS,
        "kv_heads": KV_HEADS,
        "head_dim": HEAD_DIM,
        "hidden_size": HIDDEN,
        "max_positions": MAX_POSITIONS,
        **vocabulary.to_dict(),
        "can_clone": False,
        "files": files,
        "defaults": {
            "temperature": 1.0,
            "top_k": 0,
            "top_p": 1.0,
            "max_seconds": 30.0,
            "chunk_frames": 16,
            "first_chunk_frames": 4,
        },
        "limits": {"max_seconds": [0.1, 60.0]},
    }
    (directory / "voice.json").write_text(json.dumps(manifest))
    return directory
