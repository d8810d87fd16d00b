"""A server of our own, as its users start it, and what its /metrics say."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
STOP_SECONDS = 90
BATCH = re.compile(r"^tts_module_(batch_items|runs)_total\{([^}]*)\} (\S+)$", re.MULTILINE)
LABEL = re.compile(r'module="(\w+)"')


class ServerError(RuntimeError):
    """The server did not start; the message says why."""


@dataclass(frozen=True)
class Server:
    """Addresses, host:port."""

    grpc_url: str
    metrics_url: str

    def module_counts(self) -> dict[str, tuple[float, float]]:
        """(items, runs) so far of each module; {} where the server does not count them."""
        with urllib.request.urlopen(f"http://{self.metrics_url}/metrics", timeout=10) as answer:
            return module_counts(answer.read().decode())


def module_counts(metrics: str) -> dict[str, tuple[float, float]]:
    """(items, runs) of each module in the text of /metrics."""
    counts: dict[str, dict[str, float]] = {}
    for kind, labels, value in BATCH.findall(metrics):
        if module := LABEL.search(labels):
            counts.setdefault(module[1], {})[kind] = float(value)
    return {module: (count.get("batch_items", 0.0), count.get("runs", 0.0)) for module, count in counts.items()}


def mean_batches(
    before: Mapping[str, tuple[float, float]], after: Mapping[str, tuple[float, float]]
) -> dict[str, float]:
    """Items a run of each module between two `module_counts`; modules that did not run are left out."""
    batches = {}
    for module, (items, runs) in after.items():
        items_before, runs_before = before.get(module, (0.0, 0.0))
        if runs > runs_before:
            batches[module] = round((items - items_before) / (runs - runs_before), 2)
    return batches


@contextmanager
def serve(settings: Mapping[str, str], repository: Path | None = None, tree: Path | None = None) -> Iterator[Server]:
    """`python -m backends.launcher` with engine settings, on free ports, until the block ends. Raises ServerError.

    tree: another checkout instead of this one. It needs a .venv of its own: a server runs the modules of the one it
    is started from.
    """
    python = tree.resolve() / ".venv/bin/python" if tree else Path(sys.executable)
    if not python.exists():
        raise ServerError(f"{tree} has no .venv/bin/python; run `make export` there")
    command = [
        str(python),
        "-m",
        "backends.launcher",
        *("--grpc-port", "0", "--http-port", "0", "--metrics-port", "0"),
    ]
    command += [argument for name, value in settings.items() for argument in ("--set", f"{name}={value}")]
    if repository:
        command += ["--model-repository", str(repository)]
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(command, cwd=tree or ROOT, stdout=subprocess.PIPE, stderr=errors, text=True)
        try:
            assert process.stdout is not None
            ready = re.search(r"gRPC (\S+) .*metrics ([^/\s]+)", process.stdout.readline())
            if not ready:
                process.wait()
                errors.seek(0)
                raise ServerError((errors.read().strip() or "the launcher printed nothing").splitlines()[-1])
            yield Server(ready[1], ready[2])
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                try:
                    process.wait(STOP_SECONDS)
                except subprocess.TimeoutExpired:
                    process.send_signal(signal.SIGTERM)  # the launcher takes the second for "now"
                    process.wait(STOP_SECONDS)
            if process.stdout:
                process.stdout.close()
