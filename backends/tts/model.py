"""Triton <-> engine: requests in, audio chunks out. All synthesis is in tts_engine, which knows nothing of Triton."""

from __future__ import annotations

import gc
import json
import logging
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import triton_python_backend_utils as pb_utils
import wire
from metrics import Metrics
from stream import Stream
from watch import Watch

from tts_engine.chunk import AudioChunk, Timings
from tts_engine.errors import InvalidRequest, RequestError
from tts_engine.request import SamplingParams, SpeechRequest
from tts_engine.twin import ENGINES
from tts_engine.voice import Voice

logger = logging.getLogger(__name__)
LOGGED = ("queue_ms", "first_chunk_ms", "total_ms", "audio_s", "sentences")  # of a request's timings
WARM_UP = "The quick brown fox jumps over the lazy dog."


class TritonPythonModel:
    """Decoupled: `execute` checks and enqueues; the engine's loop sends."""

    @staticmethod
    def auto_complete_config(config: Any) -> Any:
        """Inputs, outputs and the policies come from the code that reads them.

        Requests that arrive while `execute` is at work come together in its next call: each call is a round trip
        between two processes.
        """
        config.set_max_batch_size(wire.MAX_CALL_REQUESTS)
        config.set_dynamic_batching()
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
        self._engine = ENGINES[config.serving](voice, config)
        self._metrics = Metrics(args["model_name"])
        for _ in self._engine.stream(SpeechRequest(WARM_UP, SamplingParams(max_seconds=2.0, seed=0))):
            pass
        self._metrics.tell(0, 0, self._engine.stats())
        self._watch = Watch(self._report)
        # What is loaded stays: a full collection over it would hold up everyone by 16 ms.
        gc.collect()
        gc.freeze()
        self._engine.start()

    def execute(self, requests: list[Any]) -> None:
        for request in requests:
            stream = Stream(request, self._engine.voice.sample_rate)
            try:
                tensors = {tensor.name(): tensor.as_numpy() for tensor in request.inputs()}
                speech = wire.speech_request(tensors, request.parameters())
                self._watch.add(stream)
                stream.handle = self._engine.submit(speech, partial(self._send, stream))
            except Exception as error:  # whatever it is, it is this request's only
                self._refuse(stream, error)

    def finalize(self) -> None:
        """Called once every stream has ended, or when the server gives up waiting: what is left is cancelled."""
        self._watch.stop()
        self._engine.stop()
        # Metrics and response senders must go back while the server listens: later, as the interpreter ends, each
        # of them crashes the process.
        self.__dict__.clear()
        gc.collect()

    def _refuse(self, stream: Stream, error: Exception) -> None:
        message = str(error)
        if isinstance(error, InvalidRequest):
            outcome, code = "invalid", pb_utils.TritonError.INVALID_ARG
        elif isinstance(error, RequestError):  # no capacity, or the engine has stopped
            outcome, code = "rejected", pb_utils.TritonError.UNAVAILABLE
        else:
            logger.error("a request failed before it was queued", exc_info=error)
            message = f"the request could not be read: {error}"
            outcome, code = "error", pb_utils.TritonError.INTERNAL
        self._ended(stream, outcome, error=message)
        stream.refuse(message, code)

    def _send(self, stream: Stream, chunk: AudioChunk) -> None:
        try:
            stream.send(chunk)
        except BaseException:
            if chunk.final:
                self._watch.remove(stream)
            raise
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
            outcome = "timeout" if stream.expired else chunk.finish_reason or "stop"
            if chunk.timings:
                self._metrics.ended(chunk.timings)
            self._ended(stream, outcome, chunk.timings, chunk.error)

    def _ended(self, stream: Stream, outcome: str, timings: Timings | None = None, error: str | None = None) -> None:
        """Count it, and write the request's one line into the server's log: JSON, by which it can be found again."""
        self._metrics.outcome(outcome)
        self._watch.remove(stream)  # once counted: /metrics shows an empty pool when all are
        line: dict[str, Any] = {"event": "request", "id": stream.request_id, "outcome": outcome}
        if stream.trace:
            line |= json.loads(stream.trace)
        if error:
            line["error"] = error
        if timings:
            line |= {name: value for name, value in timings.to_dict().items() if name in LOGGED}
        pb_utils.Logger.log_info(json.dumps(line))

    def _report(self) -> None:
        """Tell /metrics what has happened and what is held; in the watch's thread, where it holds up no audio."""
        streams = len(self._watch)
        if self._metrics.due(idle=not streams):
            self._metrics.tell(streams, self._engine.slots_used, self._engine.stats())
