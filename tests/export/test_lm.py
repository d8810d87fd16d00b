"""The LM's graph: equal to torch and to transformers, in pieces, in place, as a tree; every public weight layout."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch

from export.checkpoint import Checkpoint
from export.errors import ExportError
from export.lm import LlamaConfig, build_lm
from export.reference import reference_lm
from export.runtime import MASKED, LMRunner, load

TOLERANCE = 1e-4
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}


def random_tokens(config: LlamaConfig, batch: int, n: int) -> np.ndarray:
    """Positions with ids in some channels and pads in the others, int64 [batch, n, C]."""
    random = np.random.default_rng(0)
    tokens = random.integers(1, config.vocab_size, (batch, n, config.channels))
    tokens[:, n // 2 :, 1:] = 0
    return tokens


def test_summed_channels_and_sliced_head_equal_torch(checkpoints: Path) -> None:
    checkpoint = Checkpoint(checkpoints / "lm")
    graph = build_lm(checkpoint)
    onnx.checker.check_model(graph, full_check=True)
    config = LlamaConfig.from_dict(checkpoint.config)
    tokens = random_tokens(config, 2, 30)
    model = reference_lm(checkpoint)
    with torch.no_grad():
        wanted = model(torch.from_numpy(tokens))[..., config.logit_offset :].numpy()
        states = model.hidden(torch.from_numpy(tokens))[0].numpy()
    logits, hidden = LMRunner(load(graph, 1), 2, 64).forward(tokens)
    assert logits.shape == (2, 30, 17)
    np.testing.assert_allclose(logits, wanted, atol=TOLERANCE)
    np.testing.assert_allclose(hidden, states, atol=TOLERANCE)


def test_cache_in_place_equals_separate_cache_bitwise(checkpoints: Path) -> None:
    checkpoint = Checkpoint(checkpoints / "lm")
    session = load(build_lm(checkpoint), 1)
    tokens = random_tokens(LlamaConfig.from_dict(checkpoint.config), 3, 24)
    runners = [LMRunner(session, 3, 64, in_place=in_place) for in_place in (True, False)]
    for start, stop in ((0, 9), (9, 10), (10, 24)):
        a, b = (runner.forward(tokens[:, start:stop])[0] for runner in runners)
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(runners[0].cache, runners[1].cache)


def test_tree_branches_equal_their_chains_and_logit_idx_selects(checkpoints: Path) -> None:
    checkpoint = Checkpoint(checkpoints / "lm")
    session = load(build_lm(checkpoint), 1)
    config = LlamaConfig.from_dict(checkpoint.config)
    tokens = random_tokens(config, 1, 12)
    context, branches = tokens[:, :10], tokens[:, 10:]
    chains = []
    for branch in range(2):
        runner = LMRunner(session, 1, 64)
        runner.forward(context)
        chains.append(runner.forward(branches[:, branch : branch + 1])[0][0, 0])
    runner = LMRunner(session, 1, 64)
    runner.forward(context)
    bias = np.full((1, 1, 2, 64), MASKED)
    bias[..., :10] = 0
    bias[0, 0, 0, 10] = bias[0, 0, 1, 11] = 0  # siblings: neither sees the other
    past = {f"past_{kind}.{layer}": runner.cache[2 * layer + i] for layer in range(2) for i, kind in enumerate("kv")}
    feeds = {
        "tokens": np.ascontiguousarray(branches),
        "position_ids": np.array([[10, 10]]),
        "write_idx": np.array([10]),
        "bias": bias,
        "logit_idx": np.array([[1, 0, 1]]),
        **past,
    }
    (logits,) = session.run(["logits"], feeds)
    np.testing.assert_allclose(logits[0], [chains[1], chains[0], chains[1]], atol=TOLERANCE)


@pytest.mark.parametrize(
    ("changes", "dtype", "shard"),
    [
        ({"tie_word_embeddings": False}, torch.float32, "1GB"),
        ({"tie_word_embeddings": True}, torch.bfloat16, "20KB"),
        ({"rope_parameters": LLAMA3}, torch.float16, "1GB"),
        ({"num_key_value_heads": 4, "head_dim": 24}, torch.float32, "1GB"),
    ],
    ids=["plain", "tied-bf16-sharded", "llama3-rope", "wide-heads"],
)
def test_public_llama_equals_transformers(
    changes: dict[str, Any], dtype: torch.dtype, shard: str, tmp_path: Path
) -> None:
    transformers = pytest.importorskip("transformers")
    shape = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
    sizes = {"vocab_size": 90, "intermediate_size": 96, "max_position_embeddings": 256, "initializer_range": 0.3}
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**{**shape, **sizes, **changes})).to(dtype)
    model.save_pretrained(tmp_path, max_shard_size=shard)
    assert (tmp_path / "model.safetensors.index.json").exists() == (shard != "1GB")
    model = transformers.LlamaForCausalLM.from_pretrained(tmp_path, dtype=torch.float32).eval()
    ids = np.random.default_rng(1).integers(0, 90, (2, 100))  # beyond the 64 positions where llama3 starts to stretch
    with torch.no_grad():
        out = model(torch.from_numpy(ids), output_hidden_states=True)
    runner = LMRunner(load(build_lm(Checkpoint(tmp_path)), 1), 2, 128)
    parts = [runner.forward(ids[:, a:b, None]) for a, b in ((0, 70), (70, 71), (71, 100))]
    logits, hidden = (np.concatenate(values, 1) for values in zip(*parts, strict=True))
    np.testing.assert_allclose(logits, out.logits.numpy(), atol=1e-3)
    np.testing.assert_allclose(hidden, out.hidden_states[-1].numpy(), atol=1e-3)


def test_old_and_new_rope_fields_mean_the_same(checkpoints: Path) -> None:
    fields = Checkpoint(checkpoints / "lm").config
    new = {key: value for key, value in fields.items() if key != "rope_theta"}
    new["rope_parameters"] = {"rope_type": "default", "rope_theta": fields["rope_theta"]}
    assert LlamaConfig.from_dict(new).rope_theta == LlamaConfig.from_dict(fields).rope_theta == 10_000.0


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"hidden_act": "gelu"}, "hidden_act"),
        ({"attention_bias": True}, "attention_bias"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 2.0}}, "yarn"),
        ({"intermediate_size": None}, "intermediate_size"),
    ],
)
def test_unsupported_llamas_are_refused_by_name(
    changes: dict[str, Any], words: str, checkpoints: Path, tmp_path: Path
) -> None:
    fields = Checkpoint(checkpoints / "lm").config | changes
    fields = {key: value for key, value in fields.items() if value is not None}
    (tmp_path / "config.json").write_text(json.dumps(fields))
    (tmp_path / "model.safetensors").symlink_to(checkpoints / "lm" / "model.safetensors")
    with pytest.raises(ExportError, match=words):
        build_lm(Checkpoint(tmp_path))


def test_checkpoint_names_what_is_missing(checkpoints: Path, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=r"config\.json is missing"):
        Checkpoint(tmp_path)
    with pytest.raises(ExportError, match="no weight lm_tail"):
        Checkpoint(checkpoints / "lm").tensor("lm_tail")
    (tmp_path / "config.json").write_text("{}")
    index = {"weight_map": {"lm_head.weight": "../secret.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ExportError, match="not a file beside it"):
        Checkpoint(tmp_path)
