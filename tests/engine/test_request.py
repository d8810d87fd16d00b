"""Parameters and engine settings from outside: typed, bounded, refused with the range named."""

from __future__ import annotations

from pathlib import Path

import pytest

from tts_engine.config import EngineConfig
from tts_engine.errors import InvalidRequest
from tts_engine.request import SamplingParams
from tts_engine.voice import DEFAULTS, LIMITS


def test_defaults_fill_in_and_a_fresh_seed_is_drawn() -> None:
    first, second = (SamplingParams(top_k=7).resolve(DEFAULTS, LIMITS) for _ in range(2))
    assert (first.top_k, first.temperature) == (7, DEFAULTS["temperature"])
    assert first.seed != second.seed


def test_first_chunk_is_never_larger_than_the_others() -> None:
    assert SamplingParams(chunk_frames=3).resolve(DEFAULTS, LIMITS).first_chunk_frames == 3


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"temperatur": 1.0}, "unknown parameter 'temperatur'; known are temperature"),
        ({"temperature": "hot"}, "must be a number"),
        ({"top_k": 1.5}, "must be an integer"),
        ({"seed": True}, "must be an integer"),
        ({"seed": float("nan")}, "must be an integer"),
    ],
)
def test_wrong_names_and_types_are_refused(values: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        SamplingParams.from_mapping(values)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"temperature": -0.1}, "between 0 and 2"),
        ({"temperature": float("nan")}, "between 0 and 2"),
        ({"top_k": 5000}, "between 0 and 4096"),
        ({"seed": -1}, "parameter seed must be between"),
    ],
)
def test_out_of_range_names_the_range(values: dict[str, float], message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        SamplingParams.from_mapping(values).resolve(DEFAULTS, LIMITS)


def test_whole_floats_count_as_integers() -> None:
    assert SamplingParams.from_mapping({"top_k": 5.0, "max_seconds": 3}) == SamplingParams(top_k=5, max_seconds=3.0)


def test_engine_settings_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "engine.json"
    path.write_text('{"capacity": 4}')
    assert EngineConfig.load(path) == EngineConfig(capacity=4)
    path.write_text('{"capacitiy": 4}')
    with pytest.raises(ValueError, match="capacitiy"):
        EngineConfig.load(path)
    path.write_text('{"capacity": "4"}')
    with pytest.raises(ValueError, match="wrong type"):
        EngineConfig.load(path)
    path.write_text("[1]")
    with pytest.raises(ValueError, match="cannot read"):
        EngineConfig.load(path)
    path.write_text('{"capacity": 0}')
    with pytest.raises(ValueError, match="between 1 and 1024"):
        EngineConfig.load(path)
