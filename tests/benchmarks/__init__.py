"""Benchmarks (`make bench`): measured figures, not tests; pytest collects nothing here."""

import sys
from pathlib import Path

# As Triton and pytest do: the engine's modules import each other as `tts_engine.…`.
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "backends" / "tts"))
