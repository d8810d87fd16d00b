"""Who runs: new requests before those that play, the starving beside them, nobody too far ahead; late ones refused."""

from __future__ import annotations

import time

import numpy as np
import pytest

from tests.engine.collect import Listener, drain, say
from tests.engine.tiny_voice import SAMPLE_RATE, ToyText
from tts_engine.config import EngineConfig
from tts_engine.engine import Engine
from tts_engine.errors import CapacityExceeded
from tts_engine.item import Item, Stage
from tts_engine.request import SamplingParams
from tts_engine.scheduler import Scheduler
from tts_engine.text import Sentence
from tts_engine.voice import Voice


def item(voice: Voice, slot: int, ahead: float | None) -> Item:
    """`ahead`: seconds of audio its listener still has; None: nothing was sent yet."""
    settings = SamplingParams(seed=0).resolve(voice.defaults, voice.limits)
    made = Item(settings, lambda chunk: None, iter(()), Sentence("", ()), 100, 0, time.perf_counter(), slot=slot)
    if ahead is not None:
        made.first_chunk_seconds = 0.0
        made.samples_sent = int(ahead * SAMPLE_RATE)
    return made


@pytest.mark.parametrize(
    ("ahead", "chosen"),
    [
        ([5.0, 5.0, None], [2]),  # the new one alone
        ([5.0, 0.01, 5.0, None], [1, 2, 3]),  # with one that would starve, and whoever lies between them
        ([5.0, 0.01, 5.0], [0, 1, 2]),  # nobody waits for a first chunk: all
        ([5.0, 70.0, 5.0], [0, 1, 2]),  # one too far ahead, but between the others
        ([70.0, 5.0], [1]),
        ([70.0, 70.0], []),
    ],
)
def test_who_decodes(voice: Voice, ahead: list[float | None], chosen: list[int]) -> None:
    items = [item(voice, slot, seconds) for slot, seconds in enumerate(ahead)]
    scheduler = Scheduler(SAMPLE_RATE, 60.0)
    scheduler.begin(items)
    assert [one.slot for one in scheduler.span(items)] == chosen


@pytest.mark.parametrize(
    ("begun", "waiting", "enter"),
    [
        (0, 18, 18),
        (0, 27, 18),
        (0, 32, 18),
        (4, 28, 14),
        (18, 14, 0),
        (0, 41, 24),
        (9, 12, 9),
        (10, 12, 0),
        (10, 8, 8),
    ],
)
def test_of_a_crowd_the_oldest_begin_first(voice: Voice, begun: int, waiting: int, enter: int) -> None:
    """Who plays already turns to his next sentence whatever happens."""
    scheduler, playing = Scheduler(SAMPLE_RATE, 60.0), item(voice, 99, 0.0)
    crowd = [item(voice, slot, None) for slot in range(begun + waiting)]
    for one in crowd[:begun]:
        one.stage = Stage.DECODE
    scheduler.begin([*crowd, playing])
    chosen = scheduler.enter([*crowd[begun:], playing], joins=False)
    assert [one.slot for one in chosen] == [*range(begun, begun + enter), 99]
    late = crowd[begun + enter :]
    assert scheduler.enter(late, joins=False) == []  # later in the same step
    for one in crowd:  # the first group has its chunks
        if one not in late:
            one.first_chunk_seconds = 0.1
    scheduler.begin([*crowd, playing])
    assert scheduler.enter(late, joins=False) == late


def test_a_few_late_ones_join_where_a_prefill_is_to_come_anyway(voice: Voice) -> None:
    scheduler, crowd = Scheduler(SAMPLE_RATE, 60.0), [item(voice, slot, None) for slot in range(32)]
    for one in crowd[:16]:
        one.stage = Stage.PREFILL
    scheduler.begin(crowd)
    assert scheduler.enter(crowd[16:], joins=False) == []
    assert scheduler.enter(crowd[16:], joins=True) == crowd[16:18]


@pytest.mark.parametrize(("begun", "came", "gathers"), [(0, 1, False), (0, 4, False), (0, 5, True), (0, 18, False),
                                                       (12, 5, True), (13, 5, False)])  # fmt: skip
def test_a_group_is_gathered_while_it_is_small(voice: Voice, begun: int, came: int, gathers: bool) -> None:
    scheduler, crowd = Scheduler(SAMPLE_RATE, 60.0), [item(voice, slot, None) for slot in range(begun)]
    for one in crowd:
        one.stage = Stage.DECODE
    scheduler.begin(crowd)
    assert scheduler.gathers(came) == gathers


