"""Triton <-> engine: requests in, audio chunks out. All synthesis is in tts_engine, which knows nothing of Triton."""

from __future__ import annotations

import json
import logging
import sys
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import triton_python_backend_utils as pb_utils
import wire
from metrics import Metrics

from tts_engine.chunk import AudioChunk
from tts_engine.engine import Handle
from tts_engine.errors import InvalidRequest, RequestError
from tts_engine.request import SamplingParams, SpeechRequest
from tts_engine.twin import ENGINES
from tts_engine.voice import Voice

logger = logging.getLogger(__name__)
FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
WARM_UP = "The quick brown fox jumps over the lazy dog."


class Stream:
    """One open request: its sender, what it asked for, its deadline."""

    def __init__(self, request: Any, sample_rate: int) -> None:
        self.sender = request.get_response_sender()
        self.wanted = set(request.requested_output_names())
        self.sample_rate = sample_rate
        microseconds = request.timeout()
        self.deadline = time.monotonic() + microseconds / 1e6 if microseconds else float("inf")
        self.expired = False
        self.handle: Handle | None = None
        self.samples = 0  # sent so far
        self.first = self.last = 0.0  # time.monotonic() of the first and the latest chunk with sound

    def refuse(self, message: str, code: int) -> None:
        self.sender.send(pb_utils.InferenceResponse(error=pb_utils.TritonError(message, code)), flags=FINAL)

    def send(self, chunk: AudioChunk) -> None:
        """FINAL rides on the last chunk: an empty one more would reach clients as a junk response."""
        flags = FINAL if chunk.final else 0
        if chunk.finish_reason == "error":
            self.refuse(chunk.error or "synthesis failed", pb_utils.TritonError.INTERNAL)
        elif self.expired and chunk.final:
            self.refuse("the request's timeout passed before its audio was done", pb_utils.TritonError.UNAVAILABLE)
        elif chunk.finish_reason == "cancelled":
            self.sender.send(flags=FINAL)
        else:
            tensors = wire.outputs(chunk, self.sample_rate, self.wanted)
            response = pb_utils.InferenceResponse([pb_utils.Tensor(name, array) for name, array in tensors.items()])
            self.sender.send(response, flags=flags)


class TritonPythonModel:
    """Decoupled: `execute` checks and enqueues; the engine's loop sends."""

    @staticmethod
    def auto_complete_config(config: Any) -> Any:
        """Inputs, outputs and the decoupled policy come from the code that reads them."""
        config.set_max_batch_size(0)
        config.set_model_transaction_policy({"decoupled": True})
        for tensor in wire.MODEL_CONFIG_INPUTS:
            config.add_input(dict(tensor))
        for tensor in wire.MODEL_CONFIG_OUTPUTS:
            config.add_output(dict(tensor))
        return config

    def initialize(self, args: dict[str, str]) -> None:
        """Load the voice in the model's version folder and speak once, so that the first caller finds all warm."""
        # The loop and execute() share one interpreter: hand over quickly, or a new request waits 5 ms a switch.
        sys.setswitchinterval(0.0005)
        parameters = json.loads(args["model_config"]).get("parameters", {})
        config = wire.engine_config(parameters)
        voice = Voice.load(Path(args["model_repository"]) / args["model_version"])
        self._engine = ENGINES[config.serving](voice, config, poll=self._poll)
        self._streams: set[Stream] = set()
        self._metrics = Metrics(args["model_name"])
        self._reporting = threading.Lock()
        self._held = (-1, -1)
        for _ in self._engine.stream(SpeechRequest(WARM_UP, SamplingParams(max_seconds=2.0, seed=0))):
            pass
        self._report()
        self._engine.start()

    def execute(self, requests: list[Any]) -> None:
        for request in requests:
            stream = Stream(request, self._engine.voice.sample_rate)
            try:
                tensors = {tensor.name(): tensor.as_numpy() for tensor in request.inputs()}
                speech = wire.speech_request(tensors, request.parameters())
                self._streams.add(stream)
                stream.handle = self._engine.submit(speech, partial(self._send, stream))
            except Exception as error:  # whatever it is, it is this request's only
                self._streams.discard(stream)
                self._refuse(stream, error)

    def finalize(self) -> None:
        """Called once every stream has ended, or when the server gives up waiting: what is left is cancelled."""
        self._engine.stop()

    def _refuse(self, stream: Stream, error: Exception) -> None:
        if isinstance(error, InvalidRequest):
            stream.refuse(str(error), pb_utils.TritonError.INVALID_ARG)
            self._metrics.outcome("invalid")
        elif isinstance(error, RequestError):  # no capacity, or the engine has stopped
            stream.refuse(str(error), pb_utils.TritonError.UNAVAILABLE)
            self._metrics.outcome("rejected")
        else:
            logger.error("a request failed before it was queued", exc_info=error)
            stream.refuse(f"the request could not be read: {error}", pb_utils.TritonError.INTERNAL)
            self._metrics.outcome("error")
        self._report()

    def _send(self, stream: Stream, chunk: AudioChunk) -> None:
        try:
            stream.send(chunk)
        finally:
            if chunk.final:
                self._streams.discard(stream)
        if chunk.index == 0 and chunk.timings and chunk.timings.first_chunk_ms is not None:
            self._metrics.first_chunk(chunk.timings.first_chunk_ms / 1e3)
        if len(chunk.pcm):
            now = time.monotonic()
            if stream.samples:
                heard = stream.samples / stream.sample_rate
                self._metrics.later_chunk(now - stream.last, underrun=now - stream.first > heard)
            stream.first, stream.last = stream.first or now, now
            stream.samples += len(chunk.pcm)
        if chunk.final:
            self._metrics.outcome("timeout" if stream.expired else chunk.finish_reason or "stop")
            if chunk.timings:
                self._metrics.audio(chunk.timings.audio_s)
                self._metrics.speculation(chunk.timings)
            self._report()

    def _poll(self) -> None:
        """Once an engine step: clients that left, deadlines that passed."""
        self._report()
        now = time.monotonic()
        for stream in list(self._streams):
            if stream.handle is None:
                continue
            stream.expired = stream.expired or now > stream.deadline
            if stream.expired or stream.sender.is_cancelled():
                stream.handle.cancel()

    def _report(self) -> None:
        """Tell /metrics what is held, where that has changed; under a lock, so that the last to tell is right."""
        with self._reporting:
            stats = self._engine.stats()
            self._metrics.modules(stats)
            held = (stats.active, stats.slots_used)
            if held != self._held:
                self._metrics.held(*held)
                self._held = held
