"""Clients that leave: cancelled, killed, out of time, or with the model gone; all they held is free."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from tritonclient.utils import InferenceServerException

from backends.launcher import LauncherError, RunningServer, running_server
from backends.launcher.probe import synthesise
from tests.server.conftest import Gauges
from tests.server.wire import Speaker

ROOT = Path(__file__).resolve().parents[2]
LONG = "This goes on for a long while, and then for longer still. " * 20
KILLED_CLIENT = """
import sys, time
from tests.server.wire import Speaker
with Speaker(sys.argv[1]) as speaker:
    for index in range(4):
        speaker.send(sys.argv[2], seed=index, max_seconds=50.0)
    speaker.next()
    print("streaming", flush=True)
    time.sleep(60)
"""


def test_cancel_mid_stream(server: RunningServer, speaker: Speaker, gauges: Gauges) -> None:
    before = gauges.outcome("cancelled")
    with Speaker(server.grpc_url) as leaver:
        names = [leaver.send(LONG, seed=index, max_seconds=50.0) for index in range(4)]
        leaver.next()
        gauges.wait_held(len(names), len(names))
    gauges.wait_empty()
    assert gauges.outcome("cancelled") == before + len(names)
    assert speaker.say("Still here.", max_seconds=0.3).finals == 1


def test_client_killed_mid_stream(server: RunningServer, speaker: Speaker, gauges: Gauges) -> None:
    before = gauges.outcome("cancelled")
    with subprocess.Popen(
        [sys.executable, "-c", KILLED_CLIENT, server.grpc_url, LONG],
        stdout=subprocess.PIPE, text=True, cwd=ROOT,
    ) as client:  # fmt: skip
        assert client.stdout is not None
        assert client.stdout.readline() == "streaming\n"
        gauges.wait_held(4, 4)
        client.kill()
    gauges.wait_empty()
    assert gauges.outcome("cancelled") == before + 4
    assert speaker.say("Still here.", max_seconds=0.3).finals == 1


def test_timeout_of_the_request_is_kept(speaker: Speaker) -> None:
    with pytest.raises(InferenceServerException, match="timeout"):
        speaker.say(LONG, seed=1, max_seconds=50.0, timeout=100_000)


def test_unload_lets_open_streams_finish(speaker: Speaker, gauges: Gauges) -> None:
    names = [speaker.send(LONG, seed=index, max_seconds=50.0) for index in range(3)]
    gauges.wait_held(3, 3)
    speaker.client.unload_model("tts")
    answers = [speaker.wait(name) for name in names]
    assert all(answer.error is None and answer.finals == 1 for answer in answers)
    deadline = time.monotonic() + 30
    while speaker.client.is_model_ready("tts"):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    speaker.client.load_model("tts")
    assert speaker.say("Back again.", max_seconds=0.3).finals == 1


@pytest.mark.parametrize("hurry", [False, True])
def test_serve_says_where_and_leaves_nothing(repository: Path, hurry: bool) -> None:
    shared = set(os.listdir("/dev/shm"))
    ports = ("--grpc-port", "0", "--http-port", "0", "--metrics-port", "0")
    command = [sys.executable, "-m", "backends.launcher", "--model-repository", str(repository), *ports]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    with process as launcher, killed_if_it_fails(process):
        assert launcher.stdout is not None
        assert launcher.stderr is not None
        ready = re.match(r"ready: gRPC (\S+) ", launcher.stdout.readline())
        assert ready, launcher.stderr.read()
        started = descendants(launcher.pid)
        assert any("tritonserver" in name for name in started.values())
        assert any("triton_python" in name for name in started.values())
        if not hurry:
            assert synthesise(ready[1], "Hello.") > 0
            launcher.send_signal(signal.SIGTERM)
        else:
            with Speaker(ready[1]) as speaker:
                speaker.send(LONG, seed=1, max_seconds=60.0)
                speaker.next()
                launcher.send_signal(signal.SIGINT)
                assert "once more ends them" in launcher.stderr.readline()
                launcher.send_signal(signal.SIGINT)
        assert launcher.wait(timeout=30) == 0
    assert not [name for pid, name in started.items() if name_of(pid)]
    assert not [name for name in set(os.listdir("/dev/shm")) - shared if name.startswith("tts-triton")]


@contextmanager
def killed_if_it_fails(process: subprocess.Popen[str]) -> Iterator[None]:
    """Otherwise a failed assertion would wait for the process for ever. What the process has said is shown."""
    try:
        yield
    except BaseException:
        for pid in [*descendants(process.pid), process.pid]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if process.stderr is not None:
            print(process.stderr.read())
        raise


def name_of(pid: int) -> str:
    """The running process's name; empty when it has ended (even if nobody has collected it yet)."""
    with suppress(FileNotFoundError, ProcessLookupError):
        name, _, rest = Path(f"/proc/{pid}/stat").read_text().partition("(")[2].rpartition(")")
        return "" if rest.split()[0] == "Z" else name
    return ""


def descendants(pid: int) -> dict[int, str]:
    """Names of the processes a process has started, and of theirs."""
    found: dict[int, str] = {}
    for listed in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, listed.read_text().split()):
            found |= {child: name_of(child)} | descendants(child)
    return found


def test_launcher_says_in_a_sentence_why_it_cannot_start(server: RunningServer, tmp_path: Path) -> None:
    with pytest.raises(LauncherError, match="holds no model"), running_server(tmp_path):
        pass
    model = tmp_path / "tts"
    (model / "1").mkdir(parents=True)
    (model / "config.pbtxt").write_text('backend: "tts"\n')
    with pytest.raises(LauncherError, match="make export"), running_server(tmp_path):
        pass
    (model / "1" / "voice.json").write_text("{}")
    with pytest.raises(LauncherError, match="lacks the key") as caught, running_server(tmp_path):
        pass
    assert "\n" not in str(caught.value)
    (model / "config.pbtxt").write_text('backend: "tts"\nparameters { key: "speed" value { string_value: "9" } }\n')
    with pytest.raises(LauncherError, match="unknown parameter 'speed'; known are capacity"), running_server(tmp_path):
        pass
    with pytest.raises(LauncherError, match="cannot listen on"), running_server(tmp_path, host="192.0.2.1"):
        pass
    taken = int(server.grpc_url.rpartition(":")[2])
    with pytest.raises(LauncherError, match="is taken"), running_server(tmp_path, grpc_port=taken):
        pass
