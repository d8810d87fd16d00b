"""Hugging Face checkpoint directories: config.json and one or several safetensors files, read tensor by tensor."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import safe_open

from export.errors import ExportError

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in `path`; ExportError when it is missing or not one."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ExportError(f"{path} is missing; train the voice or name a checkpoint directory") from error
    except ValueError as error:
        raise ExportError(f"{path} is not valid JSON") from error
    if not isinstance(value, dict):
        raise ExportError(f"{path} must hold a JSON object")
    return value


class Checkpoint:
    """`config`: config.json. `tensor(name)`: a weight as float32, whatever it is stored as (fp32, fp16, bf16)."""

    def __init__(self, directory: Path) -> None:
        self.directory = Path(directory)
        self.config = read_json(self.directory / "config.json")
        self._files = self._locate()

    @property
    def names(self) -> frozenset[str]:
        return frozenset(self._files)

    def tensor(self, name: str) -> NDArray[np.float32]:
        """float32 copy of weight `name`; ExportError names a missing one."""
        if name not in self._files:
            raise ExportError(f"checkpoint {self.directory} has no weight {name}; it is not of the expected layout")
        with safe_open(self._files[name], framework="pt") as stream:  # torch reads bf16, numpy does not know it
            array: NDArray[np.float32] = stream.get_tensor(name).float().numpy()
        return array

    def _locate(self) -> dict[str, Path]:
        index = self.directory / INDEX
        if not index.exists():
            path = self.directory / SINGLE
            if not path.exists():
                raise ExportError(f"{self.directory} has neither {SINGLE} nor {INDEX}; train the voice first")
            with safe_open(path, framework="pt") as stream:
                return dict.fromkeys(stream.keys(), path)
        files = {}
        for name, file in read_json(index).get("weight_map", {}).items():
            if Path(file).name != file or not (self.directory / file).is_file():
                raise ExportError(f"{index} names shard {file!r}, which is not a file beside it")
            files[name] = self.directory / file
        return files
