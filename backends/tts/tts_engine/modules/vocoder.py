"""Vocoder: codes -> audio for every item with a chunk ready, as one ragged batch with each item's own state."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from tts_engine.config import EngineConfig
from tts_engine.errors import VoiceError
from tts_engine.item import Item, Stage
from tts_engine.lanes import Lanes, balanced
from tts_engine.pool import Pool
from tts_engine.scheduler import RUN_FRAMES
from tts_engine.session import Session
from tts_engine.voice import Voice

STATE = "state."
# A run of one frame takes other arithmetic (matrix times vector) than a wider one, and an item with one frame left must
# sound the same alone as beside longer ones.
MIN_FRAMES = 2
LONG_CHUNK = 40


@dataclass(frozen=True, eq=False)
class VocoderJob:
    """One graph run: items, their state rows and frames, and what the graph reads."""

    items: list[Item]
    places: NDArray[np.intp]
    lengths: NDArray[np.int64]
    feeds: dict[str, np.ndarray]


class Vocoder:
    """Stateful streaming decoding. States lie in one array a name, [capacity, …], a row an item; reset per sentence."""

    def __init__(self, voice: Voice, pool: Pool, config: EngineConfig, lanes: Lanes) -> None:
        self.session = Session(voice.files["vocoder"], config, ["codes", "lengths"], ["pcm"])
        self._lanes = lanes
        self.seconds = 0.0  # of runs that the engine waited for here; those beside it `Overlap` counts
        self._pool = pool
        self._frame_samples = voice.frame_samples
        names = [name for name in self.session.input_shapes if name.startswith(STATE)]
        self.states = {name: self._rows(voice, name) for name in names}

    def ready(self) -> list[Item]:
        """Items with a chunk to make, or at the end of a sentence."""
        return [item for item in self._pool.items if item.ready_frames or item.stage is Stage.FLUSH]

    def run(self, items: list[Item]) -> None:
        """Queue audio; at the end of a sentence turn to the next one, or finish the item."""
        audible = sorted((item for item in items if item.ready_frames), key=lambda item: item.ready_frames)
        if audible:
            lengths = [item.ready_frames for item in audible]
            edges = balanced(lengths, self._lanes.parts(len(audible)), RUN_FRAMES)
            jobs = [self.begin(audible[first:last]) for first, last in pairwise(edges)]
            began = time.perf_counter()
            outputs = self._lanes.share([partial(self.compute, job) for job in jobs])
            self.seconds += time.perf_counter() - began
            for job, output in zip(jobs, outputs, strict=True):
                self.finish(job, output)
        self.end(items)

    def begin(self, items: list[Item]) -> VocoderJob:
        """What the graph reads for these items, who all have frames ready; they may go on decoding meanwhile."""
        lengths = np.array([item.ready_frames for item in items], dtype=np.int64)
        codes = np.zeros((len(items), max(MIN_FRAMES, int(lengths.max()))), dtype=np.int64)
        for row, (item, length) in enumerate(zip(items, lengths, strict=True)):
            codes[row, :length] = item.pending[:length]
        places = np.array([item.row for item in items])
        fresh = places[[item.fresh_vocoder for item in items]]
        feeds = {"codes": codes, "lengths": lengths}
        for name, state in self.states.items():
            state[fresh] = 0
            feeds[name] = state[places]
        return VocoderJob(items, places, lengths, feeds)

    def compute(self, job: VocoderJob) -> dict[str, np.ndarray]:
        """The graph run alone: touches no item, so that it may run beside everything else."""
        return self.session.run(job.feeds)

    def finish(self, job: VocoderJob, outputs: dict[str, np.ndarray]) -> None:
        """Hand the sound to the items that are still there."""
        for name, state in self.states.items():
            state[job.places] = outputs["next_" + name]
        pcm = np.clip(outputs["pcm"], -1.0, 1.0)
        for row, (item, length) in enumerate(zip(job.items, job.lengths.tolist(), strict=True)):
            if item.finish_reason is not None:
                continue
            sound = pcm[row, : length * self._frame_samples].copy()
            if np.isfinite(sound).all():
                item.sound(sound, length)
            else:
                self._pool.finish(item, "error", "the vocoder gave non-finite audio for this request")

    def end(self, items: list[Item]) -> None:
        """Of these items, turn those whose sentence has sounded to the end to the next one, or finish them."""
        for item in items:
            if item.stage is Stage.FLUSH and not item.pending:
                self._end_sentence(item)

    def warm_up(self) -> None:
        """Run the widest there is, once a lane."""
        for frames in (MIN_FRAMES, LONG_CHUNK):
            rows = min(self._pool.capacity, RUN_FRAMES // frames)
            feeds = {"codes": np.zeros((rows, frames), np.int64), "lengths": np.full(rows, frames)}
            feeds |= {name: state[:rows] for name, state in self.states.items()}
            self._lanes.warm_up(partial(self.session.run, feeds))

    def _end_sentence(self, item: Item) -> None:
        item.sentences_done += 1
        if item.next_sentence is None and not item.cut_short:
            self._pool.finish(item, "stop")
        elif item.has_room:
            item.start_next_sentence(self._frame_samples)
        else:
            self._pool.finish(item, "length")

    def _rows(self, voice: Voice, name: str) -> np.ndarray:
        shape = self.session.input_shapes[name][1:]
        if not all(isinstance(size, int) for size in shape) or "next_" + name not in self.session.output_shapes:
            raise VoiceError(
                f"vocoder state {name} of voice {voice.name} needs a fixed shape and an output next_{name}"
            )
        return np.zeros((self._pool.capacity, *shape), dtype=np.float32)
