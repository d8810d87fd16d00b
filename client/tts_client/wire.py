"""The wire: protobuf messages of Triton's inference protocol, to and from what the clients speak of.

Tensors: in `target_text` BYTES [1, 1]; optional `reference_wav` FP32 [1, n], `reference_wav_len` INT32 [1, 1],
`reference_text` BYTES [1, 1]. Out `waveform` FP32 [1, n], `sample_rate` INT32 [1, 1], `finish_reason` and
`timings` (JSON) BYTES [1, 1]. Everything else is a request parameter.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray
from tritonclient.grpc import InferResult, service_pb2
from tritonclient.utils import np_to_triton_dtype, serialize_byte_tensor

from tts_client.chunk import Chunk
from tts_client.errors import Cancelled, InvalidArgument, ServerError, from_text

OUTPUTS = ("waveform", "sample_rate", "finish_reason", "timings")
# Audio comes in small messages; a reference recording and a long text are the largest that go out.
CHANNEL_OPTIONS = [
    ("grpc.max_receive_message_length", 64 << 20),
    ("grpc.max_send_message_length", 64 << 20),
    ("grpc.primary_user_agent", "tts-client"),
]


def speech_request(
    model: str,
    text: str,
    params: Mapping[str, float | int | str | bool],
    reference_wav: NDArray[np.float32] | None = None,
    reference_text: str | None = None,
    request_id: str = "",
) -> service_pb2.ModelInferRequest:
    """The request for one text. reference_wav: float32 [samples] at the voice's rate. Raises InvalidArgument."""
    request = service_pb2.ModelInferRequest(model_name=model, id=request_id or uuid4().hex)
    _add_input(request, "target_text", _text(text, "the text"))
    if reference_wav is not None:
        samples = np.asarray(reference_wav, dtype=np.float32).reshape(1, -1)
        _add_input(request, "reference_wav", samples)
        _add_input(request, "reference_wav_len", np.array([[samples.shape[1]]], dtype=np.int32))
    if reference_text is not None:
        _add_input(request, "reference_text", _text(reference_text, "reference_text"))
    for name in OUTPUTS:
        request.outputs.add(name=name)
    # A request that ends without audio (cancelled by the server) is then told of its end too.
    request.parameters["triton_enable_empty_final_response"].bool_param = True
    for name, value in params.items():
        _set_parameter(request.parameters[name], name, value)
    return request


def metadata(traceparent: str) -> list[tuple[str, str]]:
    """gRPC metadata of a stream that belongs to a trace (W3C trace context)."""
    return [("traceparent", traceparent)] if traceparent else []


def speech_chunk(response: service_pb2.ModelStreamInferResponse, index: int, received_s: float) -> Chunk:
    """The chunk in one response of a stream. Raises the TTSError it holds instead, ServerError if it is not speech."""
    if response.error_message:
        raise from_text(response.error_message)
    result = InferResult(response.infer_response)
    final = response.infer_response.parameters["triton_final_response"].bool_param
    pcm = result.as_numpy("waveform")
    rate = result.as_numpy("sample_rate")
    if (pcm is None or rate is None) and not final:
        raise ServerError("the response has no waveform and sample_rate: is this a text-to-speech model?")
    reason = _string(result, "finish_reason") or None
    if final and reason is None:
        raise Cancelled("the server cancelled the request: is it shutting down?")
    return Chunk(
        pcm=np.zeros(0, np.float32) if pcm is None else pcm.reshape(-1).astype(np.float32, copy=False),
        sample_rate=0 if rate is None else int(rate.reshape(-1)[0]),
        index=index,
        final=final,
        received_s=received_s,
        finish_reason=reason,
        timings=json.loads(_string(result, "timings") or "{}"),
    )


def _text(text: str, name: str) -> NDArray[Any]:
    try:
        return np.array([[text.encode()]], dtype=object)
    except UnicodeEncodeError as error:
        raise InvalidArgument(f"{name} holds a character that is not Unicode text (position {error.start})") from error


def _add_input(request: service_pb2.ModelInferRequest, name: str, values: NDArray[Any]) -> None:
    request.inputs.add(name=name, datatype=np_to_triton_dtype(values.dtype), shape=values.shape)
    raw = serialize_byte_tensor(values).item() if values.dtype == object else values.tobytes()
    request.raw_input_contents.append(raw)


def _set_parameter(parameter: service_pb2.InferParameter, name: str, value: float | int | str | bool) -> None:
    match value:
        case bool():
            parameter.bool_param = value
        case int() | np.integer():
            if not -(2**63) <= value < 2**63:
                raise InvalidArgument(f"parameter {name} does not fit into 64 bits: {value}")
            parameter.int64_param = int(value)
        case float() | np.floating():
            parameter.double_param = float(value)
        case str():
            parameter.string_param = value
        case _:
            raise InvalidArgument(f"parameter {name} must be a number, a string or a boolean, not {value!r}")


def _string(result: InferResult, name: str) -> str:
    values = result.as_numpy(name)
    return "" if values is None or values.size == 0 else values.reshape(-1)[0].decode()
