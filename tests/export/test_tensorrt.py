"""What of the TensorRT builder can be checked without TensorRT."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import onnx
import pytest

from export.errors import ExportError
from export.gate import Gate
from export.tensorrt import library, plans, profile

BUCKETS = (256, 512)


def test_profiles_cover_every_input_of_the_real_graphs(exported: tuple[Path, list[Gate]]) -> None:
    made = plans(BUCKETS, batch=32, max_wordpieces=64)
    assert [plan.name for plan in made] == ["lm_256.plan", "lm_512.plan", "vocoder.plan", "frontend.plan"]
    for plan in made:
        graph = onnx.load(exported[0] / plan.graph).graph
        for ranges in plan.profiles:
            shapes = profile(graph, ranges)
            assert set(shapes) == {value.name for value in graph.input}
            for name, (low, best, high) in shapes.items():
                axes = list(zip(low, best, high, strict=True))
                assert all(0 < a <= b <= c for a, b, c in axes), name
                if name.startswith("past_"):
                    assert low[2] == high[2] and low[2] in BUCKETS  # a plan's cache length is fixed


def test_an_axis_without_a_range_is_named(exported: tuple[Path, list[Gate]]) -> None:
    graph = onnx.load(exported[0] / "frontend.onnx").graph
    with pytest.raises(ExportError, match="free axis L"):
        profile(graph, {"B": (1, 1, 2)})


@pytest.mark.skipif(importlib.util.find_spec("tensorrt") is not None, reason="TensorRT is installed here")
def test_missing_tensorrt_is_one_clear_sentence() -> None:
    with pytest.raises(ExportError, match=r"TensorRT is not installed: .*pip install"):
        library()
