"""One utterance in flight: everything the engine knows about it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum, auto

import numpy as np
from numpy.typing import NDArray

from tts_engine.chunk import AudioChunk, FinishReason, Timings
from tts_engine.request import Settings
from tts_engine.text.sentence import Sentence

OnChunk = Callable[[AudioChunk], None]
EOS = 0  # logit 0


class Stage(Enum):
    """The module an item waits for."""

    FRONTEND = auto()  # the next sentence has no prompt yet
    PREFILL = auto()
    DECODE = auto()
    FLUSH = auto()  # the sentence has all its codes; the vocoder takes the rest of them
    FINISHED = auto()


@dataclass(eq=False)
class Item:
    """State of one request. `slot`, `row`: its places in the key-value cache and the vocoder states (-1: none)."""

    settings: Settings
    on_chunk: OnChunk
    sentences: Iterator[Sentence]
    sentence: Sentence
    max_frames: int
    pause_frames: int
    submitted: float  # time.perf_counter()

    stage: Stage = Stage.FRONTEND
    cancelled: bool = False
    cut_short: bool = False  # max_seconds reached
    finish_reason: FinishReason | None = None
    error: str | None = None

    # the sentence being made
    next_sentence: Sentence | None = None
    sentence_index: int = 0
    prompt: NDArray[np.int64] | None = None
    min_sentence_frames: int = 0
    max_sentence_frames: int = 0
    sentence_frames: int = 0
    last_token: int = 0
    pending: list[int] = field(default_factory=list)
    fresh_vocoder: bool = True

    # places
    slot: int = -1
    row: int = -1

    # sound
    chunk_frames: int = 0
    audio: list[NDArray[np.float32]] = field(default_factory=list)
    chunks_sent: int = 0
    samples_sent: int = 0

    # counters and clock (seconds)
    frames: int = 0
    budget_used: int = 0
    decode_steps: int = 0
    undrafted_steps: int = -1  # the engine's count when the sentence began to be drafted for; -1: it is not
    draft_tokens: int = 0
    accepted_draft_tokens: int = 0
    acceptance_lengths: list[int] = field(default_factory=list)  # verifications by tokens they brought, from 1 on
    sentences_done: int = 0
    queue_seconds: float = 0.0
    frontend_seconds: float = 0.0
    prefill_seconds: float = 0.0
    first_chunk_seconds: float | None = None

    def __post_init__(self) -> None:
        self.chunk_frames = self.settings.first_chunk_frames
        self.next_sentence = next(self.sentences, None)

    @property
    def ready_frames(self) -> int:
        """Codes the vocoder takes now: a whole chunk, or at the end of a sentence what is left; 0 if it must wait.

        Never more than a chunk, so that several tokens a step make the same chunks as one.
        """
        if self.stage is Stage.FLUSH:
            return min(len(self.pending), self.chunk_frames)
        return self.chunk_frames if len(self.pending) >= self.chunk_frames else 0

    def take(self, token: int) -> None:
        """Add a sampled token (logit index) to the sentence; turns to FLUSH where the sentence ends."""
        if token == EOS:
            self.stage = Stage.FLUSH
            return
        self.last_token = token
        self.pending.append(token - 1)
        self.frames += 1
        self.sentence_frames += 1
        self.budget_used += 1
        self.cut_short = self.budget_used >= self.max_frames
        if self.cut_short or self.sentence_frames >= self.max_sentence_frames:
            self.stage = Stage.FLUSH

    def drafted(self, tokens: int, accepted: int) -> None:
        """Count a verification: `tokens` were drafted, `accepted` of them accepted."""
        self.draft_tokens += tokens
        self.accepted_draft_tokens += accepted
        self.acceptance_lengths += [0] * (accepted + 1 - len(self.acceptance_lengths))
        self.acceptance_lengths[accepted] += 1

    def sound(self, pcm: NDArray[np.float32], frames: int) -> None:
        """Queue `frames` vocoded frames and let the chunk size grow, by half: a listener waits for the next chunk no
        longer than he hears this one even where a step takes two thirds of a frame's time. From the second chunk on:
        after the first he has the least to hear, and at 79 % of saturation only second chunks came late."""
        del self.pending[:frames]
        self.fresh_vocoder = False
        self.audio.append(pcm)
        if self.chunks_sent:
            self.chunk_frames = min(self.chunk_frames + (self.chunk_frames + 1) // 2, self.settings.chunk_frames)

    @property
    def has_room(self) -> bool:
        """Whether `max_seconds` leaves room for a pause and some of another sentence."""
        return not self.cut_short and self.budget_used + self.pause_frames < self.max_frames

    def start_next_sentence(self, frame_samples: int) -> None:
        """Queue the pause and turn to the next sentence (there must be one)."""
        assert self.next_sentence is not None
        self.audio.append(np.zeros(self.pause_frames * frame_samples, dtype=np.float32))
        self.budget_used += self.pause_frames
        self.sentence, self.next_sentence = self.next_sentence, next(self.sentences, None)
        self.sentence_index += 1
        self.sentence_frames = 0
        self.prompt = None
        self.undrafted_steps = -1
        self.fresh_vocoder = True
        self.stage = Stage.FRONTEND

    def next_chunk(self, sample_rate: int) -> AudioChunk:
        """What has gathered since the last chunk; the final one once `finish_reason` is set."""
        pcm = np.concatenate(self.audio) if self.audio else np.zeros(0, dtype=np.float32)
        self.audio.clear()
        final = self.finish_reason is not None
        if len(pcm) and self.first_chunk_seconds is None:
            self.first_chunk_seconds = time.perf_counter() - self.submitted
        self.samples_sent += len(pcm)
        index, self.chunks_sent = self.chunks_sent, self.chunks_sent + 1
        timings = self._timings(sample_rate) if final or index == 0 else None
        return AudioChunk(pcm, index, final, self.finish_reason, self.error, timings)

    def _timings(self, sample_rate: int) -> Timings:
        first = self.first_chunk_seconds
        return Timings(
            queue_ms=1e3 * self.queue_seconds,
            frontend_ms=1e3 * self.frontend_seconds,
            prefill_ms=1e3 * self.prefill_seconds,
            first_chunk_ms=None if first is None else 1e3 * first,
            total_ms=1e3 * (time.perf_counter() - self.submitted),
            decode_steps=self.decode_steps,
            frames=self.frames,
            sentences=self.sentences_done,
            audio_s=self.samples_sent / sample_rate,
            speculation=self.settings.speculation,
            acceptance=self.settings.acceptance,
            total_draft_tokens=self.draft_tokens,
            total_accepted_draft_tokens=self.accepted_draft_tokens,
            acceptance_rate=self.accepted_draft_tokens / self.draft_tokens if self.draft_tokens else 0.0,
            acceptance_lengths=tuple(self.acceptance_lengths),
        )
