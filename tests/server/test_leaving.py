"""Clients that leave: cancelled, killed, out of time, or with the model gone; all they held is free."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
from tritonclient.utils import InferenceServerException

from backends.launcher import LauncherError, RunningServer, running_server
from tests.server.conftest import Gauges
from tests.server.wire import Speaker

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
        assert gauges.read()['tts_pool_items{model="tts"}'] == len(names)
    gauges.wait_empty()
    assert gauges.outcome("cancelled") == before + len(names)
    assert speaker.say("Still here.", max_seconds=0.3).finals == 1


def test_client_killed_mid_stream(server: RunningServer, speaker: Speaker, gauges: Gauges) -> None:
    before = gauges.outcome("cancelled")
    with subprocess.Popen(
        [sys.executable, "-c", KILLED_CLIENT, server.grpc_url, LONG],
        stdout=subprocess.PIPE, text=True, cwd=Path(__file__).resolve().parents[2],
    ) as client:  # fmt: skip
        assert client.stdout is not None
        assert client.stdout.readline() == "streaming\n"
        client.kill()
    gauges.wait_empty()
    assert gauges.outcome("cancelled") == before + 4
    assert speaker.say("Still here.", max_seconds=0.3).finals == 1


def test_timeout_of_the_request_is_kept(speaker: Speaker) -> None:
    with pytest.raises(InferenceServerException, match="timeout"):
        speaker.say(LONG, seed=1, max_seconds=50.0, timeout=100_000)


def test_unload_lets_open_streams_finish(server: RunningServer, speaker: Speaker) -> None:
    names = [speaker.send("A few more words before it goes away.", seed=i, max_seconds=5.0) for i in range(3)]
    speaker.next()
    speaker.client.unload_model("tts")
    answers = [speaker.wait(name) for name in names]
    assert all(answer.error is None and answer.finals == 1 for answer in answers)
    deadline = time.monotonic() + 30
    while speaker.client.is_model_ready("tts"):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    speaker.client.load_model("tts")
    assert speaker.say("Back again.", max_seconds=0.3).finals == 1


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
    taken = int(server.grpc_url.rpartition(":")[2])
    with pytest.raises(LauncherError, match="is taken"), running_server(tmp_path, grpc_port=taken):
        pass
