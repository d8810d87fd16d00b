"""The real server over gRPC: what is asked for arrives, alone, in company and five hundred times in a row."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tritonclient.utils import InferenceServerException

from backends.launcher import RunningServer
from tests.server.conftest import Gauges
from tests.server.wire import Speaker
from tts_engine.engine import Engine
from tts_engine.request import SamplingParams, SpeechRequest
from tts_engine.stats import MODULES
from tts_engine.voice import Voice

TEXT = "The birch canoe slid on the smooth planks."


def test_audio_streams_in_chunks_that_start_small_with_one_final(speaker: Speaker) -> None:
    answer = speaker.say(TEXT, seed=1, max_seconds=2.0, first_chunk_frames=4, chunk_frames=16)
    assert answer.finals == 1
    assert len(answer.chunks) > 2
    assert len(answer.chunks[0]) == 4 * 320
    assert max(len(chunk) for chunk in answer.chunks) <= 16 * 320
    assert answer.chunks[0].dtype == np.float32
    assert np.abs(answer.audio).max() <= 1


def test_other_outputs_come_when_requested(speaker: Speaker) -> None:
    names = ("waveform", "sample_rate", "finish_reason", "timings")
    answer = speaker.say(TEXT, outputs=names, seed=1, max_seconds=0.5)
    last = answer.outputs[-1]
    assert last["sample_rate"].tolist() == [16000]
    assert last["finish_reason"][0] in (b"stop", b"length")
    timings = json.loads(last["timings"][0])
    assert {"queue_ms", "frontend_ms", "prefill_ms", "first_chunk_ms", "total_ms", "decode_steps"} <= set(timings)
    assert 0 < timings["first_chunk_ms"] <= timings["total_ms"]
    only = speaker.say(TEXT, outputs=("waveform",), seed=1, max_seconds=0.2)
    assert all(set(outputs) == {"waveform"} for outputs in only.outputs)


@pytest.mark.parametrize(("proposer", "rule"), [("medusa", "exact"), ("draft", "group"), ("mtp", "top_k")])
def test_speculation_is_chosen_by_request_and_reported(
    speaker: Speaker, gauges: Gauges, proposer: str, rule: str
) -> None:
    params: dict[str, Any] = {"seed": 4, "max_seconds": 1.0, "speculation": proposer, "acceptance": rule, "nodes": 2}
    labels = f'{{model="tts",proposer="{proposer}",rule="{rule}"}}'
    before = gauges.read().get(f"tts_draft_tokens_total{labels}", 0.0)
    timings = json.loads(speaker.say(TEXT, outputs=("waveform", "timings"), **params).outputs[-1]["timings"][0])
    assert (timings["speculation"], timings["acceptance"]) == (proposer, rule)
    lengths = timings["acceptance_lengths"]
    assert timings["total_draft_tokens"] == 2 * sum(lengths) > 0
    assert timings["total_accepted_draft_tokens"] == sum(at * count for at, count in enumerate(lengths))
    assert timings["acceptance_rate"] == pytest.approx(
        timings["total_accepted_draft_tokens"] / timings["total_draft_tokens"], abs=1e-5
    )
    gauges.wait_empty()  # metrics are told after the client is
    told = gauges.read()
    assert told[f"tts_draft_tokens_total{labels}"] - before == timings["total_draft_tokens"]
    assert f"tts_acceptance_length_count{labels}" in told


def test_metrics_tell_what_modules_and_listeners_saw(speaker: Speaker, gauges: Gauges) -> None:
    def told(name: str, **labels: str) -> float:
        inner = ",".join(f'{key}="{value}"' for key, value in {"model": "tts", **labels}.items())
        return gauges.read().get(f"{name}{{{inner}}}", 0.0)

    before = {module: told("tts_module_runs_total", module=module) for module in MODULES}
    answer = speaker.say(TEXT, seed=1, max_seconds=2.0, first_chunk_frames=4, chunk_frames=8)
    gauges.wait_empty()
    for module in MODULES:
        assert told("tts_module_runs_total", module=module) > before[module]
        assert told("tts_module_batch_items_total", module=module) >= told("tts_module_runs_total", module=module)
        assert told("tts_module_seconds_total", module=module) > 0
        assert told("tts_module_items", module=module) == 0
    assert told("tts_chunk_gap_seconds_count") >= len(answer.chunks) - 2
    assert told("tts_underruns_total") >= 0


def test_a_proposer_and_a_rule_that_do_not_fit_are_refused(speaker: Speaker) -> None:
    with pytest.raises(InferenceServerException, match="cannot verify the tree"):
        speaker.say(TEXT, speculation="medusa", acceptance="group")


def test_fifty_at_once_each_as_if_alone(speaker: Speaker) -> None:
    texts = [f"Number {index} of the crowd speaks now." for index in range(50)]
    names = [speaker.send(text, seed=index, max_seconds=1.0) for index, text in enumerate(texts)]
    together = [speaker.wait(name) for name in names]
    assert all(answer.error is None and answer.finals == 1 for answer in together)
    for index in (0, 7, 23, 49):
        alone = speaker.say(texts[index], seed=index, max_seconds=1.0)
        np.testing.assert_array_equal(alone.audio, together[index].audio)


def test_through_triton_as_in_process(speaker: Speaker, repository: Path) -> None:
    engine = Engine(Voice.load(repository / "tts" / "1"))
    request = SpeechRequest(TEXT, SamplingParams(seed=5, max_seconds=2.0))
    expected = np.concatenate([chunk.pcm for chunk in engine.stream(request)])
    np.testing.assert_array_equal(speaker.say(TEXT, seed=5, max_seconds=2.0).audio, expected)


def test_five_hundred_in_a_row(speaker: Speaker) -> None:
    sounding = 0
    for index in range(500):
        answer = speaker.say("Go.", seed=index, max_seconds=0.1)
        assert answer.finals == 1
        sounding += len(answer.audio) > 0  # random weights may end at once
    assert sounding > 400


def test_long_text_is_one_stream(speaker: Speaker) -> None:
    short = len(speaker.say("One.", seed=3, max_seconds=30.0).audio)
    answer = speaker.say("One. " * 6, seed=3, max_seconds=30.0)
    assert answer.finals == 1
    assert len(answer.audio) > short


def test_generate_stream_over_http(server: RunningServer) -> None:
    body = json.dumps({"target_text": [[TEXT]], "parameters": {"seed": 1, "max_seconds": 0.2}})
    request = urllib.request.Request(
        f"http://{server.http_url}/v2/models/tts/generate_stream", body.encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request) as answer:
        events = [json.loads(line[6:]) for line in answer.read().decode().splitlines() if line.startswith("data: ")]
    assert sum(len(event["waveform"]) for event in events) > 0
