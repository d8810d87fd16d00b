"""One exported graph on ONNX Runtime: named arrays in, named arrays out, time counted."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from tts_engine.config import EngineConfig
from tts_engine.errors import VoiceError

Array = NDArray[Any]


class Busy:
    """How long at least one run has been going on, in whatever thread; a context around each."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running = 0
        self._total = self._since = 0.0

    def __enter__(self) -> None:
        with self._lock:
            if not self._running:
                self._since = time.perf_counter()
            self._running += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._running -= 1
            if not self._running:
                self._total += time.perf_counter() - self._since

    @property
    def seconds(self) -> float:
        with self._lock:
            return self._total + (time.perf_counter() - self._since if self._running else 0.0)


BUSY = Busy()  # any graph in this process
PROVIDERS = {"cpu": ["CPUExecutionProvider"], "cuda": ["CUDAExecutionProvider", "CPUExecutionProvider"]}


class Session:
    """A loaded graph; several threads may run it at once."""

    def __init__(
        self,
        path: Path,
        config: EngineConfig,
        inputs: Collection[str],
        outputs: Collection[str],
        threads: int = 1,
        arena: bool = True,
    ) -> None:
        """Load `path` and check that it has (at least) the named inputs and outputs; VoiceError otherwise.

        threads: of one run. They wait for the next one by spinning, so that not more than one graph may have several.
        arena: keep the memory of the largest run for the next one: some 2 % faster, and never given back.
        """
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.enable_cpu_mem_arena = options.enable_mem_pattern = arena
        providers = PROVIDERS[config.provider]
        if providers[0] not in onnxruntime.get_available_providers():
            raise VoiceError(
                f"this onnxruntime cannot run graphs on {config.provider}; install onnxruntime-gpu in its place"
            )
        options.log_severity_level = 4  # errors come back as exceptions; the log would say them twice
        try:
            self._session = onnxruntime.InferenceSession(str(path), options, providers=providers)
        except Exception as error:
            raise VoiceError(f"ONNX Runtime cannot load {path}: {error}") from error
        self.input_shapes = {value.name: list(value.shape) for value in self._session.get_inputs()}
        self.output_shapes = {value.name: list(value.shape) for value in self._session.get_outputs()}
        missing = (set(inputs) - set(self.input_shapes)) | (set(outputs) - set(self.output_shapes))
        if missing:
            raise VoiceError(f"graph {path} lacks {', '.join(sorted(missing))}; run the export again")
        self.busy = Busy()

    @property
    def seconds(self) -> float:
        """Time in which at least one run of this graph was going on."""
        return self.busy.seconds

    def run(self, feeds: Mapping[str, Array], outputs: Collection[str] = ()) -> dict[str, Array]:
        """Run once on fresh output arrays: all of them, or those named."""
        names = list(outputs or self.output_shapes)
        with BUSY, self.busy:
            return dict(zip(names, self._session.run(names, dict(feeds)), strict=True))

    def binding(self) -> Binding:
        """A new set of bound arrays for this graph."""
        return Binding(self)


class Binding:
    """Arrays bound in place: the graph reads and writes the callers' memory, so refilling it needs no new binding."""

    def __init__(self, session: Session) -> None:
        self._owner = session
        self._io = session._session.io_binding()
        self._alive: dict[str, Array] = {}  # the runtime holds bare pointers; this keeps the memory

    def input(self, name: str, array: Array) -> None:
        """Bind a C-contiguous array; it is read anew at every run."""
        self._io.bind_input(name, "cpu", 0, array.dtype.type, array.shape, self._keep(name, array))

    def output(self, name: str, array: Array) -> None:
        """Bind a C-contiguous array; every run overwrites it. It may be the memory of an input (in-place caches)."""
        self._io.bind_output(name, "cpu", 0, array.dtype.type, array.shape, self._keep(name, array))

    def run(self) -> None:
        """Run once on what is bound."""
        with BUSY, self._owner.busy:
            self._owner._session.run_with_iobinding(self._io)

    def _keep(self, name: str, array: Array) -> int:
        if not array.flags.c_contiguous:
            raise ValueError(f"array bound to {name} must be contiguous")
        self._alive[name] = array
        return int(array.__array_interface__["data"][0])


def empty(*shape: int) -> NDArray[np.float32]:
    """An uninitialised float32 array for an output."""
    return np.empty(shape, dtype=np.float32)
