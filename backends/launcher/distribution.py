"""tritonserver itself: taken out of a pinned PyPI wheel and assembled with our backend beside its python backend."""

from __future__ import annotations

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
    """Folder with tritonserver and its libraries; fetched once (55 MB), checked by sha256."""
    target = cache_directory() / f"tritonserver-{WHEEL_SHA256[:12]}"
    if not (target / "complete").exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as work:
            wheel = _download(Path(work))
            unpacked = Path(work) / "unpacked"
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(unpacked, [n for n in archive.namelist() if n.startswith((*WANTED, STUB))])
            for program in (unpacked / WANTED[0] / "tritonserver", unpacked / STUB / "triton_python_backend_stub"):
                program.chmod(0o755)
            (unpacked / "complete").touch()
            shutil.rmtree(target, ignore_errors=True)
            unpacked.rename(target)
    return target


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
    """Our environment, with our python3 first for the stub, and libpython and the server's libraries to be found."""
    libraries = [str(distribution() / WANTED[2]), sysconfig.get_config_var("LIBDIR") or ""]
    paths = [str(Path(sys.executable).parent), os.environ.get("PATH", "")]
    return {
        **os.environ,
        "PATH": os.pathsep.join(paths),
        "LD_LIBRARY_PATH": os.pathsep.join([*filter(None, libraries), os.environ.get("LD_LIBRARY_PATH", "")]),
    }
