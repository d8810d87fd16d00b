"""One real tritonserver for the whole session, on a tiny random voice (or on TTS_VOICE=model_repository/tts/1)."""

from __future__ import annotations

import json
import os
import shutil
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from backends.launcher import RunningServer, running_server
from tests.engine.tiny_voice import CODEBOOK, write_drafts, write_voice
from tests.server.wire import Speaker
from tts_engine.prompt import Vocabulary

ROOT = Path(__file__).resolve().parents[2]
CAPACITY = 64
WORDPIECES = 4200


def server_voice(directory: Path) -> Path:
    """Tiny random graphs under the real text frontend: the symbols and wordpieces of the demo voice."""
    checkpoints = ROOT / "checkpoints" / "rms"
    phonemes = json.loads((checkpoints / "lm" / "phonemes.json").read_text())
    wordpiece = (checkpoints / "prosody" / "wordpiece.json").read_text()
    vocabulary = Vocabulary.from_phonemes(phonemes, CODEBOOK)
    return write_drafts(write_voice(directory, vocabulary, wordpiece, WORDPIECES), vocabulary)


@pytest.fixture(scope="session")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model repository as ours, with room for the concurrency tests."""
    folder = tmp_path_factory.mktemp("repository")
    model = folder / "tts"
    model.mkdir()
    config = (ROOT / "model_repository" / "tts" / "config.pbtxt").read_text()
    assert '"32"' in config, "the default capacity changed; adapt this fixture"
    (model / "config.pbtxt").write_text(config.replace('"32"', f'"{CAPACITY}"'))
    if voice := os.environ.get("TTS_VOICE"):
        shutil.copytree(ROOT / voice, model / "1")
    else:
        server_voice(model / "1")
    return folder


@pytest.fixture(scope="session")
def server(repository: Path) -> Iterator[RunningServer]:
    with running_server(repository) as running:
        yield running


class Gauges:
    """The server's own metrics."""

    def __init__(self, server: RunningServer) -> None:
        self._url = f"http://{server.metrics_url}/metrics"

    def read(self) -> dict[str, float]:
        with urllib.request.urlopen(self._url) as answer:
            lines = answer.read().decode().splitlines()
        return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith("tts_")}

    def outcome(self, name: str) -> float:
        return self.read().get(f'tts_requests_total{{model="tts",outcome="{name}"}}', 0.0)

    def wait_outcome(self, name: str, count: float, seconds: float = 20) -> None:
        """Wait until so many requests have ended so: metrics are told a tenth of a second later."""
        self._wait(lambda: self.outcome(name), count, seconds)

    def wait_held(self, items: int, slots: int, seconds: float = 20) -> None:
        """Wait until the server holds so many requests and slots: gauges and clients are told one after the other."""

        def held() -> list[float]:
            values = self.read()
            return [values[f'{name}{{model="tts"}}'] for name in ("tts_pool_items", "tts_kv_slots_used")]

        self._wait(held, [items, slots], seconds)

    def _wait(self, look: Callable[[], object], wanted: object, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while (seen := look()) != wanted:
            assert time.monotonic() < deadline, f"the metrics say {seen}, not {wanted}"
            time.sleep(0.01)

    def wait_empty(self) -> None:
        """Pool empty and slots free; at two looks, as a request that has just come is told a little later."""
        self.wait_held(0, 0)
        time.sleep(0.2)
        self.wait_held(0, 0)


@pytest.fixture(scope="session")
def gauges(server: RunningServer) -> Gauges:
    return Gauges(server)


@pytest.fixture
def speaker(server: RunningServer, gauges: Gauges) -> Iterator[Speaker]:
    """A connection; after each test the pool is empty, the slots are free and the next request is fine."""
    with Speaker(server.grpc_url) as connection:
        yield connection
    gauges.wait_empty()
    with Speaker(server.grpc_url) as fresh:
        assert fresh.say("Fine.", max_seconds=0.2).finals == 1
