"""The wire: what tensors and parameters mean, without Triton, so that it can be tested without a server."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np

from tts_engine.chunk import AudioChunk
from tts_engine.config import EngineConfig
from tts_engine.errors import InvalidRequest
from tts_engine.request import SamplingParams, SpeechRequest

MAX_TEXT_BYTES = 20_000
MAX_REFERENCE_SAMPLES = 60 * 48_000
MAX_CALL_REQUESTS = 64  # that Triton hands over at once
# Triton puts the batch before these dimensions; a request is one utterance, so for each of them it is 1.
MODEL_CONFIG_INPUTS: tuple[dict[str, Any], ...] = (
    {"name": "target_text", "data_type": "TYPE_STRING", "dims": [1]},
    {"name": "reference_wav", "data_type": "TYPE_FP32", "dims": [-1], "optional": True},
    {"name": "reference_wav_len", "data_type": "TYPE_INT32", "dims": [1], "optional": True},
    {"name": "reference_text", "data_type": "TYPE_STRING", "dims": [1], "optional": True},
)
MODEL_CONFIG_OUTPUTS: tuple[dict[str, Any], ...] = (
    {"name": "waveform", "data_type": "TYPE_FP32", "dims": [-1]},
    {"name": "sample_rate", "data_type": "TYPE_INT32", "dims": [1]},
    {"name": "finish_reason", "data_type": "TYPE_STRING", "dims": [1]},
    {"name": "timings", "data_type": "TYPE_STRING", "dims": [1]},
)
# Parameters that Triton itself or its HTTP front end adds to every request.
RESERVED = frozenset(
    {"triton_enable_empty_final_response", "sequence_id", "sequence_start", "sequence_end", "priority"}
)


def engine_config(parameters: Mapping[str, Mapping[str, str]]) -> EngineConfig:
    """config.pbtxt's `parameters` → engine settings. Raises ValueError with one sentence."""
    kinds = {item.name: type(item.default) for item in fields(EngineConfig)}
    settings: dict[str, Any] = {}
    for name, value in parameters.items():
        text = value["string_value"]
        if name not in kinds:
            raise ValueError(f"config.pbtxt has the unknown parameter {name!r}; known are {', '.join(kinds)}")
        kind = kinds[name]
        try:
            settings[name] = json.loads(text)
        except ValueError:
            settings[name] = text
        if type(settings[name]) is not kind and not (kind is float and type(settings[name]) is int):
            wanted = {int: "an integer", float: "a number", str: "a word"}[kind]
            raise ValueError(f"parameter {name} in config.pbtxt must be {wanted}, not {text!r}")
    return EngineConfig(**settings)


def speech_request(tensors: Mapping[str, np.ndarray], parameters: str) -> SpeechRequest:
    """Input arrays by name and the request's parameters (JSON) → SpeechRequest. Raises InvalidRequest."""
    text = _text(tensors, "target_text")
    if text is None:
        raise InvalidRequest("target_text is missing; send one string, shape [1, 1]")
    audio = tensors.get("reference_wav")
    if audio is not None:
        audio = np.asarray(audio, dtype=np.float32).reshape(-1)
        length = tensors.get("reference_wav_len")
        if length is not None:
            samples = int(np.asarray(length).reshape(-1)[0])
            if not 0 <= samples <= audio.size:
                raise InvalidRequest(f"reference_wav_len must be between 0 and {audio.size}, not {samples}")
            audio = audio[:samples]
        if audio.size > MAX_REFERENCE_SAMPLES:
            raise InvalidRequest(f"reference_wav has {audio.size} samples and the limit is {MAX_REFERENCE_SAMPLES}")
    return SpeechRequest(text, _parameters(parameters), audio, _text(tensors, "reference_text"))


def outputs(chunk: AudioChunk, sample_rate: int, wanted: set[str]) -> dict[str, np.ndarray]:
    """The arrays of one response, the batch of 1 first: `waveform` always, the others where the client asked and there
    is something to say.

    Every tensor is made and handed over in the engine's loop.
    """
    made: dict[str, np.ndarray] = {"waveform": chunk.pcm[None]}
    if "sample_rate" in wanted:
        made["sample_rate"] = np.array([[sample_rate]], dtype=np.int32)
    if chunk.finish_reason and "finish_reason" in wanted:
        made["finish_reason"] = np.array([[chunk.finish_reason.encode()]], dtype=object)
    if chunk.timings and "timings" in wanted:
        made["timings"] = np.array([[json.dumps(chunk.timings.to_dict()).encode()]], dtype=object)
    return made


def _text(tensors: Mapping[str, np.ndarray], name: str) -> str | None:
    values = tensors.get(name)
    if values is None:
        return None
    if values.size != 1:
        raise InvalidRequest(f"{name} must hold one string, shape [1, 1], not {values.size}")
    raw = values.reshape(-1)[0]
    data: bytes = raw if isinstance(raw, bytes) else str(raw).encode()
    if len(data) > MAX_TEXT_BYTES:
        raise InvalidRequest(f"{name} has {len(data)} bytes and the limit is {MAX_TEXT_BYTES}; send it in pieces")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"{name} is not valid UTF-8 (byte {error.start}); encode it as UTF-8") from error


def _parameters(text: str) -> SamplingParams:
    values: Any = json.loads(text) if text else {}
    return SamplingParams.from_mapping({name: value for name, value in values.items() if name not in RESERVED})
