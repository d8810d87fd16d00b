"""What a caller asks for, and its check against the voice's defaults and limits."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tts_engine.errors import InvalidRequest

INTEGERS = frozenset(
    {"top_k", "seed", "chunk_frames", "first_chunk_frames", "tolerance", "verify_top_k", "verify_eos_top_k", "nodes"}
)
NAMES = frozenset({"speculation", "acceptance"})


@dataclass(frozen=True)
class Settings:
    """Parameters with nothing left open; temperature 0 is greedy, top_k 0 and top_p 1 switch that filter off."""

    temperature: float
    top_k: int
    top_p: float
    seed: int
    max_seconds: float
    chunk_frames: int
    first_chunk_frames: int
    speculation: str = "none"
    acceptance: str = "exact"
    tolerance: int = 1
    bias: float = 0.0
    theta: float = 0.0
    verify_top_k: int = 1
    verify_eos_top_k: int = 1
    nodes: int = 0


@dataclass(frozen=True)
class SamplingParams:
    """Request parameters; None takes the voice's default (for `seed`: a fresh random one).

    temperature, top_k, top_p: sampling. max_seconds: audio at most this long. first_chunk_frames, chunk_frames: the
    first chunk's size and the size later chunks grow to (codec frames; the first is never larger than the others).

    speculation: the proposer, "none" or one that the voice has; acceptance: the rule that verifies, and its settings:
    tolerance (τ samples), bias, theta (cosine of the groups, one that the voice has), verify_top_k and
    verify_eos_top_k (membership). nodes: draft tokens a step at most; 0 leaves their number to the engine.
    """

    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    seed: int | None = None
    max_seconds: float | None = None
    chunk_frames: int | None = None
    first_chunk_frames: int | None = None
    speculation: str | None = None
    acceptance: str | None = None
    tolerance: int | None = None
    bias: float | None = None
    theta: float | None = None
    verify_top_k: int | None = None
    verify_eos_top_k: int | None = None
    nodes: int | None = None

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> SamplingParams:
        """Parameters from untrusted names and values; InvalidRequest names an unknown one or a wrong type."""
        known = [item.name for item in fields(cls)]
        for name, value in values.items():
            if name not in known:
                raise InvalidRequest(f"unknown parameter {name!r}; known are {', '.join(known)}")
            if name in NAMES:
                if not isinstance(value, str):
                    raise InvalidRequest(f"parameter {name} must be a name, not {value!r}")
                continue
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if not number or (name in INTEGERS and not float(value).is_integer()):
                kind = "an integer" if name in INTEGERS else "a number"
                raise InvalidRequest(f"parameter {name} must be {kind}, not {value!r}")
        typed: dict[str, Any] = {
            name: value if name in NAMES else int(value) if name in INTEGERS else float(value)
            for name, value in values.items()
        }
        return cls(**typed)

    def resolve(self, defaults: Mapping[str, Any], limits: Mapping[str, tuple[float, float]]) -> Settings:
        """Fill in defaults and check ranges; InvalidRequest names the range. Names are the engine's to check."""
        values: dict[str, Any] = {}
        for item in fields(self):
            value = getattr(self, item.name)
            if value is None:
                value = secrets.randbits(63) if item.name == "seed" else defaults[item.name]
            if item.name in NAMES:
                values[item.name] = str(value)
                continue
            low, high = limits[item.name]
            if not low <= value <= high:  # also refuses NaN
                raise InvalidRequest(f"parameter {item.name} must be between {low:g} and {high:g}, not {value!r}")
            values[item.name] = int(value) if item.name in INTEGERS else float(value)
        values["first_chunk_frames"] = min(values["first_chunk_frames"], values["chunk_frames"])
        return Settings(**values)


@dataclass(frozen=True)
class SpeechRequest:
    """One utterance to speak: text of any length up to the engine's limit, spoken sentence by sentence.

    reference_audio (float32 [samples] at the voice's rate) and reference_text: for voices that can clone.
    """

    text: str
    params: SamplingParams = field(default_factory=SamplingParams)
    reference_audio: NDArray[np.float32] | None = None
    reference_text: str | None = None
