"""One tritonserver process: started on free or given ports, warm before it counts as ready, stopped without orphans."""

from __future__ import annotations

import errno
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from backends.launcher.distribution import WANTED, LauncherError, assemble, distribution, environment
from backends.launcher.probe import synthesise
from backends.launcher.settings import with_settings

ROOT = Path(__file__).resolve().parents[2]
REPOSITORY = ROOT / "model_repository"
EXIT_TIMEOUT = 60  # seconds that open streams are given to finish when the server stops
SHARED_MEMORY = 16 << 20
UNLOAD_GRACE = 5  # seconds
MODEL = "tts"


@dataclass(frozen=True)
class RunningServer:
    """Addresses (host:port) of a server that has answered a real inference; `pid` of tritonserver; its log file."""

    grpc_url: str
    http_url: str
    metrics_url: str
    pid: int
    log: Path
    _process: subprocess.Popen[bytes]

    @property
    def alive(self) -> bool:
        """Whether the process still runs."""
        return self._process.poll() is None

    def complaint(self) -> str:
        """The line of its log that says best what went wrong."""
        return _complaint(self.log)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _ports(host: str, wanted: Mapping[str, int]) -> dict[str, int]:
    """The wanted ports, checked; free ones for 0. All are held until the last is found, so no two are the same."""
    with ExitStack() as held:
        ports = {}
        for name, port in wanted.items():
            probe = held.enter_context(socket.socket())
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, port))
                probe.listen()
            except (OSError, OverflowError) as error:
                if getattr(error, "errno", None) == errno.EADDRINUSE:
                    advice = f"stop what uses it, or pass --{name}-port 0"
                    raise LauncherError(f"{name} port {port} is taken: {advice}") from error
                raise LauncherError(f"cannot listen on {host}:{port} ({error}): choose another {name} port") from error
            ports[name] = int(probe.getsockname()[1])
        return ports


def _complaint(log: Path) -> str:
    """The one line of tritonserver's log that says what went wrong."""
    text = log.read_text(errors="replace")
    for pattern in (
        r"failed to load '\w+' version \d+: \w+: (.*)",
        r"TritonModelException: (.*)",
        r"error: creating server: (.*)",
        r"\| *tts *\| *\d+ *\| *UNAVAILABLE: (.*?) *\|",
        r"^E\d+.*\] \"?(.*?)\"?$",
        r"error while loading shared libraries: (.*)",
    ):
        if found := re.findall(pattern, text, re.M):
            line: str = found[-1].partition(r"\n")[0]  # the rest is a traceback
            return re.sub(r"^\w+Error: ", "", line.strip())[:400]
    last = [line for line in text.splitlines() if line.strip()]
    return last[-1][:400] if last else "it printed nothing"


def _wait_ready(process: subprocess.Popen[bytes], url: str, log: Path, seconds: float, warm_up: bool) -> None:
    import tritonclient.grpc as grpcclient
    from tritonclient.utils import InferenceServerException

    deadline = time.monotonic() + seconds
    with grpcclient.InferenceServerClient(url) as client:
        while True:
            if process.poll() is not None:
                raise LauncherError(f"tritonserver stopped while starting: {_complaint(log)}")
            with suppress(InferenceServerException):
                if client.is_model_ready(MODEL):
                    break
                if client.is_server_live() and "failed to load" in log.read_text(errors="replace"):
                    raise LauncherError(f"model {MODEL} did not load: {_complaint(log)}")
            if time.monotonic() > deadline:
                raise LauncherError(f"tritonserver was not ready after {seconds:.0f} s: {_complaint(log)}")
            time.sleep(0.1)
    if warm_up:
        try:
            samples = synthesise(url, "Ready.")
        except (InferenceServerException, TimeoutError) as error:
            raise LauncherError(f"the server is up but the first inference failed: {error}") from error
        if samples == 0:
            raise LauncherError("the server is up but the first inference gave no audio")


