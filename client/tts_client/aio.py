"""Streaming speech for asyncio: the same as `tts_client.client`, awaited."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from types import TracebackType

import grpc
import numpy as np
from numpy.typing import NDArray
from tritonclient.grpc import service_pb2, service_pb2_grpc

from tts_client.chunk import Chunk
from tts_client.client import LIVE_TIMEOUT_S
from tts_client.errors import Cancelled, ServerError, TTSError, from_status, unreachable
from tts_client.report import StreamReport
from tts_client.wire import CHANNEL_OPTIONS, metadata, speech_chunk, speech_request


async def _held_open(
    request: service_pb2.ModelInferRequest, done: asyncio.Event
) -> AsyncIterator[service_pb2.ModelInferRequest]:
    """The one request, and then silence until done; why: `tts_client.client._held_open`."""
    yield request
    await done.wait()


class AsyncSpeechStream(AsyncIterator[Chunk]):
    """Chunks of one request, in order, as they arrive; made by `AsyncTTSClient.stream`.

    Closing it, leaving its `async with` block, or cancelling the task that awaits it cancels the request.
    """

    def __init__(
        self, client: AsyncTTSClient, request: service_pb2.ModelInferRequest, timeout: float | None, traceparent: str
    ) -> None:
        self._client = client
        self._chunks: list[Chunk] = []
        self._closed = False
        self._sent = time.perf_counter()
        self._done = asyncio.Event()
        self._call = client.stub.ModelStreamInfer(
            _held_open(request, self._done), timeout=timeout, metadata=metadata(traceparent)
        )
        self._responses = self._call.__aiter__()

    async def __anext__(self) -> Chunk:
        """The next chunk. Raises a TTSError, Cancelled after `close` among them."""
        if self._closed:
            raise Cancelled("the stream was closed")
        if self._done.is_set():
            raise StopAsyncIteration
        try:
            response = await anext(self._responses)
        except StopAsyncIteration:
            raise ServerError("the server ended the stream before its final chunk: look at its log") from None
        except asyncio.CancelledError:
            if not self._closed:
                raise  # the task is being cancelled, and grpc has cancelled the request with it
            raise Cancelled("the stream was closed") from None
        except grpc.RpcError as error:
            self._done.set()
            raise await self._client.explain(error, len(self._chunks)) from None
        try:
            chunk = speech_chunk(response, len(self._chunks), time.perf_counter() - self._sent)
        except TTSError:
            await self._finish()
            raise
        self._chunks.append(chunk)
        if chunk.final:
            await self._finish()
        return chunk

    async def _finish(self) -> None:
        self._done.set()
        await self._call.code()

    @property
    def report(self) -> StreamReport:
        """How the stream went, over what has arrived so far."""
        return StreamReport.of(self._chunks)

    def close(self) -> None:
        """Cancel the request, unless it is finished. The server frees its slot within one step."""
        if not self._done.is_set():
            self._closed = True
            self._call.cancel()
            self._done.set()

    async def __aenter__(self) -> AsyncSpeechStream:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class AsyncTTSClient:
    """A connection to a server; streams share it. Make it inside the event loop that uses it."""

    def __init__(self, url: str = "localhost:8001", model: str = "tts") -> None:
        self.url = url
        self.model = model
        self._channel = grpc.aio.insecure_channel(url, options=CHANNEL_OPTIONS)
        self.stub = service_pb2_grpc.GRPCInferenceServiceStub(self._channel)

    def stream(
        self,
        text: str,
        *,
        reference_wav: NDArray[np.float32] | None = None,
        reference_text: str | None = None,
        request_id: str = "",
        traceparent: str = "",
        timeout: float | None = None,
        **params: float | int | str | bool,
    ) -> AsyncSpeechStream:
        """Send a text; returns at once with the stream of its audio. Arguments and errors: `TTSClient.stream`."""
        request = speech_request(self.model, text, params, reference_wav, reference_text, request_id)
        return AsyncSpeechStream(self, request, timeout, traceparent)

    async def check(self, timeout: float = 5.0) -> None:
        """Connect and ask for the model. Raises ServerUnreachable, or Unavailable if the model is not ready."""
        try:
            answer = await self.stub.ModelReady(service_pb2.ModelReadyRequest(name=self.model), timeout=timeout)
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
                raise unreachable(self.url) from None
            raise await self.explain(error, 0) from None
        if not answer.ready:
            raise from_status(grpc.StatusCode.NOT_FOUND, f"model {self.model!r} is not ready")

    async def explain(self, error: grpc.RpcError, chunks: int) -> TTSError:
        """The TTSError for a failed call after so many chunks, as `TTSClient.explain`."""
        if error.code() is grpc.StatusCode.UNAVAILABLE and not await self._is_live():
            return unreachable(self.url, chunks)
        return from_status(error.code(), error.details() or "")

    async def _is_live(self) -> bool:
        try:
            answer = await self.stub.ServerLive(service_pb2.ServerLiveRequest(), timeout=LIVE_TIMEOUT_S)
        except grpc.RpcError:
            return False
        return bool(answer.live)

    async def close(self) -> None:
        """Close the connection; streams still open are cancelled."""
        await self._channel.close()

    async def __aenter__(self) -> AsyncTTSClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
