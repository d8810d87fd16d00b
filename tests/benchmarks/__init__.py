"""Benchmarks (`make bench`): measured figures, not tests."""

import sys
from pathlib import Path

# As pytest's `pythonpath` in pyproject.toml: the engine's modules and the client import as top-level packages.
_ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(_ROOT / "backends" / "tts"), str(_ROOT / "client")]