def _stop(process: subprocess.Popen[bytes], log: Path) -> None:
    """SIGTERM: open streams finish, the model is unloaded; then the whole process group goes, so no stub is left.

    tritonserver 2.51 keeps a reference to the model for every request that it refused itself on a stream (wrong
    dtype or shape) and then waits for it until its exit timeout: once no inference is open, UNLOAD_GRACE must do.
    """
    try:
        if process.poll() is None:
            process.terminate()
            deadline = time.monotonic() + EXIT_TIMEOUT + 10
            while process.poll() is None and time.monotonic() < deadline:
                if "All models are stopped" in log.read_text(errors="replace"):
                    deadline = min(deadline, time.monotonic() + UNLOAD_GRACE)
                time.sleep(0.05)
    finally:  # a second Ctrl-C cuts the waiting short
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for region in Path("/dev/shm").glob(f"{log.parent.name}*"):  # a server that had to be killed leaves it
            region.unlink(missing_ok=True)


def _show(log: Path, process: subprocess.Popen[bytes]) -> None:
    """Copy the log to standard error as it grows, until the process ends."""
    with log.open(errors="replace") as lines:
        ended = False
        while not ended:
            ended = process.poll() is not None
            sys.stderr.write(lines.read())
            time.sleep(0.1)


def _tracing(collector: str) -> list[str]:
    """Options that make Triton trace every request by OpenTelemetry, as part of the caller's trace where it has one."""
    settings = ("mode=opentelemetry", f"opentelemetry,url={collector}", "rate=1", "level=TIMESTAMPS")
    return [f"--trace-config={setting}" for setting in settings]


@contextmanager
def running_server(
    repository: Path = REPOSITORY,
    *,
    grpc_port: int = 0,
    http_port: int = 0,
    metrics_port: int = 0,
    host: str = "127.0.0.1",
    verbose: int = 0,
    start_seconds: float = 120,
    warm_up: bool = True,
    settings: Mapping[str, str] | None = None,
    traces: str | None = None,
) -> Iterator[RunningServer]:
    """Start, wait for a real inference, yield the addresses, stop. Port 0 = any free one.

    verbose: tritonserver's log level; above 0 its log goes to standard error. warm_up: the real inference.
    settings: engine settings that take the place of those in config.pbtxt. traces: URL of an OpenTelemetry collector.
    Raises LauncherError with one sentence when the server cannot start.
    """
    if not (repository / MODEL / "config.pbtxt").exists():
        raise LauncherError(f"{repository} holds no model {MODEL}: it needs {MODEL}/config.pbtxt")
    if not (repository / MODEL / "1" / "voice.json").exists():
        raise LauncherError(f"there is no voice in {repository / MODEL / '1'}: run `make export` first")
    ports = _ports(host, {"grpc": grpc_port, "http": http_port, "metrics": metrics_port})
    reached = "127.0.0.1" if host == "0.0.0.0" else host
    urls = {name: f"{reached}:{port}" for name, port in ports.items()}
    with tempfile.TemporaryDirectory(prefix="tts-triton-") as work:
        backends = assemble(Path(work) / "backends")
        log = Path(work) / "tritonserver.log"
        if settings:
            repository = with_settings(repository / MODEL, settings, Path(work) / "repository")
        command = [
            str(distribution() / WANTED[0] / "tritonserver"),
            f"--model-repository={repository}",
            f"--backend-directory={backends}",
            "--model-control-mode=explicit",
            f"--load-model={MODEL}",
            f"--exit-timeout-secs={EXIT_TIMEOUT}",
            f"--backend-config=python,shm-default-byte-size={SHARED_MEMORY}",
            f"--backend-config=python,shm-region-prefix-name={log.parent.name}",
            f"--log-verbose={verbose}",
            *(f"--{name}-port={port}" for name, port in ports.items()),
            f"--grpc-address={host}",
            f"--http-address={host}",
            f"--metrics-address={host}",
            *(_tracing(traces) if traces else ()),
        ]
        with log.open("wb") as output:
            process = subprocess.Popen(
                command, stdout=output, stderr=subprocess.STDOUT, env=environment(), start_new_session=True
            )
        try:
            if verbose:
                threading.Thread(target=_show, args=(log, process), daemon=True).start()
            _wait_ready(process, urls["grpc"], log, start_seconds, warm_up)
            yield RunningServer(urls["grpc"], urls["http"], urls["metrics"], process.pid, log, process)
        finally:
            _stop(process, log)
