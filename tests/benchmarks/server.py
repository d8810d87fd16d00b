"""The same load through tritonserver and the client."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import numpy as np

from backends.launcher import running_server
from tests.benchmarks.load import Stream, closed_loop
from tests.benchmarks.rows import LEVELS, Row, first_chunks, level_texts, row
from tts_client import TTSClient
from tts_engine.voice import Voice


def client_stream(client: TTSClient) -> Stream:
    """Callers over gRPC."""

    def stream(text: str, seed: int) -> Iterator[np.ndarray]:
        for chunk in client.stream(text, seed=seed):
            yield chunk.pcm

    return stream


def through_triton(voice: Voice, texts: list[str], args: argparse.Namespace) -> list[Row]:
    """Rows of a server of its own on the voice's repository; LauncherError says why it cannot start."""
    rows = []
    with running_server(args.voice.resolve().parents[1]) as server, TTSClient(server.grpc_url) as client:
        stream = client_stream(client)
        closed_loop(stream, texts[:4], 4, "warm-up")
        rows += first_chunks("triton", stream, texts, voice, 8 if args.quick else 24)
        for concurrent in LEVELS:
            chosen = level_texts(texts, concurrent, args.quick)
            rows.append(
                row("triton", closed_loop(stream, chosen, concurrent, f"triton: {concurrent} at a time"), voice)
            )
    return rows
