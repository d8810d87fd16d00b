"""Bad input gets one clear error, and nothing else is disturbed."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
from tritonclient.utils import InferenceServerException

from backends.launcher import RunningServer
from tests.server.conftest import CAPACITY, Gauges
from tests.server.wire import Speaker, text_input

Refused = Callable[..., None]


@pytest.fixture
def refused(server: RunningServer, speaker: Speaker) -> Refused:
    """The request fails with this message while a neighbour's audio stays what it is."""

    def check(text: str | bytes, pattern: str, **options: Any) -> None:
        neighbour = speaker.send("A neighbour.", seed=9, max_seconds=0.5)
        with Speaker(server.grpc_url) as other, pytest.raises(InferenceServerException) as caught:
            other.say(text, **options)
        assert re.search(pattern, str(caught.value)), str(caught.value)
        answer = speaker.wait(neighbour)
        assert answer.error is None
        np.testing.assert_array_equal(answer.audio, speaker.say("A neighbour.", seed=9, max_seconds=0.5).audio)

    return check


@pytest.mark.parametrize("text", ["", "   \n", "🎈🎈", "!?"])
def test_nothing_to_say(refused: Refused, text: str) -> None:
    refused(text, "empty|nothing in the text can be spoken")


def test_too_much_text(refused: Refused) -> None:
    refused("word " * 20_000, "100000 bytes and the limit is 20000")


def test_invalid_utf8(refused: Refused) -> None:
    refused(b"caf\xe9 \xff\xfe", "not valid UTF-8")


def test_wrong_dtype(refused: Refused) -> None:
    tensor = grpcclient.InferInput("target_text", [1, 1], "FP32")
    tensor.set_data_from_numpy(np.ones((1, 1), np.float32))
    refused("", "target_text", inputs=[tensor])


@pytest.mark.parametrize("shape", [(2, 2), (2, 1), (1, 2), (1,)])
def test_wrong_shape(refused: Refused, shape: tuple[int, ...]) -> None:
    tensor = grpcclient.InferInput("target_text", shape, "BYTES")
    tensor.set_data_from_numpy(np.full(shape, b"a", dtype=object))
    refused("", "shape", inputs=[tensor])


def test_no_text_tensor(refused: Refused) -> None:
    refused("", "target_text|expected", inputs=[text_input("hello", "reference_text")])


def test_unknown_parameter_names_the_known_ones(refused: Refused) -> None:
    refused("Hello.", "unknown parameter 'tempo'.*temperature.*top_k", tempo=3)


@pytest.mark.parametrize(
    ("name", "value"), [("temperature", 1000), ("top_p", -1), ("top_k", -5), ("max_seconds", 0), ("chunk_frames", 0)]
)
def test_out_of_range_parameter_names_the_range(refused: Refused, name: str, value: float) -> None:
    refused("Hello.", f"{name} must be between", **{name: value})


@pytest.mark.parametrize(("name", "value"), [("seed", "many"), ("top_k", True), ("temperature", "hot")])
def test_parameter_of_the_wrong_type(refused: Refused, name: str, value: object) -> None:
    refused("Hello.", f"{name} must be", **{name: value})


def test_reference_for_a_voice_that_cannot_clone(refused: Refused) -> None:
    wave = grpcclient.InferInput("reference_wav", [1, 800], "FP32")
    wave.set_data_from_numpy(np.zeros((1, 800), np.float32))
    refused("", "cannot clone", inputs=[text_input("Hello."), wave])


def test_capacity_exceeded_is_unavailable_at_once(server: RunningServer, speaker: Speaker, gauges: Gauges) -> None:
    before = gauges.outcome("rejected")
    long = "And so on, and on, and on it goes. " * 30
    with Speaker(server.grpc_url) as crowd:
        for index in range(CAPACITY):
            crowd.send(long, seed=index, max_seconds=50.0)
        gauges.wait_held(CAPACITY, CAPACITY)
        with Speaker(server.grpc_url) as late, pytest.raises(InferenceServerException, match="try again"):
            late.say("One too many.")
        gauges.wait_outcome("rejected", before + 1)
        _, answer = crowd.next()
        assert answer.error is None
