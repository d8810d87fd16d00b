"""Where graphs run, and what is said when they cannot."""

from __future__ import annotations

import onnxruntime
import pytest

from tts_engine.config import EngineConfig
from tts_engine.engine import Engine
from tts_engine.errors import VoiceError
from tts_engine.session import Session


@pytest.mark.skipif("CUDAExecutionProvider" in onnxruntime.get_available_providers(), reason="this one can")
def test_a_runtime_without_the_provider_says_what_to_install(engine: Engine) -> None:
    with pytest.raises(VoiceError, match="cannot run graphs on cuda; install onnxruntime-gpu"):
        Session(engine.voice.files["vocoder"], EngineConfig(provider="cuda"), [], [])


def test_an_unknown_provider_is_refused() -> None:
    with pytest.raises(ValueError, match='provider must be "cpu" or "cuda", not \'tpu\''):
        EngineConfig(provider="tpu")
