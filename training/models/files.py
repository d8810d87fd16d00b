"""A model as two files: `config.json` and fp16 `model.safetensors`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file
from torch import Tensor, nn

CONFIG, WEIGHTS = "config.json", "model.safetensors"


def save(directory: str | Path, model: nn.Module, config: Mapping[str, Any]) -> None:
    """Write both files; makes the directory."""
    path = Path(directory)
    path.mkdir(parents=True, exist_ok=True)
    state = {name: tensor.detach().half().cpu().contiguous() for name, tensor in model.state_dict().items()}
    save_file(state, path / WEIGHTS, metadata={"format": "pt"})
    (path / CONFIG).write_text(json.dumps(dict(config), indent=2) + "\n")


def load(directory: str | Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The config's fields and the tensors in float32."""
    path = Path(directory)
    tensors = {name: tensor.float() for name, tensor in load_file(path / WEIGHTS).items()}
    return json.loads((path / CONFIG).read_text()), tensors
