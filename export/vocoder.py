"""vocoder.onnx: the codec's streaming decoder, its state as named inputs and outputs."""

from __future__ import annotations

from pathlib import Path

import onnx
import torch
from torch import Tensor, nn

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
