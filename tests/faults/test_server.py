"""What breaks in a server, breaks alone or is seen: dead stubs, damaged voices, full disks."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
import tritonclient.grpc as grpcclient

from backends.launcher import running_server
from backends.launcher.distribution import LauncherError
from tests.server.test_leaving import ROOT, descendants
from tests.server.wire import Speaker


def probe(url: str) -> int:
    command = [sys.executable, "-m", "backends.launcher.probe", "--url", url, "--timeout", "5"]
    return subprocess.run(command, cwd=ROOT, capture_output=True).returncode


def test_a_killed_stub_is_seen_by_the_probe_alone_and_unload_and_load_bring_it_back(repository: Path) -> None:
    with running_server(repository) as server:
        assert probe(server.grpc_url) == 0
        (stub,) = [pid for pid, name in descendants(server.pid).items() if "triton_python" in name]
        os.kill(stub, signal.SIGKILL)
        time.sleep(0.5)
        assert probe(server.grpc_url) == 1
        with urllib.request.urlopen(f"http://{server.http_url}/v2/health/ready") as answer:
            assert answer.status == 200  # Triton has not noticed
        with grpcclient.InferenceServerClient(server.grpc_url) as client:
            client.unload_model("tts")
            deadline = time.monotonic() + 30
            while client.is_model_ready("tts"):
                assert time.monotonic() < deadline
                time.sleep(0.05)
            client.load_model("tts")
        assert probe(server.grpc_url) == 0


@pytest.mark.parametrize("damage", ["cut off", "of another voice"])
def test_a_damaged_graph_is_refused_by_name(repository: Path, tmp_path: Path, damage: str) -> None:
    shutil.copytree(repository, tmp_path / "repository")
    voice = tmp_path / "repository" / "tts" / "1"
    if damage == "cut off":
        graph = voice / "vocoder.onnx"
        graph.write_bytes(graph.read_bytes()[:-100])
    else:
        shutil.copyfile(voice / "lm.onnx", voice / "vocoder.onnx")
    with (
        pytest.raises(LauncherError, match="does not match its checksum"),
        running_server(voice.parents[1]),
    ):
        pass


def test_a_voice_whose_draft_is_missing_is_refused_by_name(repository: Path, tmp_path: Path) -> None:
    shutil.copytree(repository, tmp_path / "repository")
    voice = tmp_path / "repository" / "tts" / "1"
    manifest = json.loads((voice / "voice.json").read_text())
    (voice / manifest["speculation"]["draft"]["files"]["draft"]["path"]).unlink()
    with pytest.raises(LauncherError, match=r"draft\.onnx' is not in"), running_server(voice.parents[1]):
        pass


def test_a_full_disk_for_the_output_does_not_stop_it(repository: Path) -> None:
    """The launcher's own output goes to a full device; the server speaks on."""
    ports = ("--grpc-port", "18441", "--http-port", "0", "--metrics-port", "0")
    command = [sys.executable, "-m", "backends.launcher", "--model-repository", str(repository), *ports]
    with Path("/dev/full").open("w") as full:
        process = subprocess.Popen(command, stdout=full, stderr=full, cwd=ROOT)
    try:
        deadline = time.monotonic() + 60
        while probe("127.0.0.1:18441"):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.2)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=60)


def test_nonsense_leaves_the_next_request_alone(speaker: Speaker) -> None:
    for parameters in ({"seed": -1}, {"nodes": 65}, {"speculation": "draft", "acceptance": "x"}, {"theta": 0.123}):
        answer = speaker.wait(speaker.send("Nonsense.", max_seconds=0.2, **parameters))
        assert answer.error is not None or parameters == {"theta": 0.123}  # not read without rule "group"
    assert speaker.say("Sense.", max_seconds=0.2).finals == 1
