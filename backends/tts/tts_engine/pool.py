"""The pool: the only owner of items. Whatever an item holds, `finish` frees."""

from __future__ import annotations

import threading

from tts_engine.chunk import FinishReason
from tts_engine.errors import CapacityExceeded
from tts_engine.item import Item, Stage
from tts_engine.kv_cache import KVCache


class Pool:
    """Items in flight, their key-value slots (kept in slot order in `decoding`) and their vocoder rows.

    `claim`, `unclaim` and `submit` may be called from any thread; all else belongs to the loop.
    """

    def __init__(self, capacity: int, cache: KVCache) -> None:
        self.capacity = capacity
        self.items: list[Item] = []
        self.decoding: list[Item] = []  # index = slot
        self.finished: list[Item] = []  # freed, final chunk not sent yet
        self._cache = cache
        self._rows = list(range(capacity - 1, -1, -1))
        self._arrived: list[Item] = []
        self._lock = threading.Lock()
        self._claimed = 0

    @property
    def claimed(self) -> int:
        """Requests in flight, those not admitted yet included."""
        return self._claimed

    def claim(self) -> None:
        """Take one unit of capacity; CapacityExceeded at once where there is none."""
        with self._lock:
            if self._claimed >= self.capacity:
                raise CapacityExceeded(f"all {self.capacity} slots are taken; try again later")
            self._claimed += 1

    def unclaim(self) -> None:
        """Give a claimed unit back that no item came to use."""
        with self._lock:
            self._claimed -= 1

    def submit(self, item: Item) -> None:
        """Hand over an item whose place is claimed; the loop sees it at its next `admit`."""
        with self._lock:
            self._arrived.append(item)

    def admit(self) -> list[Item]:
        """Move arrived items in; those that are new."""
        with self._lock:
            arrived, self._arrived = self._arrived, []
        for item in arrived:
            item.row = self._rows.pop()
            self.items.append(item)
        return arrived

    @property
    def arrived(self) -> int:
        """Items that are not admitted yet."""
        return len(self._arrived)

    @property
    def oldest_arrival(self) -> float | None:
        """When the first of those not admitted yet was submitted (time.perf_counter()); None: nobody waits."""
        with self._lock:
            return min((item.submitted for item in self._arrived), default=None)

    @property
    def idle(self) -> bool:
        """Nothing in flight, nothing arrived, no final chunk to send."""
        return not (self.items or self._arrived or self.finished)

    def waiting(self, stage: Stage) -> list[Item]:
        """Items of a stage, oldest first."""
        return [item for item in self.items if item.stage is stage]

    def add_slots(self, items: list[Item]) -> int:
        """Neighbouring key-value slots for these items, in their order; the first slot."""
        start = self._cache.add(len(items))
        for slot, item in enumerate(items, start):
            item.slot = slot
        self.decoding.extend(items)
        return start

    def drop_slot(self, item: Item, *, scrub: bool = False) -> None:
        """Give an item's key-value slot back, if it has one; the last slot's item moves into it."""
        if item.slot < 0:
            return
        self._cache.remove(item.slot, scrub=scrub)
        moved = self.decoding.pop()
        if moved is not item:
            self.decoding[item.slot] = moved
            moved.slot = item.slot
        item.slot = -1

    def finish(self, item: Item, reason: FinishReason, error: str | None = None) -> None:
        """Free all an item holds, at once; its final chunk goes out at the next emit. A second call does nothing."""
        if item.finish_reason is not None:
            return
        item.finish_reason, item.error, item.stage = reason, error, Stage.FINISHED
        self.drop_slot(item, scrub=reason == "error")
        self._rows.append(item.row)
        item.row = -1
        if reason in ("cancelled", "error"):
            item.audio.clear()
        self.items.remove(item)
        self.finished.append(item)
        self.unclaim()
