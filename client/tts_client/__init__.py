"""Streaming client for text-to-speech models on NVIDIA Triton Inference Server.

    with TTSClient("localhost:8001") as client:
        for chunk in client.stream("Hello there.", seed=7):
            play(chunk.pcm)

`AsyncTTSClient` is the same with `async`. Whatever goes wrong is a `TTSError` with one sentence that says what to do.
"""

from tts_client.aio import AsyncSpeechStream, AsyncTTSClient
from tts_client.chunk import Chunk
from tts_client.client import SpeechStream, TTSClient
from tts_client.errors import (
    Cancelled,
    DeadlineExceeded,
    InvalidArgument,
    ServerError,
    ServerUnreachable,
    TTSError,
    Unavailable,
)
from tts_client.report import StreamReport

__all__ = [
    "AsyncSpeechStream",
    "AsyncTTSClient",
    "Cancelled",
    "Chunk",
    "DeadlineExceeded",
    "InvalidArgument",
    "ServerError",
    "ServerUnreachable",
    "SpeechStream",
    "StreamReport",
    "TTSClient",
    "TTSError",
    "Unavailable",
]
