"""Life of requests: join, leave, cancel, fail, run out; after each the pool is empty and the engine serves on."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from tests.engine.collect import Listener, assert_empty, drain, say
from tests.engine.tiny_voice import FRAME_SAMPLES, POISON, SAMPLE_RATE, VOCABULARY, ToyText
from tts_engine.chunk import AudioChunk
from tts_engine.config import EngineConfig
from tts_engine.engine import Engine
from tts_engine.errors import CapacityExceeded, InvalidRequest, RequestError
from tts_engine.item import EOS, Stage
from tts_engine.modules.sampler import Drawn
from tts_engine.request import SamplingParams, SpeechRequest
from tts_engine.sampling import Scores
from tts_engine.text import Sentence
from tts_engine.voice import Voice


def reference(engine: Engine, text: str, seed: int) -> np.ndarray:
    listener = say(engine, text, seed=seed)
    drain(engine)
    return listener.audio


def test_stream_yields_chunks_and_timings(engine: Engine) -> None:
    chunks = list(engine.stream(SpeechRequest("hello there. general", SamplingParams(seed=4))))
    assert [chunk.index for chunk in chunks] == list(range(len(chunks)))
    assert [chunk.final for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    assert chunks[-1].finish_reason == "stop"
    assert len(chunks[0].pcm) == 4 * FRAME_SAMPLES
    pcm = np.concatenate([chunk.pcm for chunk in chunks])
    assert pcm.dtype == np.float32
    assert np.abs(pcm).max() <= 1
    first, last = chunks[0].timings, chunks[-1].timings
    assert first is not None
    assert last is not None
    assert all(chunk.timings is None for chunk in chunks[1:-1])
    assert first.first_chunk_ms is not None
    assert first.first_chunk_ms == last.first_chunk_ms
    assert 0 < first.frontend_ms + first.prefill_ms < first.first_chunk_ms < last.total_ms
    assert last.sentences == 2
    assert last.decode_steps == last.frames  # each sentence: one token from prefill, one step for the end
    assert last.audio_s == len(pcm) / SAMPLE_RATE == pytest.approx(last.frames / 50 + 0.1)
    assert last.to_dict()["frames"] == last.frames
    assert_empty(engine)


def test_a_request_submitted_in_mid_decode_joins_the_next_step(engine: Engine) -> None:
    say(engine, "the first one speaks already", seed=1)
    for _ in range(5):
        engine.step()
    first = engine.pool.items[0]
    steps = first.decode_steps
    say(engine, "late", seed=2)
    engine.step()
    late = engine.pool.items[1]
    assert first.decode_steps == steps + 1
    assert late.stage is Stage.DECODE
    assert late.frames == 2  # prefill's token and one decode step, beside the first request's
    assert engine.stats().batches["decode"] == 6


def test_pause_lies_between_sentences(engine: Engine) -> None:
    listener = say(engine, "one. two", seed=9)
    drain(engine)
    silent = (listener.audio.reshape(-1, FRAME_SAMPLES) == 0).all(axis=1)
    assert silent.sum() == 5  # 0.1 s


def test_cancel_frees_everything_within_one_step(engine: Engine) -> None:
    listeners = [say(engine, "some text to speak", seed=20 + seed) for seed in range(3)]
    for _ in range(4):
        engine.step()
    expected = [item.row for item in engine.pool.items if item is not engine.pool.items[1]]
    listeners[1].handle.cancel()
    engine.step()
    assert engine.model.cache.count == engine.pool.claimed == 2
    assert [item.row for item in engine.pool.items] == expected
    assert listeners[1].last.finish_reason == "cancelled"
    assert listeners[1].last.timings is not None
    drain(engine)
    listeners[1].handle.cancel()  # harmless when done
    assert not engine.step()


def test_cancel_before_the_first_step(engine: Engine) -> None:
    listener = say(engine, "never", seed=1)
    listener.handle.cancel()
    drain(engine)
    assert len(listener.chunks) == 1
    assert listener.last.finish_reason == "cancelled"


def test_capacity_is_refused_at_once_and_comes_back(engine: Engine) -> None:
    listeners = [say(engine, "full house", seed=seed) for seed in range(8)]
    with pytest.raises(CapacityExceeded, match="all 8 slots are taken"):
        say(engine, "too many")
    drain(engine)
    assert all(listener.last.finish_reason == "stop" for listener in listeners)
    say(engine, "room again", seed=1)
    drain(engine)


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (SpeechRequest("  \n"), "empty"),
        (SpeechRequest("..."), "nothing in the text can be spoken"),
        (SpeechRequest("x" * 200_001), "200001 characters"),
        (SpeechRequest("hi", reference_audio=np.zeros(5, np.float32)), "cannot clone"),
        (SpeechRequest("hi", SamplingParams(max_seconds=61)), "between 0.1 and 60"),
    ],
)
def test_wrong_requests_are_refused_at_once(engine: Engine, request_: SpeechRequest, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        engine.submit(request_, lambda chunk: None)
    assert_empty(engine)


def test_max_seconds_ends_with_length(engine: Engine) -> None:
    listener = say(engine, "on and on. and on and on", seed=2, temperature=0, max_seconds=0.5)
    drain(engine)
    assert listener.last.finish_reason == "length"
    assert len(listener.audio) == 25 * FRAME_SAMPLES


def test_no_pause_and_no_sentence_beyond_max_seconds(engine: Engine) -> None:
    whole = say(engine, "one. two", seed=9)
    drain(engine)
    frames = np.flatnonzero((whole.audio.reshape(-1, FRAME_SAMPLES) == 0).all(axis=1))[0]
    listener = say(engine, "one. two", seed=9, max_seconds=(frames + 3) / 50 + 1e-6)
    drain(engine)
    assert listener.last.finish_reason == "length"
    np.testing.assert_array_equal(listener.audio, whole.audio[: frames * FRAME_SAMPLES])


def test_a_looping_sentence_is_ended_and_the_next_one_spoken(engine: Engine) -> None:
    limit = int(engine.voice.defaults["max_frames_per_symbol"])
    engine.decode._sampler.draw = _without_end(engine)  # type: ignore[method-assign]
    listener = say(engine, "a. b", seed=1)
    drain(engine)
    assert listener.last.finish_reason == "stop"
    prompt_length = 4  # bos, the letter, the full stop, soa
    first = int(np.flatnonzero((listener.audio.reshape(-1, FRAME_SAMPLES) == 0).all(axis=1))[0])
    assert first == limit * prompt_length
    assert listener.last.timings is not None
    assert listener.last.timings.sentences == 2


def with_end_at(given: Scores, logit: float) -> Scores:
    """The scores with another logit for the end of the sentence."""
    logits = given.logits.copy()
    logits[:, EOS] = logit
    return Scores.of(logits)


def test_a_sentence_does_not_end_before_its_least_length(engine: Engine) -> None:
    draw = engine.decode._sampler.draw

    def always_ending(items: list, scores: Scores) -> Drawn:
        return draw(items, with_end_at(scores, 1e9))

    engine.prefill._sampler.draw = always_ending  # type: ignore[method-assign]  # prefill and decode share it
    engine.frontend._voice = replace(engine.voice, defaults={**engine.voice.defaults, "min_frames_per_symbol": 3})
    listener = say(engine, "a", seed=1)
    drain(engine)
    assert listener.last.timings is not None
    assert listener.last.timings.frames == 3 * 4  # bos, the letter, the full stop, soa


def _without_end(engine: Engine):  # type: ignore[no-untyped-def]
    """The real sampler on logits whose end of sentence is impossible."""
    draw = type(engine.decode._sampler).draw

    def endless(items: list, given: Scores) -> Drawn:
        return draw(engine.decode._sampler, items, with_end_at(given, -1e9))

    return endless


def test_nan_fails_its_request_only(engine: Engine) -> None:
    texts = ["before it", f"bad {POISON} one", "after it"]
    expected = [reference(engine, text, seed) for seed, text in enumerate(texts) if POISON not in text]
    listeners = [say(engine, text, seed=seed) for seed, text in enumerate(texts)]
    drain(engine)
    assert listeners[1].last.finish_reason == "error"
    assert listeners[1].last.error == "the language model gave non-finite logits for this request"
    assert len(listeners[1].audio) == 0
    for listener, audio in zip((listeners[0], listeners[2]), expected, strict=True):
        np.testing.assert_array_equal(listener.audio, audio)
    assert np.isfinite(engine.model.cache.memory).all()


@pytest.mark.parametrize("stage", ["prefill", "decode", "vocoder"])
def test_a_module_that_raises_fails_only_the_culprit(engine: Engine, stage: str) -> None:
    """One item gets an id outside the graph's tables, so that the real batched run raises."""
    seeds = [1, 2, 3]
    text = "three of them speak"
    expected = {seed: reference(engine, text, seed) for seed in seeds}
    listeners = [say(engine, text, seed=seed) for seed in seeds]
    if stage == "prefill":
        engine._admit()
        engine.frontend.run(engine.pool.items)
        prompt = engine.pool.items[1].prompt
        assert prompt is not None
        prompt[2, 0] = VOCABULARY.size
    else:
        engine.step()
        if stage == "decode":
            engine.pool.items[1].last_token = VOCABULARY.size
        else:
            engine.pool.items[1].pending[0] = 10_000
    drain(engine)
    assert listeners[1].last.finish_reason == "error"
    assert listeners[1].last.error is not None
    assert listeners[1].last.error.startswith(f"{stage} failed: ")
    assert "\n" not in listeners[1].last.error
    for seed, listener in zip((1, 3), (listeners[0], listeners[2]), strict=True):
        np.testing.assert_array_equal(listener.audio, expected[seed])
    np.testing.assert_array_equal(reference(engine, text, 1), expected[1])


