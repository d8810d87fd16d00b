"""A real inference over gRPC: the warm-up, and the only health check that sees a dead backend process."""

from __future__ import annotations

import queue
from typing import Any

import numpy as np
import tritonclient.grpc as grpcclient


def synthesise(url: str, text: str, seconds: float = 60) -> int:
    """Samples of audio the server makes of `text`. Raises InferenceServerException or TimeoutError."""
    arrived: queue.SimpleQueue[tuple[Any, Any]] = queue.SimpleQueue()
    tensor = grpcclient.InferInput("target_text", [1, 1], "BYTES")
    tensor.set_data_from_numpy(np.array([[text.encode()]], dtype=object))
    with grpcclient.InferenceServerClient(url) as client:
        client.start_stream(lambda result, error: arrived.put((result, error)))
        try:
            client.async_stream_infer("tts", [tensor], enable_empty_final_response=True)
            samples = 0
            while True:
                try:
                    result, error = arrived.get(timeout=seconds)
                except queue.Empty:
                    raise TimeoutError(f"no answer within {seconds:.0f} s") from None
                if error is not None:
                    raise error
                waveform = result.as_numpy("waveform")
                samples += 0 if waveform is None else waveform.size
                if result.get_response().parameters["triton_final_response"].bool_param:
                    return samples
        finally:
            client.stop_stream(cancel_requests=True)
