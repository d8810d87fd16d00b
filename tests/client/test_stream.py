"""The client against the real server: what arrives, what goes wrong, and who holds what afterwards."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from backends.launcher import RunningServer, running_server
from backends.launcher.server import free_port
from tts_client import (
    AsyncTTSClient,
    Cancelled,
    Chunk,
    DeadlineExceeded,
    InvalidArgument,
    ServerUnreachable,
    SpeechStream,
    TTSClient,
    Unavailable,
)

TEXT = "The birch canoe slid on the smooth planks."
LONG = "This goes on for a long while, and then for longer still. " * 20


def audio(chunks: list[Chunk]) -> np.ndarray:
    return np.concatenate([chunk.pcm for chunk in chunks])


def long_stream(client: TTSClient) -> SpeechStream:
    """A stream that is being spoken and has far to go."""
    stream = client.stream(LONG, seed=1, max_seconds=50.0)
    next(stream)
    return stream


def test_chunks_come_in_order_and_the_last_is_final(client: TTSClient) -> None:
    stream = client.stream(TEXT, seed=1, max_seconds=1.0, first_chunk_frames=4, chunk_frames=8)
    chunks = list(stream)
    assert len(chunks) > 2
    assert [chunk.index for chunk in chunks] == list(range(len(chunks)))
    assert [chunk.final for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    assert [chunk.finish_reason for chunk in chunks[:-1]] == [None] * (len(chunks) - 1)
    assert chunks[-1].finish_reason in ("stop", "length")
    assert all(early.received_s <= late.received_s for early, late in pairwise(chunks))
    assert chunks[0].pcm.size == 4 * 320
    assert all(chunk.sample_rate == 16_000 and chunk.pcm.dtype == np.float32 for chunk in chunks)
    assert chunks[0].timings["first_chunk_ms"] > 0
    assert chunks[-1].timings["total_ms"] >= chunks[0].timings["first_chunk_ms"]
    assert next(stream, None) is None
    report = stream.report
    assert report.audio_s == pytest.approx(audio(chunks).size / 16_000)
    assert report.finish_reason == chunks[-1].finish_reason
    # The server's clock starts later and stops earlier than ours.
    assert report.first_chunk_s is not None
    assert 1e3 * report.first_chunk_s > chunks[0].timings["first_chunk_ms"]


def test_asyncio_and_threads_hear_the_same(client: TTSClient) -> None:
    texts = [TEXT, "Glue the sheet to the dark blue background."]

    async def together() -> list[list[Chunk]]:
        async with AsyncTTSClient(client.url) as connection:
            await connection.check()
            return await asyncio.gather(*(listen(connection, text) for text in texts))

    async def listen(connection: AsyncTTSClient, text: str) -> list[Chunk]:
        return [chunk async for chunk in connection.stream(text, seed=5, max_seconds=1.0)]

    with ThreadPoolExecutor(2) as pool:
        threads = list(pool.map(lambda text: list(client.stream(text, seed=5, max_seconds=1.0)), texts))
    for one, other in zip(threads, asyncio.run(together()), strict=True):
        np.testing.assert_array_equal(audio(one), audio(other))
    assert not np.array_equal(audio(threads[0]), audio(threads[1]))


def test_closing_a_stream_cancels_it(client: TTSClient, empty: Callable[[], None]) -> None:
    stream = long_stream(client)
    stream.close()
    with pytest.raises(Cancelled):
        list(stream)
    empty()
    with long_stream(client):
        pass
    empty()


def test_dropping_a_stream_cancels_it(client: TTSClient, empty: Callable[[], None]) -> None:
    for _ in client.stream(LONG, seed=1, max_seconds=50.0):
        break
    empty()


def test_asyncio_close_and_task_cancellation_cancel_the_request(client: TTSClient, empty: Callable[[], None]) -> None:
    async def close() -> None:
        async with AsyncTTSClient(client.url) as connection:
            async with connection.stream(LONG, max_seconds=50.0) as stream:
                await anext(stream)
            with pytest.raises(Cancelled):
                async for _ in stream:
                    pass

    async def cancel_task() -> None:
        async with AsyncTTSClient(client.url) as connection:
            started = asyncio.Event()

            async def listen() -> None:
                async for _ in connection.stream(LONG, max_seconds=50.0):
                    started.set()

            task = asyncio.create_task(listen())
            await started.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(close())
    empty()
    asyncio.run(cancel_task())
    empty()


def test_a_full_server_is_unavailable(client: TTSClient) -> None:
    async def ask() -> None:
        async with AsyncTTSClient(client.url) as connection:
            async for _ in connection.stream(TEXT):
                pass

    with long_stream(client), long_stream(client):
        with pytest.raises(Unavailable, match="try again later"):
            list(client.stream(TEXT))
        with pytest.raises(Unavailable, match="try again later"):
            asyncio.run(ask())


def test_errors_leave_the_stream_ended_and_the_server_standing(client: TTSClient) -> None:
    """Refusals and cancellations in quick succession: a stream used differently made tritonserver crash in tens."""
    for _ in range(60):
        refused = client.stream(TEXT, temperature=-1.0)
        with pytest.raises(InvalidArgument):
            next(refused)
        assert next(refused, None) is None
        refused.close()
        client.stream(TEXT, seed=2, max_seconds=1.0).close()
        with client.stream(TEXT, seed=2, max_seconds=1.0) as stream, suppress(Unavailable):
            next(stream)  # of two slots, those of streams that were closed a moment ago may still be taken
    client.check()


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("", {}, "text"),
        (TEXT, {"loudness": 3}, "loudness"),
        (TEXT, {"temperature": -1.0}, "temperature must be between"),
        (TEXT, {"top_k": 2**80}, "64 bits"),
        (TEXT, {"top_k": None}, "top_k"),
        ("\ud800", {}, "not Unicode"),
        ("x" * 100_000, {}, "limit"),
        (TEXT, {"reference_wav": np.zeros(16_000, np.float32), "reference_text": "nothing"}, "reference"),
    ],
)
def test_wrong_requests_are_invalid(client: TTSClient, text: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        list(client.stream(text, **options))


def test_an_unknown_model_is_unavailable(small_server: RunningServer) -> None:
    with TTSClient(small_server.grpc_url, model="nobody") as connection:
        with pytest.raises(Unavailable, match="nobody"):
            connection.check()
        with pytest.raises(Unavailable, match="nobody"):
            list(connection.stream(TEXT))


def test_a_timeout_ends_the_stream(client: TTSClient) -> None:
    with pytest.raises(DeadlineExceeded):
        list(client.stream(LONG, max_seconds=50.0, timeout=0.001))


def test_no_server_is_said_so() -> None:
    url = f"localhost:{free_port()}"
    with TTSClient(url) as connection:
        for attempt in (connection.check, lambda: list(connection.stream(TEXT))):
            with pytest.raises(ServerUnreachable, match=rf"no server at {url}: is `make serve` running\?"):
                attempt()

    async def ask() -> None:
        async with AsyncTTSClient(url) as connection:
            await connection.check()

    with pytest.raises(ServerUnreachable, match="make serve"):
        asyncio.run(ask())


def test_a_server_that_dies_mid_stream(small_repository: Path) -> None:
    with running_server(small_repository, warm_up=False) as server, TTSClient(server.grpc_url) as connection:
        stream = long_stream(connection)
        os.killpg(server.pid, signal.SIGKILL)
        with pytest.raises(ServerUnreachable, match=r"went away after \d+ chunks"):
            list(stream)
