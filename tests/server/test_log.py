"""Every request leaves one line in the server's log, by which its caller can find it."""

from __future__ import annotations

import json
import time

import pytest

from backends.launcher import RunningServer
from tts_client import InvalidArgument, TTSClient
from tts_client.wire import speech_request


def lines_of(server: RunningServer, request_id: str) -> list[dict]:
    """The log's lines about a request, waited for, as the server writes them from a thread of its own."""
    for _ in range(100):
        whole = server.log.read_text(errors="replace").rpartition("\n")[0]  # the server writes a line in pieces
        # Triton quotes a message once more.
        told = [json.loads(json.loads(line.split("] ", 1)[1])) for line in whole.splitlines() if r'"{\"event\"' in line]
        if found := [entry for entry in told if entry["id"] == request_id]:
            return found
        time.sleep(0.05)
    return []


def test_a_request_is_found_by_its_id(server: RunningServer) -> None:
    with TTSClient(server.grpc_url) as client:
        sound = sum(len(chunk.pcm) for chunk in client.stream("Found again.", seed=1, request_id="call-4711"))
    (line,) = lines_of(server, "call-4711")
    assert line["outcome"] in ("stop", "length")
    assert line["audio_s"] == pytest.approx(sound / 16_000)
    assert 0 < line["first_chunk_ms"] <= line["total_ms"]


def test_a_refusal_says_why_and_no_request_writes_lines_of_its_own(server: RunningServer) -> None:
    name = 'quoted " and\nbroken'
    with TTSClient(server.grpc_url) as client, pytest.raises(InvalidArgument):
        list(client.stream("Too hot.", temperature=9.0, request_id=name))
    (line,) = lines_of(server, name)
    assert line["outcome"] == "invalid"
    assert "temperature" in line["error"]
    assert not [line for line in server.log.read_text(errors="replace").splitlines() if line.startswith("broken")]


def test_requests_without_an_id_get_one() -> None:
    first, second = (speech_request("tts", "x", {}).id for _ in range(2))
    assert len(first) == 32
    assert first != second
