"""Load with locust: every request is reported twice, as "first chunk" and as "last chunk".

    locust -f loadtest/locustfile.py --host localhost:8001                       # web UI on http://localhost:8089
    locust -f loadtest/locustfile.py --host localhost:8001 --headless -u 10 -r 10 -t 30s --texts short

Keep to 25 users a process (`--processes 2` for more) and give each more to do: with 100 users a process adds some 50 ms
of its own. `--rate` is each user's requests a second; a user who still listens when the next is due is late with it.
"""

from __future__ import annotations

import itertools
import time
from typing import Any

import grpc.experimental.gevent
from locust import User, constant_throughput, events, task

grpc.experimental.gevent.init_gevent()  # before the first channel: locust's users are gevent's, not threads

from loadtest.texts import KINDS, load_texts  # noqa: E402
from tts_client import TTSClient, TTSError  # noqa: E402


@events.init_command_line_parser.add_listener
def _arguments(parser: Any) -> None:
    parser.add_argument("--texts", choices=KINDS, default="mixed", help="lengths of the texts")
    parser.add_argument("--rate", type=float, default=0.5, help="requests a second of each user")


@events.init.add_listener
def _connect(environment: Any, **_: Any) -> None:
    """One channel for all users of this process."""
    environment.tts = TTSClient(environment.host or "localhost:8001")
    environment.tts_texts = itertools.cycle(load_texts(environment.parsed_options.texts))


class Listener(User):
    """Asks for a text, listens to its end, asks for the next."""

    def wait_time(self) -> float:
        options = self.environment.parsed_options
        return float(constant_throughput(options.rate)(self))

    @task
    def listen(self) -> None:
        text = next(self.environment.tts_texts)
        started = time.perf_counter()
        first = None
        size = 0
        error: TTSError | None = None
        try:
            for chunk in self.environment.tts.stream(text.text, seed=text.seed):
                if chunk.pcm.size and first is None:
                    first = self._tell("first chunk", started, chunk.pcm.nbytes, None)
                size += chunk.pcm.nbytes
        except TTSError as raised:
            error = raised
        if first is None and error is not None:
            self._tell("first chunk", started, 0, error)
        self._tell("last chunk", started, size, error)

    def _tell(self, name: str, started: float, size: int, error: TTSError | None) -> float:
        milliseconds = 1e3 * (time.perf_counter() - started)
        self.environment.events.request.fire(
            request_type="TTS", name=name, response_time=milliseconds, response_length=size, exception=error, context={}
        )
        return milliseconds
