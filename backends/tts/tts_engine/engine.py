"""The engine: one loop over one pool. Requests join and leave between two steps; every module serves all that wait."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from tts_engine import denormals
from tts_engine.chunk import AudioChunk
from tts_engine.config import EngineConfig
from tts_engine.errors import CapacityExceeded, InvalidRequest, RequestError
from tts_engine.item import Item, OnChunk, Stage
from tts_engine.kv_cache import KVCache
from tts_engine.lanes import Lanes
from tts_engine.language_model import LanguageModel
from tts_engine.modules.decode import Decode
from tts_engine.modules.frontend import Frontend, TextPipeline
from tts_engine.modules.prefill import Prefill
from tts_engine.modules.sampler import Sampler
from tts_engine.modules.vocoder import Vocoder
from tts_engine.overlap import Overlap
from tts_engine.pool import Pool
from tts_engine.proposers import draft_layers, load_proposers
from tts_engine.request import SamplingParams, Settings, SpeechRequest
from tts_engine.scheduler import Scheduler, without_first_chunk
from tts_engine.stats import MODULES, EngineStats, StepClock, Timed
from tts_engine.text import Sentence, TextFrontend
from tts_engine.voice import Voice

logger = logging.getLogger(__name__)
IDLE_SECONDS = 0.005
GATHER_SECONDS = 0.001  # a crowd's requests come one every 0.2 ms
GATHER_ROUNDS = 8
WAITS_FOR = dict(zip((Stage.FRONTEND, Stage.PREFILL, Stage.DECODE, Stage.FLUSH), MODULES, strict=True))


class Module(Protocol):
    """A stage of the pipeline: serves items as one batch, or raises and leaves them as they were."""

    def run(self, items: list[Item]) -> None: ...


@dataclass(frozen=True)
class Handle:
    """A submitted request."""

    _item: Item

    def cancel(self) -> None:
        """Stop; within one step all it holds is free and its final chunk ("cancelled") is out. Harmless when done."""
        self._item.cancelled = True


class Engine:
    """Streaming synthesis for many requests at once.

    `submit` and `Handle.cancel` may be called from any thread. Chunks are handed over in the loop's thread:
    `on_chunk` should only pass them on. Either `start()` the loop or call `step()` by hand, not both.
    """

    def __init__(
        self,
        voice: Voice,
        config: EngineConfig | None = None,
        text: TextPipeline | None = None,
    ) -> None:
        """Load the voice's graphs; VoiceError says what is wrong with one. `text` replaces the text frontend."""
        self.voice = voice
        self.config = config or EngineConfig()
        self.text = text or TextFrontend(list(voice.vocabulary.phonemes), voice.files["wordpiece"])
        layers = voice.layers + draft_layers(voice)
        cache = KVCache(layers, self.config.capacity, voice.kv_heads, voice.head_dim, voice.max_positions)
        lanes = Lanes(self.config)
        self.model = LanguageModel(voice.files["lm"], voice, self.config, cache, lanes, voice.layers)
        self.pool = Pool(self.config.capacity, cache)
        proposers = load_proposers(voice, self.config, cache, lanes)
        sampler = Sampler(self.pool)
        self.frontend = Frontend(voice, self.text, self.config, lanes)
        self.decode = Decode(voice, self.model, sampler, proposers)
        self.prefill = Prefill(self.model, self.pool, sampler, self.decode.speculation)
        self.vocoder = Vocoder(voice, self.pool, self.config, lanes)
        self._overlap = Overlap(self.vocoder, lanes)
        sessions: dict[str, Timed] = {"frontend": self.frontend.session, "lm": self.model.session}
        sessions |= {"vocoder": self.vocoder, "vocoder, waited for": self._overlap}
        for proposer in proposers.values():
            sessions |= proposer.sessions
        self._clock = StepClock(sessions)
        self._scheduler = Scheduler(voice.sample_rate, self.config.max_lead_seconds)
        # ONNX Runtime keeps the memory of a graph's widest run for good: so a server is as large from the start.
        for module in (self.frontend, self.model, self.vocoder):
            module.warm_up()
        if proposers:
            self._measure()
        self._changed = threading.Condition()
        self._stopping = False
        self._thread: threading.Thread | None = None

    def submit(self, request: SpeechRequest, on_chunk: OnChunk) -> Handle:
        """Take a request, or raise InvalidRequest or CapacityExceeded at once.

        The first two sentences are normalised and phonemized here, in the caller's thread, so that it delays nobody's
        audio; each later one when the one before it begins.
        """
        submitted = time.perf_counter()
        settings = self._validated(request)
        self._refuse_if_late()
        self.pool.claim()
        try:
            item = self._item(request.text, settings, on_chunk, submitted)
        except BaseException:
            self.pool.unclaim()
            raise
        with self._changed:
            if self._stopping:
                self.pool.unclaim()
                raise RequestError("the engine has stopped; start it first")
            self.pool.submit(item)
            self._changed.notify_all()
        return Handle(item)

    def stream(self, request: SpeechRequest) -> Iterator[AudioChunk]:
        """Submit and yield the chunks; a generator closed early cancels. Steps the engine itself if no loop runs."""
        chunks: queue.SimpleQueue[AudioChunk] = queue.SimpleQueue()
        handle = self.submit(request, chunks.put)
        try:
            while True:
                while self._thread is None and chunks.empty():
                    self.step()
                chunk = chunks.get()
                yield chunk
                if chunk.final:
                    return
        finally:
            handle.cancel()

    def step(self) -> bool:
        """One iteration: every module takes, as one batch, the items that wait for it and whose turn it is.

        False when nothing is left.
        """
        began, turn = time.perf_counter(), self._scheduler
        with self._clock:
            self._dismiss()
            silent = turn.begin(self.pool.items)
            self._sound_if_done()
            crowd = True
            while crowd:
                for _ in range(2):  # who comes while the frontend runs shares its prefill, the dearest run there is
                    silent += self._admit()
                    joins = bool(self.pool.waiting(Stage.PREFILL))
                    self._run("frontend", self.frontend, turn.enter(self.pool.waiting(Stage.FRONTEND), joins))
                self._sound_if_done()
                self._run("prefill", self.prefill, turn.pick(self.pool.waiting(Stage.PREFILL)))
                self._sound_if_done()
                crowd = turn.follows(self.pool.arrived)  # catches up, so that all decode and sound together
            spoke = self._run("decode", self.decode, turn.span(self.pool.decoding))
            self._sound(wait=not spoke)
            self._emit()
            first_chunks = silent - without_first_chunk(self.pool.items) if silent else 0
            turn.took(time.perf_counter() - began, silent, first_chunks)
        return not self.pool.idle

    def start(self) -> None:
        """Run the loop in a thread of its own; it sleeps while there is nothing to do."""
        if self._thread is not None:
            raise RuntimeError("the engine runs already; stop() it first")
        self._stopping = False
        self._thread = threading.Thread(target=self._loop, name="tts-engine", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Cancel everything in flight (final chunks go out) and end the loop."""
        if self._thread is None:
            return
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        self._thread.join()
        self._thread = None

    @property
    def slots_used(self) -> int:
        """Slots of the key-value cache that are taken now; cheap, from any thread."""
        return self.model.cache.count

    def stats(self) -> EngineStats:
        """Counters since the start; cheap, from any thread."""
        waiting = dict.fromkeys(MODULES, 0)
        for item in list(self.pool.items):
            if item.stage in WAITS_FOR:
                waiting[WAITS_FOR[item.stage]] += 1
        return self._clock.stats(self.pool.claimed, self.slots_used, self.model.cache.positions, waiting)

    def reset_stats(self) -> None:
        """Set the counters to zero (between two measurements)."""
        self._clock.reset()

    def _validated(self, request: SpeechRequest) -> Settings:
        if not request.text.strip():
            raise InvalidRequest("the text is empty; send something to say")
        if len(request.text) > self.config.max_text_chars:
            raise InvalidRequest(
                f"the text has {len(request.text)} characters and the limit is {self.config.max_text_chars}; split it"
            )
        if not self.voice.can_clone and (request.reference_audio is not None or request.reference_text):
            raise InvalidRequest(f"voice {self.voice.name} cannot clone; send no reference audio or text")
        settings = request.params.resolve(self.voice.defaults, self.voice.limits)
        self.decode.speculation.check(settings.speculation, settings.acceptance, settings.theta)
        return settings

    def _refuse_if_late(self) -> None:
        """CapacityExceeded where the first chunk would come too late, rather than hurt those who are being served."""
        bound = self.config.max_first_chunk_ms
        if not bound:
            return
        projected = 1e3 * self._scheduler.projected_first_chunk(without_first_chunk(self.pool.items))
        if projected > bound:
            raise CapacityExceeded(
                f"the first chunk would come after {projected:.0f} ms and the limit is {bound:g}; "
                f"try again in {projected - bound:.0f} ms"
            )

    def _item(self, text: str, settings: Settings, on_chunk: OnChunk, submitted: float) -> Item:
        sentences = self.text.iterate(text)
        first = next(sentences, None)
        if first is None:
            raise InvalidRequest("nothing in the text can be spoken; send words or numbers")
        rate = self.voice.frames_per_second
        item = Item(
            settings,
            on_chunk,
            sentences,
            first,
            max_frames=max(1, int(settings.max_seconds * rate)),
            pause_frames=round(self.config.sentence_pause_seconds * rate),
            submitted=submitted,
        )
        item.frontend_seconds = time.perf_counter() - submitted
        return item

    def _measure(self) -> None:
        """Fill the cost table of speculation, on items that say nothing and never end."""
        settings = SamplingParams(seed=0).resolve(self.voice.defaults, self.voice.limits)
        items = []
        for row in range(self.config.capacity):
            items.append(Item(settings, lambda chunk: None, iter(()), Sentence("", ()), 1 << 30, 0, 0.0, row=row))
            items[-1].min_sentence_frames = items[-1].max_sentence_frames = 1 << 30
        self.pool.add_slots(items)
        self.decode.measure(items)
        for item in reversed(items):
            self.pool.drop_slot(item)

    def _admit(self) -> int:
        """How many came; where a crowd trickles in, with those who follow within some milliseconds: one group."""
        arrived = self.pool.admit()
        for _ in range(GATHER_ROUNDS):
            if not self._scheduler.gathers(len(arrived)):
                break
            time.sleep(GATHER_SECONDS)
            more = self.pool.admit()
            arrived += more
            if not more:
                break
        for item in arrived:
            item.queue_seconds = time.perf_counter() - item.submitted - item.frontend_seconds
        return len(arrived)

    def _dismiss(self) -> None:
        for item in [item for item in self.pool.items if item.cancelled or self._stopping]:
            self.pool.finish(item, "cancelled")

    def _sound_if_done(self) -> None:
        """Between two modules: only where the vocoder has finished; new frames come from decoding alone."""
        if self._overlap.done:
            self._sound()

    def _sound(self, wait: bool = False) -> None:
        """Send what the vocoder has finished, and give it the next run, which goes on beside all else.

        wait: for a run that was begun, as there is nothing else to do.
        """
        running = self._overlap.items
        try:
            done = self._overlap.collect(wait)
            self._clock.spent("vocoder", self._overlap.took if done else 0.0)
            self.vocoder.end(done)
        except Exception:
            done = [item for item in running if item.finish_reason is None]
            for item in done:  # one of them is the culprit
                self._run("vocoder", self.vocoder, [item])
        ready = [item for item in self.vocoder.ready() if item not in self._overlap.items]
        first = [item for item in ready if item.first_chunk_seconds is None]
        self._run("vocoder", self.vocoder, first)  # at once, and with nothing beside it
        if done or first:
            self._emit()
        if self._overlap.busy:
            return
        self.vocoder.end(ready)
        chosen = self._scheduler.voices([item for item in ready if item.ready_frames and item not in first])
        if chosen:
            self._clock.count("vocoder", len(chosen))
            self._overlap.begin(chosen)

    def _run(self, name: str, module: Module, items: Sequence[Item]) -> bool:
        """Run a module on its batch, or if that raises each item alone: only the culprit fails. False: no items."""
        batch = list(items)
        if not batch:
            return False
        self._clock.count(name, len(batch))
        began = time.perf_counter()
        try:
            module.run(batch)
            self._clock.spent(name, time.perf_counter() - began)
        except Exception as error:
            if len(batch) == 1:
                self._fail(batch[0], name, error)
                return True
            for item in [item for item in batch if item.finish_reason is None]:
                try:
                    module.run([item])
                except Exception as own_error:
                    self._fail(item, name, own_error)
        return True

    def _fail(self, item: Item, name: str, error: Exception) -> None:
        if not isinstance(error, RequestError):
            logger.error("%s failed for one request", name, exc_info=error)
        self.pool.finish(item, "error", f"{name} failed: {str(error).splitlines()[0] if str(error) else repr(error)}")

    def _emit(self) -> None:
        for item in self._audible():
            try:
                item.on_chunk(item.next_chunk(self.voice.sample_rate))
            except Exception as error:
                logger.error("the receiver of a chunk failed; its request is dropped", exc_info=error)
                item.cancelled = True
        self.pool.finished.clear()

    def _audible(self) -> list[Item]:
        """Items with a chunk to send."""
        return [item for item in [*self.pool.items, *self.pool.finished] if item.audio or item.finish_reason]

    def _loop(self) -> None:
        denormals.flush()
        while True:
            with self._changed:
                while self.pool.idle and not self._stopping:
                    self._changed.wait()
            try:
                self.step()
                if not self._clock.worked:  # everyone is far ahead of their listeners
                    time.sleep(IDLE_SECONDS)
            except Exception:
                logger.exception("a step failed; every request in flight ends with an error")
                for item in list(self.pool.items):
                    self.pool.finish(item, "error", "the engine failed inside a step; see the server's log")
            if self._stopping and self.pool.idle:
                return