def test_a_sentence_that_cannot_fit_is_told_so(engine: Engine) -> None:
    listeners = [say(engine, "fine", seed=1), say(engine, "x" * 600, seed=1)]
    drain(engine)
    assert listeners[0].last.finish_reason == "stop"
    assert listeners[1].last.error is not None
    assert "leaves no room in the voice's 512 positions" in listeners[1].last.error


def test_a_sentence_stops_at_the_last_position(engine: Engine) -> None:
    engine.decode._sampler.draw = _without_end(engine)  # type: ignore[method-assign]
    listener = say(engine, "x" * 480, seed=1)
    drain(engine)
    assert listener.last.finish_reason == "stop"
    assert len(listener.audio) == (512 - 483) * FRAME_SAMPLES


def test_a_failing_receiver_loses_only_its_own_request(engine: Engine) -> None:
    calls = []

    def broken(chunk: AudioChunk) -> None:
        calls.append(chunk)
        raise OSError("connection lost")

    engine.submit(SpeechRequest("nobody listens to this", SamplingParams(seed=1)), broken)
    listener = say(engine, "somebody does", seed=2)
    drain(engine)
    assert listener.last.finish_reason == "stop"
    assert [chunk.final for chunk in calls] == [False, True]


def test_text_of_later_sentences_is_taken_as_they_come(voice: Voice) -> None:
    taken: list[str] = []

    class Lazy(ToyText):
        def iterate(self, text: str) -> Iterator[Sentence]:
            for sentence in super().iterate(text):
                taken.append(sentence.text)
                yield sentence

    engine = Engine(voice, EngineConfig(capacity=2, threads=1), Lazy())
    say(engine, "a. b. c. d", seed=1)
    engine.step()
    assert taken == ["a", "b"]
    drain(engine)
    assert taken == ["a", "b", "c", "d"]


