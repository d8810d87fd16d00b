"""Bare tritonclient streams, as any client would send them."""

from __future__ import annotations

import queue
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tritonclient.grpc as grpcclient
from tritonclient.utils import InferenceServerException

ANSWER_SECONDS = 30


@dataclass
class Answer:
    """All responses of one request, as they came."""

    chunks: list[np.ndarray] = field(default_factory=list)
    outputs: list[dict[str, Any]] = field(default_factory=list)
    finals: int = 0
    error: InferenceServerException | None = None

    @property
    def audio(self) -> np.ndarray:
        return np.concatenate(self.chunks) if self.chunks else np.zeros(0, np.float32)


def text_input(text: str | bytes, name: str = "target_text") -> grpcclient.InferInput:
    tensor = grpcclient.InferInput(name, [1, 1], "BYTES")
    raw = text.encode() if isinstance(text, str) else text
    tensor.set_data_from_numpy(np.array([[raw]], dtype=object))
    return tensor


class Speaker:
    """One client; every request has a gRPC stream of its own.

    Why not one for all: tritonserver 2.51 aborts now and then (`!byte_buffer->Valid()`) when two decoupled requests
    answer on the same stream at once, and tritonclient does not say whose an error is.
    """

    def __init__(self, url: str) -> None:
        self.client = grpcclient.InferenceServerClient(url)
        self._url = url
        self._arrived: queue.SimpleQueue[tuple[str, Any, Any]] = queue.SimpleQueue()
        self._answers: dict[str, Answer] = {}
        self._streams: dict[str, grpcclient.InferenceServerClient] = {}

    def __enter__(self) -> Speaker:
        return self

    def __exit__(self, *_: object) -> None:
        for name in list(self._streams):
            self._close(name)
        self.client.close()

    def send(self, text: str | bytes, *, inputs: list[Any] | None = None, outputs: tuple[str, ...] = (),
             timeout: int | None = None, **parameters: Any) -> str:  # fmt: skip
        """Open a request; its id."""
        name = f"r{len(self._answers)}"
        self._answers[name] = Answer()
        self._streams[name] = stream = grpcclient.InferenceServerClient(self._url)
        stream.start_stream(lambda result, error: self._arrived.put((name, result, error)))
        stream.async_stream_infer(
            "tts",
            inputs if inputs is not None else [text_input(text)],
            outputs=[grpcclient.InferRequestedOutput(output) for output in outputs] or None,
            request_id=name,
            parameters=parameters or None,
            timeout=timeout,
        )
        return name

    def next(self) -> tuple[str, Answer]:
        """Wait for one response of any open request."""
        name, result, error = self._arrived.get(timeout=ANSWER_SECONDS)
        answer = self._answers[name]
        if error is not None:
            if not answer.finals:  # closing a finished stream is told as its cancellation
                answer.error = answer.error or error
            return name, answer
        response = result.get_response()
        outputs = {output.name: result.as_numpy(output.name)[0] for output in response.outputs}
        if "waveform" in outputs:
            answer.chunks.append(np.array(outputs["waveform"]))
        answer.outputs.append(outputs)
        answer.finals += response.parameters["triton_final_response"].bool_param
        return name, answer

    def _close(self, name: str) -> None:
        stream = self._streams.pop(name)
        stream.stop_stream(cancel_requests=True)
        stream.close()

    def wait(self, name: str) -> Answer:
        answer = self._answers[name]
        while not answer.finals and answer.error is None:
            self.next()
        if name in self._streams:
            self._close(name)
        return answer

    def say(self, text: str | bytes, **options: Any) -> Answer:
        """One whole request; raises its error."""
        answer = self.wait(self.send(text, **options))
        if answer.error is not None:
            raise answer.error
        return answer