def test_a_crowd_that_trickles_in_is_one_group(voice: Voice, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever comes while the engine waits for more of a crowd begins in the same step."""
    engine = Engine(voice, EngineConfig(capacity=20, threads=2), ToyText())
    crowd = [say(engine, "ten words", seed=seed, max_seconds=1) for seed in range(5)]
    late: list[Listener] = []

    def sleep(seconds: float) -> None:
        if len(late) < 3:
            late.append(say(engine, "ten words", seed=10 + len(late), max_seconds=1))

    monkeypatch.setattr("tts_engine.engine.time.sleep", sleep)
    engine.step()
    stats = engine.stats()
    assert (stats.batches["prefill"], stats.rows["prefill"]) == (1, 8)
    drain(engine)
    assert all(listener.done for listener in [*crowd, *late])


@pytest.mark.parametrize(("came", "together"), [(4, 1), (5, 6), (30, 18)])
def test_a_crowd_that_comes_during_a_prefill_catches_up(
    voice: Voice, monkeypatch: pytest.MonkeyPatch, came: int, together: int
) -> None:
    """It decodes with whom it followed; a few, and who is too many for a group, begin later."""
    engine = Engine(voice, EngineConfig(capacity=40, threads=2), ToyText())
    crowd = [say(engine, "ten words", seed=50, max_seconds=1)]
    prefill = engine.prefill.run

    def run(items: list[Item]) -> None:
        prefill(items)
        while len(crowd) <= came:
            crowd.append(say(engine, "ten words", seed=50 + len(crowd), max_seconds=1))

    monkeypatch.setattr(engine.prefill, "run", run)
    engine.step()
    assert engine.stats().rows["decode"] == together
    drain(engine)
    assert all(listener.done for listener in crowd)


def test_a_crowd_is_served_in_groups_and_sounds_the_same(voice: Voice) -> None:
    engine, heard = Engine(voice, EngineConfig(capacity=64, threads=2), ToyText()), []
    crowd = [say(engine, "ten words", seed=seed, max_seconds=1) for seed in range(40)]
    while engine.step():
        heard.append(sum(bool(listener.chunks) for listener in crowd))
    assert 23 in heard
    assert all(listener.done for listener in crowd)
    for seed in (0, 22, 23, 39):
        alone = say(engine, "ten words", seed=seed, max_seconds=1)
        drain(engine)
        np.testing.assert_array_equal(alone.audio, crowd[seed].audio)


def test_what_takes_long_is_begun_earlier(voice: Voice) -> None:
    scheduler, one = Scheduler(SAMPLE_RATE, 0.0), item(voice, 0, 0.5)
    assert not scheduler.starving(one, time.perf_counter())
    for _ in range(100):
        scheduler.took(0.2, 0, 0)
    assert scheduler.starving(one, time.perf_counter())


def test_a_lead_is_bounded_and_nothing_is_lost(voice: Voice) -> None:
    """A long text at once, listened to in real time; unbounded it gives the same sound."""
    audio = []
    for lead in (0.0, 0.3):
        engine = Engine(voice, EngineConfig(capacity=2, threads=1, max_lead_seconds=lead), ToyText())
        listener = say(engine, "one. two. three", seed=20, max_seconds=1.5)
        began, furthest = time.perf_counter(), 0.0
        while not listener.done:
            engine.step()
            if listener.chunks and not listener.done:
                sent = len(listener.audio) / SAMPLE_RATE
                furthest = max(furthest, sent - (time.perf_counter() - began))
        drain(engine)
        if lead:
            assert furthest < lead + 0.5  # a chunk and a pause beyond it
        audio.append(listener.audio)
    np.testing.assert_allclose(audio[0], audio[1], atol=1e-5)


def test_a_request_that_would_come_too_late_is_refused_with_a_hint(voice: Voice) -> None:
    engine = Engine(voice, EngineConfig(capacity=8, threads=1, max_first_chunk_ms=50.0), ToyText())
    say(engine, "in time", seed=20, max_seconds=1)
    drain(engine)
    for _ in range(60):
        engine._scheduler.took(0.1, 1, 1)  # as if first chunks took 100 ms each
    with pytest.raises(CapacityExceeded, match="try again in"):
        say(engine, "too late", seed=2)
    assert engine.pool.claimed == 0
