"""One open request as Triton sees it: where its responses go, and whether its client is still there."""

from __future__ import annotations

import threading
import time
from typing import Any

import triton_python_backend_utils as pb_utils
import wire

from tts_engine.chunk import AudioChunk
from tts_engine.engine import Handle

FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL


class Stream:
    """One open request: its name, its sender, what it asked for, its deadline."""

    def __init__(self, request: Any, sample_rate: int) -> None:
        self.request_id = request.request_id()
        self.trace = request.trace().get_context()  # JSON with a W3C traceparent, where Triton traces the request
        self.sender = request.get_response_sender()
        self.wanted = set(request.requested_output_names())
        self.sample_rate = sample_rate
        microseconds = request.timeout()
        self.deadline = time.monotonic() + microseconds / 1e6 if microseconds else float("inf")
        self.expired = False
        self.handle: Handle | None = None
        self._open = threading.Lock()  # held where the sender is used: it must not be asked anything after FINAL
        self._final = False
        self.samples = 0  # sent so far
        self.first = self.last = 0.0  # time.monotonic() of the first and the latest chunk with sound

    def look(self) -> None:
        """Cancel where the client has left or its deadline has passed."""
        with self._open:
            if self._final or self.handle is None:
                return
            self.expired = self.expired or time.monotonic() > self.deadline
            if self.expired or self.sender.is_cancelled():
                self.handle.cancel()

    def refuse(self, message: str, code: int) -> None:
        self._send(pb_utils.InferenceResponse(error=pb_utils.TritonError(message, code)), final=True)

    def send(self, chunk: AudioChunk) -> None:
        """FINAL rides on the last chunk: an empty one more would reach clients as a junk response."""
        if chunk.finish_reason == "error":
            self.refuse(chunk.error or "synthesis failed", pb_utils.TritonError.INTERNAL)
        elif self.expired and chunk.final:
            self.refuse("the request's timeout passed before its audio was done", pb_utils.TritonError.UNAVAILABLE)
        elif chunk.finish_reason == "cancelled":
            self._send(None, final=True)
        else:
            tensors = wire.outputs(chunk, self.sample_rate, self.wanted)
            response = pb_utils.InferenceResponse([pb_utils.Tensor(name, array) for name, array in tensors.items()])
            self._send(response, chunk.final)

    def _send(self, response: Any, final: bool) -> None:
        with self._open:
            self._final = final
            if response is None:
                self.sender.send(flags=FINAL)
            else:
                self.sender.send(response, flags=FINAL if final else 0)
