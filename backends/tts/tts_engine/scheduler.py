"""Scheduler: who runs in this step, by the listeners' clocks. A pure choice; it holds no tensors."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

from tts_engine.item import Item, Stage

MEMORY = 0.1  # share of a new step in the running means
RUN_FRAMES = 160  # of a vocoder run, padding included; about 15 ms of one core, and larger ones are no cheaper a frame
# So many requests go to their first chunk as one group, the oldest; of 33 and more, this share. Of 32 at once half
# hear theirs after 105 ms through Triton, in groups of 20 after 114; smaller groups fill their runs too little.
GROUP = 18
FIRST_SHARE = 0.5625
FEW = 4  # more than these at one moment are a crowd, whose requests come one every 0.2 ms
MARGIN_SECONDS = 0.1  # a listener with less audio left than this, and than the next chunk takes, is about to starve


class Scheduler:
    """Items without a first chunk come first; while there are any, only those whose listeners would run dry run beside
    them. Listeners far from running dry lose nothing, as one step is a few milliseconds. Nobody is sent more than
    `max_lead_seconds` (0: no bound) ahead.
    """

    def __init__(self, sample_rate: int, max_lead_seconds: float) -> None:
        self._rate = sample_rate
        self._lead = max_lead_seconds or float("inf")
        self._now = 0.0
        self._begun = 0  # of those who wait for a first chunk
        self._plain = False  # nobody waits for a first chunk, nobody is too far ahead: everyone's turn
        self._step_seconds = 0.0
        self._first_chunk_seconds = 0.0
        self._spent = 0.0  # in steps with first chunks to make, since the last one came

    def begin(self, items: Sequence[Item]) -> int:
        """A step begins with these items in flight; how many of them have heard nothing yet."""
        self._now = now = time.perf_counter()
        silent, far = 0, False
        self._begun = 0
        for item in items:
            if item.first_chunk_seconds is None:
                silent += 1
                self._begun += item.stage is not Stage.FRONTEND
            else:
                far = far or self.slack(item, now) >= self._lead
        self._plain = not (silent or far)
        return silent

    def slack(self, item: Item, now: float) -> float:
        """Seconds of audio that the listener still has; minus infinity before the first chunk."""
        if item.first_chunk_seconds is None:
            return float("-inf")
        return item.samples_sent / self._rate - (now - item.submitted - item.first_chunk_seconds)

    def starving(self, item: Item, now: float) -> bool:
        """Whether the listener may run dry before the next chunk is there, or has heard nothing yet."""
        missing = max(0, item.chunk_frames - len(item.pending)) + 2
        return self.slack(item, now) < MARGIN_SECONDS + 1.5 * missing * self._step_seconds

    def pick(self, items: Sequence[Item]) -> list[Item]:
        """Of the items that wait for a module, those that it serves now."""
        if self._plain or not items:
            return list(items)
        now = self._now
        urgent = [item for item in items if self.starving(item, now)]
        if any(item.first_chunk_seconds is None for item in urgent):
            return urgent
        return [item for item in items if self.slack(item, now) < self._lead]

    def gathers(self, came: int) -> bool:
        """Whether so many, who came at one moment, are the beginning of a group that is worth a little waiting."""
        return FEW < came < GROUP - self._begun

    def follows(self, came: int) -> bool:
        """Whether so many, who came during a prefill, belong to its group."""
        return came > FEW and self._begun < GROUP

    def enter(self, waiting: Sequence[Item], joins: bool) -> list[Item]:
        """Of the items whose sentence has not begun, oldest first, those that begin now.

        joins: there are others' prompts to be prefilled next, which these would share.
        """
        chosen = self.pick(waiting)
        silent = [item for item in chosen if item.first_chunk_seconds is None]
        together = self._begun + len(silent)
        most = max(GROUP, math.ceil(FIRST_SHARE * together))
        room = max(0, most - self._begun)
        # A few of many would hold up the group that is under way, for a prefill of their own.
        if len(silent) > room and room < most // 2 and not joins:
            room = 0
        later = silent[room:]
        self._begun += len(silent) - len(later)
        return [item for item in chosen if item not in later] if later else chosen

    def span(self, decoding: Sequence[Item]) -> list[Item]:
        """Of the items in slot order, the neighbours that decode now: all, or the last ones, where the new ones are."""
        chosen = self.pick(decoding)
        if len(chosen) == len(decoding) or not chosen:
            return chosen
        return list(decoding[min(item.slot for item in chosen) : 1 + max(item.slot for item in chosen)])

    def voices(self, ready: Sequence[Item]) -> list[Item]:
        """Of the items with frames for the vocoder, those of its next run: the least slack first, and not so many that
        a first chunk that comes meanwhile waits for long."""
        now, longest = self._now, 0
        chosen: list[Item] = []
        for item in sorted(self.pick(ready), key=lambda item: self.slack(item, now)):
            longest = max(longest, item.ready_frames)
            if chosen and longest * (len(chosen) + 1) > RUN_FRAMES:
                break
            chosen.append(item)
        return chosen

    def took(self, seconds: float, waited: int, first_chunks: int) -> None:
        """A step is over, in which so many waited for their first chunk; it brought so many."""
        self._step_seconds += MEMORY * (seconds - self._step_seconds)
        if waited:
            self._spent += seconds
        if first_chunks:
            self._first_chunk_seconds += MEMORY * (self._spent / first_chunks - self._first_chunk_seconds)
            self._spent = 0.0

    def projected_first_chunk(self, before: int) -> float:
        """Seconds until the first chunk of a request that comes now, with `before` others still without theirs."""
        return (before + 1) * self._first_chunk_seconds


def without_first_chunk(items: Sequence[Item]) -> int:
    """How many listeners have heard nothing yet."""
    return sum(item.first_chunk_seconds is None and item.stage is not Stage.FINISHED for item in items)
