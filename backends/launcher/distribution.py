"""tritonserver itself: taken out of a pinned PyPI wheel and assembled with our backend beside its python backend."""

from __future__ import annotations

import ctypes.util
import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from pathlib import Path

WHEEL = "nvidia-pytriton==0.7.0"  # carries tritonserver 2.51.0 and the python backend with its stubs
WHEEL_SHA256 = "21f063ff93bb426d0c06b7a55e7eb9efcfe62c0dddd9a908e9877e18710128df"
WANTED = ("pytriton/tritonserver/bin/", "pytriton/tritonserver/backends/python/", "nvidia_pytriton.libs/")
STUB = f"pytriton/tritonserver/python_backend_stubs/{sys.version_info[0]}.{sys.version_info[1]}/"
BACKEND = Path(__file__).resolve().parents[1] / "tts"


class LauncherError(RuntimeError):
    """The server cannot be started; the message says why and what to do."""


def cache_directory() -> Path:
    """$TTS_TRITON_CACHE, else ~/.cache/tts-triton."""
    return Path(os.environ.get("TTS_TRITON_CACHE") or Path.home() / ".cache" / "tts-triton")


def distribution() -> Path:
    """Folder with tritonserver and its libraries; fetched once (55 MB), checked by sha256. Raises LauncherError."""
    target = cache_directory() / f"tritonserver-{WHEEL_SHA256[:12]}"
    try:
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=target.parent) as work:
                unpacked = _unpack(_download(Path(work)), Path(work) / "unpacked")
                try:
                    unpacked.rename(target)  # all of it at once, or nothing
                except OSError:
                    if not target.exists():  # otherwise another process was faster
                        raise
    except OSError as error:
        raise LauncherError(
            f"cannot unpack tritonserver into {target} ({error.strerror}): "
            "let TTS_TRITON_CACHE name a folder with 300 MB of room"
        ) from error
    return target


def _unpack(wheel: Path, directory: Path) -> Path:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(directory, [name for name in archive.namelist() if name.startswith((*WANTED, STUB))])
    for program in (directory / WANTED[0] / "tritonserver", directory / STUB / "triton_python_backend_stub"):
        program.chmod(0o755)
    return directory


def _download(work: Path) -> Path:
    print(f"fetching tritonserver ({WHEEL}, once)", file=sys.stderr)
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(work), WHEEL]
    done = subprocess.run(command, capture_output=True, text=True)
    wheels = list(work.glob("*.whl"))
    if done.returncode or not wheels:
        reason = (done.stderr.strip() or "no wheel arrived").splitlines()[-1]
        raise LauncherError(f"cannot fetch {WHEEL} from the package index: {reason}")
    if hashlib.sha256(wheels[0].read_bytes()).hexdigest() != WHEEL_SHA256:
        raise LauncherError(f"{WHEEL} from the package index is not the pinned file (sha256 differs); nothing was run")
    return wheels[0]


def assemble(directory: Path) -> Path:
    """Fill `directory` with the backends tritonserver loads: its python backend and ours; returns it."""
    server = distribution()
    python = directory / "python"
    python.mkdir(parents=True)
    # Real files: the server takes the folder of this library, links resolved, for the backend's home.
    for name in ("libtriton_python.so", "triton_python_backend_utils.py"):
        shutil.copy(server / WANTED[1] / name, python / name)
    shutil.copy(server / STUB / "triton_python_backend_stub", python)
    (directory / "tts").symlink_to(BACKEND)
    return directory


def environment() -> dict[str, str]:
    """Our environment, with our python3 first for the stub, and libpython and the server's libraries to be found.

    Raises LauncherError where libpython, which the stub is linked to, is missing.
    """
    python = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    folder = sysconfig.get_config_var("LIBDIR") or ""
    if not (ctypes.util.find_library(python) or (Path(folder) / f"lib{python}.so.1.0").exists()):
        raise LauncherError(f"lib{python}.so.1.0 is missing: install lib{python} (`sudo apt-get install lib{python}`)")
    libraries = [str(distribution() / WANTED[2]), folder]
    return {
        **os.environ,
        "PATH": _joined([str(Path(sys.executable).parent)], "PATH"),
        "LD_LIBRARY_PATH": _joined(libraries, "LD_LIBRARY_PATH"),
    }


def _joined(folders: list[str], variable: str) -> str:
    """The folders, then those of the variable; nothing empty, which would mean the current directory."""
    return os.pathsep.join(filter(None, [*folders, os.environ.get(variable, "")]))
