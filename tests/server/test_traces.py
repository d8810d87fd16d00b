"""A request's trace goes on in the server: spans reach the collector under it, the log's line names it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from backends.launcher import RunningServer, running_server
from tests.server.test_log import lines_of
from tts_client import AsyncTTSClient, TTSClient

TRACE = "0af7651916cd43dd8448eb211c80319c"


class Collector(BaseHTTPRequestHandler):
    """Keeps what is posted, as an OpenTelemetry collector's OTLP endpoint would take it."""

    received: list[str] = []  # noqa: RUF012

    def do_POST(self) -> None:
        self.received.append(self.rfile.read(int(self.headers["Content-Length"])).decode(errors="replace"))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def traced(repository: Path) -> Iterator[RunningServer]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Collector) as collector:
        threading.Thread(target=collector.serve_forever, daemon=True).start()
        with running_server(repository, traces=f"http://127.0.0.1:{collector.server_port}/v1/traces") as running:
            yield running
        collector.shutdown()


def collected(trace: str, seconds: float = 60) -> bool:
    deadline = time.monotonic() + seconds  # spans are sent in batches, every five seconds
    while time.monotonic() < deadline:
        if any(trace in spans for spans in Collector.received):
            return True
        time.sleep(0.1)
    return False


def followed(server: RunningServer, speak: Callable[[str], object], trace: str) -> bool:
    """Whether the server's log has the trace of a request that `speak` makes under a name.

    Tried three times: tritonserver 2.51 may read a stream's headers in two threads at once, and then miss one.
    """
    for attempt in range(3):
        name = f"{trace[:8]}-{attempt}"
        speak(name)
        (line,) = lines_of(server, name)
        if line["traceparent"].split("-")[1] == trace:
            return True
    return False


def test_a_trace_goes_on_in_the_server(traced: RunningServer) -> None:
    with TTSClient(traced.grpc_url) as client:
        parent = f"00-{TRACE}-b7ad6b7169203331-01"
        assert followed(
            traced, lambda name: list(client.stream("Followed.", seed=1, request_id=name, traceparent=parent)), TRACE
        )
    assert collected(TRACE)


def test_an_asynchronous_stream_has_its_own(traced: RunningServer) -> None:
    other = TRACE[::-1]

    async def speak(name: str) -> None:
        async with AsyncTTSClient(traced.grpc_url) as client:
            async for _ in client.stream("Followed.", request_id=name, traceparent=f"00-{other}-b7ad6b7169203331-01"):
                pass

    assert followed(traced, lambda name: asyncio.run(speak(name)), other)


def test_what_is_not_traced_says_so_by_silence(server: RunningServer) -> None:
    with TTSClient(server.grpc_url) as client:
        list(client.stream("Unseen.", seed=1, request_id="unseen", traceparent=f"00-{TRACE}-b7ad6b7169203331-01"))
    (line,) = lines_of(server, "unseen")
    assert "traceparent" not in line
