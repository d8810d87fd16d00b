"""frontend.onnx: the prosody BERT (any checkpoint of Hugging Face's BERT layout with the 3 x 2 prosody head)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import onnx
import torch

from export.quantize import row8
from export.torch_graph import export_module
from training.models.bert import ProsodyBert

VARIANTS: dict[str, Callable[[onnx.ModelProto], onnx.ModelProto]] = {"fp32": lambda model: model, "int8": row8}


def build_frontend(bert: ProsodyBert, file: Path) -> onnx.ModelProto:
    """Write `file`; inputs and outputs as in docs/ARCHITECTURE.md, "frontend.onnx". Returns the graph."""
    batch, length = torch.export.Dim("B"), torch.export.Dim("L", max=bert.config.max_position_embeddings)
    ids = torch.zeros(2, 5, dtype=torch.long)
    return export_module(
        bert,
        (ids, torch.ones_like(ids)),
        file,
        inputs=["input_ids", "attention_mask"],
        outputs=["logits"],
        dynamic=({0: batch, 1: length}, {0: batch, 1: length}),
    )
