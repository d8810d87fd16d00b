"""What tensors and parameters mean, without Triton: the cases that a voice that cannot clone never shows."""

from __future__ import annotations

import json

import numpy as np
import pytest
import wire

from tts_engine.chunk import AudioChunk, Timings
from tts_engine.config import EngineConfig
from tts_engine.errors import InvalidRequest


def text(value: bytes = b"Hello.") -> np.ndarray:
    return np.array([[value]], dtype=object)


def reference(samples: int, length: int) -> dict[str, np.ndarray]:
    wave = np.arange(samples, dtype=np.float32)[None]
    return {"target_text": text(), "reference_wav": wave, "reference_wav_len": np.array([[length]], np.int32)}


def test_reference_is_cut_to_its_length() -> None:
    request = wire.speech_request(reference(samples=10, length=4) | {"reference_text": text(b"Hi.")}, "")
    assert request.reference_audio is not None
    np.testing.assert_array_equal(request.reference_audio, np.arange(4, dtype=np.float32))
    assert request.reference_text == "Hi."


@pytest.mark.parametrize("length", [-1, 11])
def test_reference_length_outside_the_tensor_is_refused(length: int) -> None:
    with pytest.raises(InvalidRequest, match="between 0 and 10"):
        wire.speech_request(reference(samples=10, length=length), "")


def test_too_long_a_reference_is_refused() -> None:
    too_many = wire.MAX_REFERENCE_SAMPLES + 1
    with pytest.raises(InvalidRequest, match="the limit is"):
        wire.speech_request(reference(too_many, too_many), "")


def test_parameters_of_triton_are_not_ours() -> None:
    parameters = {"seed": 7, "triton_enable_empty_final_response": True, "sequence_id": 0}
    assert wire.speech_request({"target_text": text()}, json.dumps(parameters)).params.seed == 7


def test_text_of_exactly_the_limit_passes() -> None:
    longest = b"a" * wire.MAX_TEXT_BYTES
    assert len(wire.speech_request({"target_text": text(longest)}, "").text) == wire.MAX_TEXT_BYTES
    with pytest.raises(InvalidRequest, match="send it in pieces"):
        wire.speech_request({"target_text": text(longest + b"a")}, "")


def test_outputs_are_the_wanted_ones_in_the_declared_types() -> None:
    timings = Timings(0, 1, 2, 20, 300, decode_steps=15, frames=16, sentences=1, audio_s=0.32)
    chunk = AudioChunk(np.zeros(320, np.float32), 0, final=True, finish_reason="stop", timings=timings)
    assert set(wire.outputs(chunk, 16_000, {"waveform"})) == {"waveform"}
    every = {tensor["name"] for tensor in wire.MODEL_CONFIG_OUTPUTS}
    assert set(wire.outputs(AudioChunk(chunk.pcm, 1), 16_000, every)) == {"waveform", "sample_rate"}
    made = wire.outputs(chunk, 16_000, every)
    types = {"TYPE_FP32": np.float32, "TYPE_INT32": np.int32, "TYPE_STRING": np.object_}
    for tensor in wire.MODEL_CONFIG_OUTPUTS:
        assert made[tensor["name"]].dtype == types[tensor["data_type"]]
        assert made[tensor["name"]].shape[0] == 1
    assert made["finish_reason"].tolist() == [[b"stop"]]


def test_engine_settings_of_the_model_configuration() -> None:
    given = {"capacity": "8", "serving": "batched", "sentence_pause_seconds": "1"}
    config = wire.engine_config({name: {"string_value": value} for name, value in given.items()})
    assert config == EngineConfig(capacity=8, serving="batched", sentence_pause_seconds=1)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("speed", "9", "unknown parameter 'speed'; known are capacity"),
        ("capacity", "many", "capacity in config.pbtxt must be an integer, not 'many'"),
        ("capacity", "true", "must be an integer"),
        ("serving", "1", "must be a word"),
        ("capacity", "0", "between 1 and 1024"),
    ],
)
def test_wrong_engine_settings_are_named(name: str, value: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        wire.engine_config({name: {"string_value": value}})
