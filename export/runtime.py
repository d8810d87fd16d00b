"""Running exported graphs in the gates: plain sessions, and the language model over an in-place cache."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray

MASKED = np.float32(-1e30)
BLOCK = 64  # the engine's step of T


def load(graph: Path | onnx.ModelProto, threads: int) -> onnxruntime.InferenceSession:
    """A CPU session of a file or a graph in memory."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    source = graph.SerializeToString() if isinstance(graph, onnx.ModelProto) else str(graph)
    return onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])


def blocks(positions: int) -> int:
    """`positions` rounded up to the cache's block."""
    return -(-positions // BLOCK) * BLOCK


class LMRunner:
    """lm.onnx with one slot a row. `lengths` int64 [B]: positions written so far; `cache` [2·layers, B, Hkv, T, D].

    in_place: past and present are the same memory, as in serving; else present goes to a second array, copied back.
    """

    def __init__(
        self, session: onnxruntime.InferenceSession, batch: int, positions: int, *, in_place: bool = True
    ) -> None:
        self._session = session
        shapes = {value.name: value.shape for value in session.get_inputs()}
        self._past = [name for name in shapes if name.startswith("past_")]
        self.channels: int = shapes["tokens"][2]
        _, heads, _, size = shapes[self._past[0]]
        self.cache = np.zeros((len(self._past), batch, heads, positions, size), np.float32)
        self._written = self.cache if in_place else np.zeros_like(self.cache)
        self.lengths = np.zeros(batch, np.int64)

    def forward(
        self, tokens: NDArray[np.int64], counts: NDArray[np.int64] | None = None
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Append tokens [B, n, C], of which counts [B] are valid (right padded): logits [B, n, V], hidden [B, n, H]."""
        batch, n = tokens.shape[:2]
        new = np.arange(n)
        columns = np.arange(self.cache.shape[3])
        seen = columns < (self.lengths[:, None] + new + 1)[..., None]
        feeds = {
            "tokens": np.ascontiguousarray(tokens),
            "position_ids": self.lengths[:, None] + new,
            "write_idx": self.lengths,
            "bias": np.where(seen, np.float32(0), MASKED)[:, None],
            "logit_idx": np.broadcast_to(new, (batch, n)).copy(),
        }
        binding = self._session.io_binding()
        for name, array in feeds.items():
            binding.bind_cpu_input(name, array)
        outputs = ["logits", "hidden"]
        for name in outputs:
            binding.bind_output(name)
        for name, past, present in zip(self._past, self.cache, self._written, strict=True):
            binding.bind_cpu_input(name, past)
            target = name.replace("past", "present")
            binding.bind_output(target, "cpu", 0, np.float32, present.shape, present.ctypes.data)
        self._session.run_with_iobinding(binding)
        if self._written is not self.cache:
            self.cache[:] = self._written
        self.lengths = self.lengths + (n if counts is None else counts)
        values = binding.get_outputs()[:2]
        return values[0].numpy(), values[1].numpy()


def greedy(runner: LMRunner, prompt: NDArray[np.int64], steps: int, logit_offset: int) -> NDArray[np.int64]:
    """Most probable codes (logit 0, the end, is never taken) for every row of prompt [B, L, C] → int64 [B, steps]."""
    logits, _ = runner.forward(prompt)
    codes = np.zeros((len(prompt), steps), np.int64)
    for step in range(steps):
        if step:
            tokens = np.zeros((len(prompt), 1, runner.channels), np.int64)
            tokens[:, 0, 0] = codes[:, step - 1] + logit_offset + 1
            logits, _ = runner.forward(tokens)
        codes[:, step] = logits[:, -1, 1:].argmax(-1)
    return codes
