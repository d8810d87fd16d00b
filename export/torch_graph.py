"""torch.onnx.export with this project's settings: dynamic sizes, one self-contained file, no chatter."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnx
import torch
from torch import Tensor, nn

from export.errors import ExportError
from export.graph import OPSET


def export_module(
    module: nn.Module,
    example: tuple[Tensor, ...],
    file: Path,
    *,
    inputs: Sequence[str],
    outputs: Sequence[str],
    dynamic: tuple[Any, ...],
) -> onnx.ModelProto:
    """Trace `module` on `example` and write `file`; `dynamic` gives the free axes of every argument.

    Raises ExportError with the exporter's own words when the module cannot be traced.
    """
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            program = torch.onnx.export(
                module.eval(),
                example,
                dynamo=True,
                opset_version=OPSET,
                input_names=list(inputs),
                output_names=list(outputs),
                dynamic_shapes=dynamic,
                verbose=False,
            )
    except (torch.onnx.errors.OnnxExporterError, RuntimeError) as error:
        raise ExportError(f"{type(module).__name__} cannot be exported: {error}") from error
    assert program is not None  # dynamo=True always returns a program
    program.save(file, external_data=False)
    return onnx.load(file)
