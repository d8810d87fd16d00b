"""Batches in parts: every part is done, once, whatever the lanes are busy with, and what fails is heard."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from functools import partial
from typing import Any

import numpy as np
import pytest

from tests.engine.collect import drain, say
from tests.engine.tiny_voice import ToyText
from tts_engine import denormals, language_model, scheduler
from tts_engine.config import EngineConfig
from tts_engine.engine import Engine
from tts_engine.lanes import Lanes, balanced, cuts
from tts_engine.language_model import LanguageModelBatch
from tts_engine.modules import frontend, vocoder
from tts_engine.modules.vocoder import Vocoder, VocoderJob
from tts_engine.request import SamplingParams, SpeechRequest
from tts_engine.session import Array, Binding
from tts_engine.text import WordpieceEncoding
from tts_engine.voice import Voice


def occupied(lanes: Lanes) -> tuple[threading.Event, Future[bool]]:
    """Keep one lane busy until the event is set."""
    release, began = threading.Event(), threading.Event()

    def wait() -> bool:
        began.set()
        return release.wait(30)

    future = lanes.begin(wait)
    assert began.wait(30)
    return release, future


@pytest.mark.parametrize(("rows", "parts", "edges"), [(4, 2, [0, 2, 4]), (3, 2, [0, 1, 3]), (1, 1, [0, 1])])
def test_cuts_cover_all_rows(rows: int, parts: int, edges: list[int]) -> None:
    assert cuts(rows, parts) == edges


def test_parts_follow_the_rows_and_the_idle_lanes() -> None:
    lanes = Lanes(EngineConfig(threads=3))
    assert [lanes.parts(rows) for rows in (1, 2, 3, 32)] == [1, 2, 3, 3]
    release, future = occupied(lanes)
    assert lanes.parts(32) == 2
    release.set()
    assert future.result(30) and lanes.parts(32) == 3


@pytest.mark.parametrize("settings", [{"threads": 1}, {"graph_threads": 2}, {"provider": "cuda"}])
def test_one_run_at_a_time_where_more_would_not_help(settings: dict[str, Any]) -> None:
    assert Lanes(EngineConfig(**settings)).parts(32) == 1


def test_a_part_whose_lane_does_not_begin_is_the_callers() -> None:
    lanes = Lanes(EngineConfig(threads=2))
    release, future = occupied(lanes)
    done: list[tuple[int, threading.Thread]] = []

    def run(part: int) -> None:
        done.append((part, threading.current_thread()))

    lanes.share([partial(run, part) for part in range(3)])
    assert [part for part, _ in done] == [0, 2, 1]
    assert {thread for _, thread in done} == {threading.current_thread()}
    release.set()
    assert future.result(30)


def test_the_caller_goes_on_while_a_lane_is_at_a_long_part() -> None:
    others = threading.Barrier(2, timeout=30)  # of the long part, and the caller's last one

    def run(part: int) -> int:
        if part in (1, 2):
            others.wait()
        return part

    assert Lanes(EngineConfig(threads=2)).share([partial(run, part) for part in range(4)]) == [0, 1, 2, 3]


@pytest.mark.parametrize("culprit", [0, 1, 2])
def test_what_fails_is_raised_after_all_parts_have_ended(culprit: int) -> None:
    done = []

    def part(index: int) -> None:
        if index == culprit:
            raise RuntimeError(f"part {index}")
        done.append(index)

    with pytest.raises(RuntimeError, match=f"part {culprit}"):
        Lanes(EngineConfig(threads=2)).share([partial(part, index) for index in range(3)])
    assert sorted(done) == sorted({0, 1, 2} - {culprit})


def test_a_warm_up_is_done_in_every_lane_at_once() -> None:
    """A barrier: were it not at once, the first lane would wait in vain."""
    lanes, meet, threads = Lanes(EngineConfig(threads=3)), threading.Barrier(3, timeout=30), set()

    def run() -> None:
        meet.wait()
        threads.add(threading.current_thread())

    lanes.warm_up(run)
    assert len(threads) == 3


def test_a_crowd_in_parts_sounds_as_each_alone(voice: Voice) -> None:
    """Enough rows that decoding is cut too (`language_model.PART`), with one lane, with four and with a wide one."""
    heard = []
    for threads, of_a_run in ((1, 1), (4, 1), (2, 2)):
        config = EngineConfig(capacity=20, threads=threads, graph_threads=of_a_run)
        engine = Engine(voice, config, ToyText())
        crowd = [say(engine, "ten words or so. and more", seed=seed, max_seconds=1) for seed in range(20)]
        drain(engine)
        heard.append([listener.audio for listener in crowd])
    for one, *others in zip(*heard, strict=True):
        for other in others:
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("lengths", "parts", "most", "edges"),
    [
        ([3, 3, 3, 9], 2, 99, [0, 3, 4]),
        ([5, 5, 5, 5], 2, 99, [0, 2, 4]),
        ([4], 1, 99, [0, 1]),
        ([1, 2, 3, 90], 4, 99, [0, 1, 2, 3, 4]),
        ([3, 3, 3, 3, 3, 9], 1, 9, [0, 3, 5, 6]),
        ([5, 5, 5, 5], 2, 5, [0, 1, 2, 3, 4]),
        ([50, 60], 1, 9, [0, 1, 2]),  # a row is not cut
        ([5, 5, 5, 60], 1, 9, [0, 3, 4]),
        ([4, 4, 4, 4, 4, 4, 5, 5], 2, 15, [0, 2, 4, 6, 8]),  # as many for each lane, and not 3, 3 and 2
    ],
)
def test_parts_cost_the_same_and_none_is_too_wide(lengths: list[int], parts: int, most: int, edges: list[int]) -> None:
    assert balanced(lengths, parts, most) == edges


def test_narrow_runs_sound_as_wide_ones(voice: Voice, monkeypatch: pytest.MonkeyPatch) -> None:
    """However narrow: prompts, tokens and sound of several at once in one run, or each in its own."""
    heard: list[list[np.ndarray]] = []
    widest: list[list[int]] = []
    compute, bind, feed = Vocoder.compute, LanguageModelBatch._bind, frontend._feeds

    def computed(self: Vocoder, job: VocoderJob) -> dict[str, np.ndarray]:
        widest[-1][0] = max(widest[-1][0], job.feeds["codes"].size)
        return compute(self, job)

    def bound(self: LanguageModelBatch, first: int, last: int) -> Binding:
        widest[-1][1] = max(widest[-1][1], (last - first) * self.bias[0].size)
        return bind(self, first, last)

    def fed(encodings: list[WordpieceEncoding]) -> dict[str, Array]:
        feeds = feed(encodings)
        widest[-1][2] = max(widest[-1][2], feeds["input_ids"].size)
        return feeds

    monkeypatch.setattr(frontend, "_feeds", fed)
    monkeypatch.setattr(Vocoder, "compute", computed)
    monkeypatch.setattr(LanguageModelBatch, "_bind", bound)
    for frames, cells, pieces in ((160, 1 << 15, 1024), (12, 1 << 9, 10)):
        widest.append([0, 0, 0])
        engine = Engine(voice, EngineConfig(capacity=20, threads=2), ToyText())
        widest[-1] = [0, 0, 0]  # the warm-up's do not count
        monkeypatch.setattr(vocoder, "RUN_FRAMES", frames)
        monkeypatch.setattr(scheduler, "RUN_FRAMES", frames)
        monkeypatch.setattr(language_model, "CELLS", cells)
        monkeypatch.setattr(frontend, "RUN_PIECES", pieces)
        crowd = [
            say(engine, "ten words or so. and more"[seed:], seed=seed, max_seconds=1, first_chunk_frames=4 + seed % 3)
            for seed in range(12)
        ]
        drain(engine)
        heard.append([listener.audio for listener in crowd])
    for wide, narrow in zip(*heard, strict=True):
        np.testing.assert_array_equal(wide, narrow)
    assert widest[0][0] > 24
    assert widest[0][1] > 1 << 10
    assert widest[0][2] > 12
    assert widest[1][0] <= 24  # one chunk of the longest
    assert widest[1][1] <= 1 << 9
    assert widest[1][2] <= 10


def test_prompts_of_all_lengths_sound_as_each_alone(voice: Voice) -> None:
    """Every lane pads its own prompts only, and slots follow the lengths, not the order of arrival."""
    texts = [
        "a rather long line that comes first of all",
        "go",
        "a few words",
        "yes",
        "somewhat longer than that",
        "no",
    ]
    engine = Engine(voice, EngineConfig(capacity=8, threads=2), ToyText())
    heard = []
    for together in (True, False):
        listeners = []
        for seed, text in enumerate(texts):
            listeners.append(say(engine, text, seed=seed, max_seconds=1))
            if not together:
                drain(engine)
        drain(engine)
        heard.append([listener.audio for listener in listeners])
    for one, other in zip(*heard, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-4)


@pytest.mark.skipif(not denormals.POSSIBLE, reason="nothing changes here")
def test_denormals_are_zero_in_lanes_and_the_loop_alone(voice: Voice) -> None:
    small, busy = np.full(64, 1e-20, np.float32), threading.Barrier(3)

    def product() -> bool:
        busy.wait()  # so that every thread takes one
        return bool((small * small).any())

    assert Lanes(EngineConfig(threads=3)).share([product] * 3) == [True, False, False]
    engine, seen = Engine(voice, EngineConfig(capacity=1), ToyText()), []
    engine.start()
    engine.submit(SpeechRequest("ten", SamplingParams(seed=1)), lambda chunk: seen.append((small * small).any()))
    engine.stop()
    assert seen and not any(seen)
    assert (small * small).any()
