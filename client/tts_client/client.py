"""Streaming speech, synchronous."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from types import TracebackType

import grpc
import numpy as np
from numpy.typing import NDArray
from tritonclient.grpc import service_pb2, service_pb2_grpc

from tts_client.chunk import Chunk
from tts_client.errors import Cancelled, ServerError, TTSError, from_status, unreachable
from tts_client.report import StreamReport
from tts_client.wire import CHANNEL_OPTIONS, metadata, speech_chunk, speech_request

LIVE_TIMEOUT_S = 2.0


def _held_open(
    request: service_pb2.ModelInferRequest, done: threading.Event
) -> Iterator[service_pb2.ModelInferRequest]:
    """The one request, and then silence until done: tritonserver 2.51 crashes when a stream whose sending side has
    been closed is cancelled (seen within ten such cancellations; held open, never)."""
    yield request
    done.wait()


class SpeechStream(Iterator[Chunk]):
    """Chunks of one request, in order, as they arrive; made by `TTSClient.stream`.

    Closing it (explicitly, at the end of a `with` block, or by dropping it) cancels the request if it is not finished.
    """

    def __init__(
        self, client: TTSClient, request: service_pb2.ModelInferRequest, timeout: float | None, traceparent: str
    ) -> None:
        self._client = client
        self._chunks: list[Chunk] = []
        self._sent = time.perf_counter()
        self._done = threading.Event()
        self._closed = False
        # One stream a request: an error then ends only its own request, and cancelling needs no bookkeeping.
        self._call = client.stub.ModelStreamInfer(
            _held_open(request, self._done), timeout=timeout, metadata=metadata(traceparent)
        )

    def __next__(self) -> Chunk:
        """The next chunk. Raises a TTSError, Cancelled after `close` among them."""
        if self._closed:
            raise Cancelled("the stream was closed")
        if self._done.is_set():
            raise StopIteration
        try:
            response = next(self._call)
        except StopIteration:
            raise ServerError("the server ended the stream before its final chunk: look at its log") from None
        except grpc.RpcError as error:
            self._done.set()
            raise self._client.explain(error, len(self._chunks)) from None
        try:
            chunk = speech_chunk(response, len(self._chunks), time.perf_counter() - self._sent)
        except TTSError:
            self._finish()
            raise
        self._chunks.append(chunk)
        if chunk.final:
            self._finish()
        return chunk

    def _finish(self) -> None:
        self._done.set()
        with suppress(grpc.RpcError):  # all that mattered has arrived
            deque(self._call, maxlen=0)

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

    def __enter__(self) -> SpeechStream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "_call"):
            self.close()


class TTSClient:
    """A connection to a server; streams share it, and may run at once from many threads.

    url: "host:port" of the server's gRPC endpoint. model: the name under which the voice is served.
    Nothing is sent before the first request; `check` tells whether there is someone to talk to.
    """

    def __init__(self, url: str = "localhost:8001", model: str = "tts") -> None:
        self.url = url
        self.model = model
        self._channel = grpc.insecure_channel(url, options=CHANNEL_OPTIONS)
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
    ) -> SpeechStream:
        """Send a text; returns at once with the stream of its audio.

        reference_wav: float32 [samples] at the voice's sample rate, with reference_text what is said in it, for voices
        that can clone. request_id: the request's name in the server's log (default: a random one). traceparent: the
        W3C context of the trace that the request belongs to. timeout: seconds for the whole stream. params: the
        server's request parameters by name (temperature, top_k, top_p, seed, max_seconds, chunk_frames,
        first_chunk_frames, speculation, acceptance, …).
        Raises InvalidArgument for what cannot be sent; all else is raised by the stream.
        """
        request = speech_request(self.model, text, params, reference_wav, reference_text, request_id)
        return SpeechStream(self, request, timeout, traceparent)

    def check(self, timeout: float = 5.0) -> None:
        """Connect and ask for the model. Raises ServerUnreachable, or Unavailable if the model is not ready."""
        try:
            answer = self.stub.ModelReady(service_pb2.ModelReadyRequest(name=self.model), timeout=timeout)
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
                raise unreachable(self.url) from None
            raise self.explain(error, 0) from None
        if not answer.ready:
            raise from_status(grpc.StatusCode.NOT_FOUND, f"model {self.model!r} is not ready")

    def explain(self, error: grpc.RpcError, chunks: int) -> TTSError:
        """The TTSError for a failed call after so many chunks.

        "Unavailable" is the status of a full server and of none at all, so it is asked whether it is there.
        """
        if error.code() is grpc.StatusCode.UNAVAILABLE and not self._is_live():
            return unreachable(self.url, chunks)
        return from_status(error.code(), error.details() or "")

    def _is_live(self) -> bool:
        try:
            return bool(self.stub.ServerLive(service_pb2.ServerLiveRequest(), timeout=LIVE_TIMEOUT_S).live)
        except grpc.RpcError:
            return False

    def close(self) -> None:
        """Close the connection; streams still open are cancelled."""
        self._channel.close()

    def __enter__(self) -> TTSClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
