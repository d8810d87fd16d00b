"""Our own servers: settings reach the engine, the twin answers once with the same audio; /metrics is read right."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from backends.launcher import RunningServer
from backends.launcher.server import LauncherError
from backends.launcher.settings import parse_settings, with_settings
from loadtest.open_loop import run_open
from loadtest.servers import ServerError, mean_batches, module_counts, serve
from tts_client import TTSClient

TEXTS = ["The birch canoe slid on the smooth planks.", "One. And then two."]
METRICS = """# TYPE tts_module_runs_total counter
tts_module_runs_total{model="tts",module="decode"} 40
tts_module_runs_total{model="tts",module="vocoder"} 8
tts_module_batch_items_total{model="tts",module="decode"} 100
tts_module_batch_items_total{module="vocoder",model="tts"} 12.0
tts_audio_seconds_total{model="tts"} 5
"""


def test_the_twin_through_triton(server: RunningServer, repository: Path) -> None:
    """One final chunk a request, the pooled server's tokens, its audio within the vocoder's tolerance; others queue."""
    with serve({"serving": "batched", "capacity": "2"}, repository) as twin:
        with TTSClient(server.grpc_url) as pooled_client, TTSClient(twin.grpc_url) as twin_client:
            for seed, text in enumerate(TEXTS, 5):
                pooled = list(pooled_client.stream(text, seed=seed, max_seconds=3))
                (whole,) = twin_client.stream(text, seed=seed, max_seconds=3)
                assert len(pooled) > 1 and whole.final
                assert whole.finish_reason == pooled[-1].finish_reason
                assert whole.timings["frames"] == pooled[-1].timings["frames"]
                expected = np.concatenate([chunk.pcm for chunk in pooled])
                np.testing.assert_allclose(whole.pcm, expected, rtol=0, atol=1e-5)
        outcomes = [record.outcome for record in run_open(twin.grpc_url, "short", [0.0] * 3, max_seconds=2)]
        assert outcomes.count("rejected") == 1


def test_a_server_that_cannot_start_says_why(repository: Path) -> None:
    with pytest.raises(ServerError, match="serving"), serve({"serving": "neither"}, repository):
        pass


def test_settings_replace_those_of_the_model(repository: Path, tmp_path: Path) -> None:
    copy = with_settings(repository / "tts", {"capacity": "3", "batch_window_ms": "5"}, tmp_path)
    text = (copy / "tts" / "config.pbtxt").read_text()
    assert text.count('"capacity"') == 1 and 'string_value: "3"' in text and 'key: "batch_window_ms"' in text
    assert (copy / "tts" / "1" / "voice.json").exists()


@pytest.mark.parametrize("pair", ["capacity", "capacity=", 'capacity="3" } } evil', "=3"])
def test_what_is_no_setting_is_refused(pair: str) -> None:
    with pytest.raises(LauncherError, match="NAME=VALUE"):
        parse_settings([pair])


def test_batch_sizes_from_metrics() -> None:
    counts = module_counts(METRICS)
    assert counts == {"decode": (100.0, 40.0), "vocoder": (12.0, 8.0)}
    assert mean_batches({}, counts) == {"decode": 2.5, "vocoder": 1.5}
    assert mean_batches({"decode": (60.0, 30.0), "vocoder": (12.0, 8.0)}, counts) == {"decode": 4.0}
    assert module_counts("# nothing\n") == {}