def test_loop_thread_serves_many_threads(voice: Voice) -> None:
    engine = Engine(voice, EngineConfig(capacity=4, threads=1), ToyText())
    expected = {seed: np.concatenate([c.pcm for c in engine.stream(_request(seed))]) for seed in range(4)}
    engine.start()
    with pytest.raises(RuntimeError, match="runs already"):
        engine.start()
    results: dict[tuple[int, int], np.ndarray] = {}

    def worker(seed: int) -> None:
        for turn in range(5):
            results[seed, turn] = np.concatenate([chunk.pcm for chunk in engine.stream(_request(seed))])

    threads = [threading.Thread(target=worker, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    engine.stop()
    assert len(results) == 20
    for (seed, _), audio in results.items():
        np.testing.assert_allclose(audio, expected[seed], rtol=0, atol=1e-6)  # a convolution may round by batch size
    assert_empty(engine)


def _request(seed: int) -> SpeechRequest:
    return SpeechRequest("threads. speak", SamplingParams(seed=seed, top_k=100))


def test_stop_ends_what_is_in_flight(engine: Engine) -> None:
    arrived = threading.Event()
    listener = Listener()

    def listen(chunk: AudioChunk) -> None:
        listener(chunk)
        arrived.set()

    engine.start()
    engine.submit(SpeechRequest("a long story. " * 200, SamplingParams(seed=1)), listen)
    assert arrived.wait(timeout=30)
    engine.stop()
    assert listener.last.finish_reason == "cancelled"
    assert_empty(engine)
    with pytest.raises(RequestError, match="stopped"):
        say(engine, "too late")
    assert engine.pool.claimed == 0


def test_closing_a_stream_early_cancels_it(engine: Engine) -> None:
    stream = engine.stream(SpeechRequest("closed before the end of it", SamplingParams(seed=1)))
    next(stream)
    stream.close()  # type: ignore[attr-defined]
    drain(engine)


def test_stats_count_batches_and_time(engine: Engine) -> None:
    for seed in range(4):
        say(engine, "count me", seed=seed, temperature=0, max_seconds=0.4)
    drain(engine)
    stats = engine.stats()
    assert stats.batches["prefill"] == 1
    assert stats.mean_batch["prefill"] == stats.mean_batch["frontend"] == stats.mean_batch["decode"] == 4
    assert stats.mean_batch["vocoder"] == 4
    assert 0 < stats.runtime_seconds["lm"] < stats.loop_seconds  # the vocoder's may lie beside it
    assert 0 < stats.outside_share < 1
    assert (stats.active, stats.slots_used) == (0, 0)
    engine.reset_stats()
    assert engine.stats().steps == 0
    assert engine.stats().loop_seconds == 0
    assert sum(engine.stats().runtime_seconds.values()) == 0
