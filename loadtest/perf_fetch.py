"""NVIDIA's perf_analyzer, taken out of pinned PyPI wheels; nothing of them is installed."""

from __future__ import annotations

import ctypes.util
import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path


class PerfAnalyzerError(RuntimeError):
    """perf_analyzer cannot be fetched or did not run; the message says why and what to do."""


@dataclass(frozen=True)
class Wheel:
    """A pinned wheel, its sha256, and the one file wanted of it."""

    name: str
    sha256: str
    member: str


ANALYZER = Wheel(
    "tritonclient==2.50.0",
    "421fbb69ae6ab8cdb2c35b82134fcef2fe11e7af7718b1fcbc53335ab9bfe889",
    "tritonclient-2.50.0.data/data/bin/perf_analyzer",
)
CUDART = Wheel(  # linked against, not used
    "nvidia-cuda-runtime-cu12==12.9.79",
    "25bba2dfb01d48a9b59ca474a1ac43c6ebf7011f1b0b8cc44f54eb6ac48a96c3",
    "nvidia/cuda_runtime/lib/libcudart.so.12",
)


def perf_analyzer() -> tuple[Path, dict[str, str]]:
    """The program and the environment to run it in; fetched once (18 MB), checked by sha256. PerfAnalyzerError."""
    if not ctypes.util.find_library("b64"):
        raise PerfAnalyzerError("perf_analyzer needs libb64: install libb64-0d (`sudo apt-get install libb64-0d`)")
    cache = Path(os.environ.get("TTS_TRITON_CACHE") or Path.home() / ".cache" / "tts-triton")
    folder = cache / f"perf_analyzer-{ANALYZER.sha256[:12]}"
    folder.mkdir(parents=True, exist_ok=True)
    for wheel in (CUDART, ANALYZER):
        if not (folder / Path(wheel.member).name).exists():
            _fetch(wheel, folder)
    libraries = filter(None, [str(folder), os.environ.get("LD_LIBRARY_PATH", "")])
    return folder / "perf_analyzer", {**os.environ, "LD_LIBRARY_PATH": os.pathsep.join(libraries)}


def _fetch(wheel: Wheel, folder: Path) -> None:
    print(f"fetching {wheel.name} (once)", file=sys.stderr)
    with tempfile.TemporaryDirectory(dir=folder) as work:
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", work, wheel.name]
        done = subprocess.run(command, capture_output=True, text=True)
        found = list(Path(work).glob("*.whl"))
        if done.returncode or not found:
            reason = (done.stderr.strip() or "no wheel arrived").splitlines()[-1]
            raise PerfAnalyzerError(f"cannot fetch {wheel.name} from the package index: {reason}")
        if hashlib.sha256(found[0].read_bytes()).hexdigest() != wheel.sha256:
            raise PerfAnalyzerError(f"{wheel.name} is not the pinned file (sha256 differs); nothing was run")
        with zipfile.ZipFile(found[0]) as archive:
            taken = Path(archive.extract(wheel.member, work))
        taken.chmod(0o755)
        taken.replace(folder / taken.name)
