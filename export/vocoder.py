"""vocoder.onnx: the codec's streaming decoder, its state as named inputs and outputs; fp32, and int8 blocks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import onnx
import torch
from torch import Tensor, nn

from export.quantize import row8
from export.torch_graph import export_module
from training.models.codec import CodecDecoder


class _Flat(nn.Module):
    """The decoder with its state dictionary laid out as positional arguments, in the order of `names`."""

    def __init__(self, decoder: CodecDecoder) -> None:
        super().__init__()
        self.decoder = decoder
        self.names = tuple(decoder.initial_state(1))

    def forward(self, codes: Tensor, lengths: Tensor, *state: Tensor) -> tuple[Tensor, ...]:
        pcm, following = self.decoder(codes, lengths, dict(zip(self.names, state, strict=True)))
        return (pcm, *(following[name] for name in self.names))


def build_vocoder(decoder: CodecDecoder, file: Path) -> onnx.ModelProto:
    """Write `file`; inputs and outputs as in docs/ARCHITECTURE.md, "vocoder.onnx". Returns the graph."""
    flat = _Flat(decoder).eval()
    batch, frames = torch.export.Dim("B", min=1, max=4096), torch.export.Dim("n", min=1, max=65_536)
    state = tuple(decoder.initial_state(2).values())
    return export_module(
        flat,
        (torch.zeros(2, 5, dtype=torch.long), torch.tensor([5, 3]), *state),
        file,
        inputs=["codes", "lengths", *(f"state.{name}" for name in flat.names)],
        outputs=["pcm", *(f"next_state.{name}" for name in flat.names)],
        dynamic=({0: batch, 1: frames}, {0: batch}, tuple({0: batch} for _ in state)),
    )


def int8_blocks(model: onnx.ModelProto) -> onnx.ModelProto:
    """The matrices of the ConvNeXt blocks in int8, as the language model's.

    The head's stays float32, as the pitch adds up its error, and so do the Fourier bases and the codebook's projection,
    which is too thin to gain.
    """
    sizes = {weight.name: weight.dims for weight in model.graph.initializer if len(weight.dims) == 2}
    products = [node for node in model.graph.node if node.op_type == "MatMul" and node.input[1] in sizes]
    bases = {name for name in sizes if name.startswith("decoder.")}  # buffers keep their names, weights are transposed
    head = next(node.input[1] for node in reversed(products) if node.input[1] not in bases)
    thin = {name for name, size in sizes.items() if size[0] < THIN}
    return row8(model, {head} | bases | thin)


THIN = 64  # inputs of a matrix; below it, quantising costs more than it saves
VARIANTS: dict[str, Callable[[onnx.ModelProto], onnx.ModelProto]] = {"fp32": lambda model: model, "int8": int8_blocks}
