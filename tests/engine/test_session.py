"""Where graphs run, and what is said when they cannot."""

from __future__ import annotations

import subprocess
import sys

import onnxruntime
import pytest

from tts_engine.config import EngineConfig
from tts_engine.engine import Engine
from tts_engine.errors import VoiceError
from tts_engine.session import Session

IN_A_PROCESS_OF_ITS_OWN = """
import sys
from pathlib import Path
import numpy as np
from tts_engine.config import EngineConfig
from tts_engine.lanes import Lanes
from tts_engine.session import Session
config = EngineConfig()
Session(Path(sys.argv[1]), config, [], [])
small = np.full(64, 1e-20, np.float32)
print(Lanes(config).share([lambda: bool((small * small).any())] * 3))
np.finfo(np.float32)
"""


@pytest.mark.skipif("CUDAExecutionProvider" in onnxruntime.get_available_providers(), reason="this one can")
def test_a_runtime_without_the_provider_says_what_to_install(engine: Engine) -> None:
    with pytest.raises(VoiceError, match="cannot run graphs on cuda; install onnxruntime-gpu"):
        Session(engine.voice.files["vocoder"], EngineConfig(provider="cuda"), [], [])


def test_an_unknown_provider_is_refused() -> None:
    with pytest.raises(ValueError, match='provider must be "cpu" or "cuda", not \'tpu\''):
        EngineConfig(provider="tpu")


def test_numbers_that_would_be_slow_are_zero_in_every_lane(engine: Engine) -> None:
    vocoder = str(engine.voice.files["vocoder"])
    said = subprocess.run(
        [sys.executable, "-W", "error", "-c", IN_A_PROCESS_OF_ITS_OWN, vocoder], capture_output=True, text=True
    )
    assert said.stdout.split("\n")[0] == "[False, False, False]", said.stderr
