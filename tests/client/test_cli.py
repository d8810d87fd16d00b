"""The command as a user runs it: its own process, a real server."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from backends.launcher.server import free_port
from tests.client.test_wav import read
from tts_client import TTSClient

COMMAND = [sys.executable, "-m", "tts_client", "say"]
TEXT = "The birch canoe slid on the smooth planks."


def say(
    client: TTSClient, folder: Path, *arguments: str, stdin: bytes = b"", url: str = ""
) -> subprocess.CompletedProcess[str]:
    """Runs to its end; the time limit is for a process that hangs at exit."""
    command = [*COMMAND, "--url", url or client.url, *arguments]
    done = subprocess.run(command, input=stdin, capture_output=True, cwd=folder, timeout=120)
    return subprocess.CompletedProcess(command, done.returncode, done.stdout.decode(), done.stderr.decode())


def test_the_file_holds_what_was_streamed(client: TTSClient, tmp_path: Path) -> None:
    done = say(client, tmp_path, TEXT, "-o", "speech.wav", "--seed", "2", "--max-seconds", "0.6")
    assert (done.returncode, done.stderr.count("Traceback")) == (0, 0)
    assert done.stdout.startswith("first chunk ")
    expected = np.concatenate([chunk.pcm for chunk in client.stream(TEXT, seed=2, max_seconds=0.6)])
    np.testing.assert_allclose(read(tmp_path / "speech.wav") / 32767, expected, atol=1 / 32767)


def test_standard_input_and_json(client: TTSClient, tmp_path: Path) -> None:
    done = say(client, tmp_path, "--json", "--seed", "2", "--max-seconds", "0.6", stdin=TEXT.encode())
    report = json.loads(done.stdout)
    assert done.returncode == 0
    assert read(tmp_path / "out.wav").size == round(report["audio_s"] * report["sample_rate"])
    assert report["finish_reason"] in ("stop", "length")
    assert report["timings"]["frames"] > 0


@pytest.mark.parametrize(
    ("arguments", "stdin", "status", "message"),
    [
        ((TEXT, "--temperature", "-1"), b"", 2, "temperature must be between"),
        ((), b"\xff\xfe", 2, "not UTF-8"),
        ((TEXT, "--reference", "nowhere.wav"), b"", 2, "cannot read the reference"),
        ((TEXT, "--model", "nobody"), b"", 4, "nobody"),
        ((TEXT, "--timeout", "0.001"), b"", 5, "longer timeout"),
        ((TEXT, "--seed", "2", "-o", "no/such/folder/out.wav"), b"", 1, "cannot write the audio"),
    ],
)
def test_failures_are_one_sentence_and_a_status(
    client: TTSClient, tmp_path: Path, arguments: tuple[str, ...], stdin: bytes, status: int, message: str
) -> None:
    done = say(client, tmp_path, *arguments, stdin=stdin)
    assert (done.returncode, done.stdout) == (status, "")
    assert message in done.stderr
    assert done.stderr.startswith("tts-client: ")
    assert done.stderr.count("\n") == 1


def test_no_server(client: TTSClient, tmp_path: Path) -> None:
    done = say(client, tmp_path, TEXT, url=f"localhost:{free_port()}")
    assert done.returncode == 3
    assert "is `make serve` running?" in done.stderr
    assert not (tmp_path / "out.wav").exists()


def test_ctrl_c_leaves_a_valid_file(client: TTSClient, tmp_path: Path) -> None:
    """However busy the machine, the stream cannot be over: the server sends nobody 60 s of speech within 40."""
    path = tmp_path / "out.wav"
    command = [*COMMAND, TEXT * 100, "--url", client.url, "--seed", "2", "--max-seconds", "60"]
    listen = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)  # ignored where the tests run in the background
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True, preexec_fn=listen) as process:
        while not path.exists() or path.stat().st_size < 10_000:
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (130, "tts-client: interrupted\n")
    assert read(path).size > 0
