"""A real server of our own with two slots, so that a client can find it full."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from backends.launcher import RunningServer, running_server
from tests.server.conftest import Gauges, server_voice
from tts_client import TTSClient

CAPACITY = 2
CONFIG = f"""backend: "tts"
instance_group [{{ kind: KIND_CPU, count: 1 }}]
parameters {{ key: "capacity" value {{ string_value: "{CAPACITY}" }} }}
parameters {{ key: "max_lead_seconds" value {{ string_value: "20" }} }}
parameters {{ key: "threads" value {{ string_value: "1" }} }}
"""


@pytest.fixture(scope="session")
def small_repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("small-repository")
    server_voice(folder / "tts" / "1")
    (folder / "tts" / "config.pbtxt").write_text(CONFIG)
    return folder


@pytest.fixture(scope="session")
def small_server(small_repository: Path) -> Iterator[RunningServer]:
    with running_server(small_repository) as running:
        yield running


@pytest.fixture
def empty(small_server: RunningServer) -> Callable[[], None]:
    """Waits until the server holds nothing any more; fails if it keeps a slot."""
    return Gauges(small_server).wait_empty


@pytest.fixture
def client(small_server: RunningServer, empty: Callable[[], None]) -> Iterator[TTSClient]:
    """A client; after each test the server holds nothing and speaks."""
    with TTSClient(small_server.grpc_url) as connection:
        yield connection
    empty()
    with TTSClient(small_server.grpc_url) as fresh:
        assert sum(chunk.pcm.size for chunk in fresh.stream("Fine.", seed=1, max_seconds=0.2)) > 0
