"""Whatever arrives at the wire is either a request or one clear refusal."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import wire
from hypothesis import given, settings
from hypothesis import strategies as st

from tts_engine.errors import InvalidRequest
from tts_engine.request import SamplingParams, SpeechRequest
from tts_engine.voice import DEFAULTS, LIMITS

NAMES = [*LIMITS, "speculation", "acceptance", "sequence_id", "volume", ""]
VALUES = st.one_of(
    st.integers(), st.floats(), st.text(max_size=20), st.booleans(), st.none(), st.lists(st.integers(), max_size=2)
)
TEXTS = st.one_of(st.binary(max_size=200), st.text(max_size=200).map(str.encode))


def tensors(text: bytes, wave: list[float], length: int, shape: tuple[int, ...]) -> dict[str, np.ndarray]:
    made: dict[str, np.ndarray] = {"target_text": np.full(shape, text, dtype=object)}
    if wave:
        made["reference_wav"] = np.array([wave], dtype=np.float32)
        made["reference_wav_len"] = np.array([[length]], dtype=np.int32)
    return made


@settings(max_examples=300, deadline=None)
@given(
    text=TEXTS,
    wave=st.lists(st.floats(width=32), max_size=5),
    length=st.integers(-(2**31), 2**31 - 1),
    shape=st.sampled_from([(1, 1), (1,), (2, 1), (0,), (1, 1, 1)]),
    parameters=st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=5),
)
def test_tensors_and_parameters(
    text: bytes, wave: list[float], length: int, shape: tuple[int, ...], parameters: dict[str, Any]
) -> None:
    try:
        request = wire.speech_request(tensors(text, wave, length, shape), json.dumps(parameters))
        resolved = request.params.resolve(DEFAULTS, LIMITS)
    except InvalidRequest as error:
        assert str(error)
        assert "\n" not in str(error)
        return
    assert isinstance(request, SpeechRequest)
    for name, (low, high) in LIMITS.items():
        if hasattr(resolved, name):
            assert low <= getattr(resolved, name) <= high


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(st.text(max_size=12), VALUES, max_size=4))
def test_unknown_names_are_refused_by_name(values: dict[str, Any]) -> None:
    unknown = [name for name in values if name not in SamplingParams.__dataclass_fields__]
    try:
        SamplingParams.from_mapping(values)
    except InvalidRequest as error:
        assert str(error)
    else:
        assert not unknown
