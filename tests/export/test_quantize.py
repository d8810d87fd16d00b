"""Quantised LMs: close to fp32, and a row's result never depends on its company."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnxruntime.quantization import quantize_dynamic

from export.checkpoint import Checkpoint
from export.lm import LlamaConfig, build_lm
from export.parity import company_difference
from export.quantize import VARIANTS
from export.runtime import LMRunner, load

# Share of the logits' own spread: random weights, so 4 bits are rough.
NOISE = {"int8": 0.05, "nbits8": 0.05, "nbits4": 0.35}


@pytest.fixture(scope="module")
def checkpoint(checkpoints: Path) -> Checkpoint:
    return Checkpoint(checkpoints / "lm")


@pytest.fixture(scope="module")
def exact(checkpoint: Checkpoint) -> onnx.ModelProto:
    return build_lm(checkpoint)


def prompts(config: LlamaConfig) -> list[np.ndarray]:
    random = np.random.default_rng(0)
    return [random.integers(1, config.vocab_size, (length, config.channels)) for length in (9, 30, 17, 2)]


@pytest.mark.parametrize("name", NOISE)
def test_variant_is_close_and_independent_of_company(name: str, exact: onnx.ModelProto, checkpoint: Checkpoint) -> None:
    config = LlamaConfig.from_dict(checkpoint.config)
    graph = VARIANTS[name](exact)
    kinds = Counter(node.op_type for node in graph.graph.node)
    assert kinds["MatMul"] == 0
    assert kinds["MatMulIntegerToFloat"] + kinds["MatMulNBits"] == 5 * config.layers + 1
    sessions = [load(model, 1) for model in (exact, graph)]
    tokens = prompts(config)[1][None]
    wanted, logits = (LMRunner(session, 1, 64).forward(tokens)[0] for session in sessions)
    assert 0 < np.sqrt(np.mean((logits - wanted) ** 2)) < NOISE[name] * wanted.std()
    codes = np.arange(8)
    assert company_difference(sessions[1], prompts(config), codes, config.logit_offset) == 0


def test_the_company_gate_catches_one_activation_scale_a_tensor(
    exact: onnx.ModelProto, checkpoint: Checkpoint, tmp_path: Path
) -> None:
    config = LlamaConfig.from_dict(checkpoint.config)
    quantize_dynamic(exact, tmp_path / "dynamic.onnx", op_types_to_quantize=["MatMul"])
    session = load(tmp_path / "dynamic.onnx", 1)
    assert company_difference(session, prompts(config), np.arange(8), config.logit_offset) > 1e-3


def test_int8_gives_numbers_for_an_all_zero_token(exact: onnx.ModelProto, checkpoint: Checkpoint) -> None:
    config = LlamaConfig.from_dict(checkpoint.config)
    tokens = np.zeros((1, 3, config.channels), np.int64)
    logits, _ = LMRunner(load(VARIANTS["int8"](exact), 1), 1, 64).forward(tokens)
    assert np.isfinite(logits).all()
