"""Keys and values of all requests in one memory, bound in place by the graph that reads and extends them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tts_engine.errors import RequestError

SPARE = 4  # blocks up to which memories are kept for the next time: new pages cost ten times what copying does
BLOCK = 64  # attention pays for the whole T of every row, so T follows the longest request in steps of this


class KVCache:
    """One array `memory` [2 * layers, capacity, kv_heads, T, head_dim] float32; 2i: layer i keys, 2i + 1: values.

    Slots 0 … count - 1 are taken, so a prefix (or any range) of slots is a contiguous view that a graph takes as its
    batch without a copy. `lengths` int64 [capacity]: positions written a slot. `generation` names `memory`, to which
    graphs are bound; `generations` all that are kept. Stale positions hold finite numbers; attention masks them.
    """

    def __init__(self, layers: int, capacity: int, kv_heads: int, head_dim: int, max_positions: int) -> None:
        self._shape = (2 * layers, capacity, kv_heads, head_dim)
        self.max_positions = max_positions
        self.lengths = np.zeros(capacity, dtype=np.int64)
        self.count = 0
        self.generation = self._newest = 0
        # By T, with their generations; what is in them is stale and finite.
        self._spare: dict[int, tuple[int, NDArray[np.float32]]] = {}
        self.memory = self._allocate(BLOCK)

    @property
    def positions(self) -> int:
        """T, the positions every slot has room for."""
        return self.memory.shape[3]

    @property
    def capacity(self) -> int:
        return self.memory.shape[1]

    @property
    def generations(self) -> set[int]:
        return {self.generation, *(generation for generation, _ in self._spare.values())}

    def add(self, count: int) -> int:
        """Take `count` neighbouring slots at the end; the first one's number. Nothing is copied."""
        if self.count + count > self.capacity:
            raise RequestError(f"the key-value cache has {self.capacity} slots and all are taken")
        start = self.count
        self.lengths[start : start + count] = 0
        self.count += count
        return start

    def remove(self, slot: int, *, scrub: bool = False) -> None:
        """Give a slot back. The last slot moves into its place (the only copy, of that slot's written positions).

        scrub: also zero what is left behind; for a slot that may hold NaN, which masking would not stop.
        """
        last = self.count - 1
        if scrub:
            self.memory[:, slot] = 0
            self._spare.clear()
        if slot != last:
            length = int(self.lengths[last])
            self.memory[:, slot, :, :length] = self.memory[:, last, :, :length]
            self.lengths[slot] = length
        self.lengths[last] = 0
        self.count = last

    def reserve(self, positions: int) -> None:
        """Make room for `positions` a slot: grow T, or shrink it where two blocks are unused or nothing is written.

        Moves every written position, but only once in `BLOCK` steps. RequestError above max_positions.
        """
        if positions > self.max_positions:
            raise RequestError(f"a sentence needs {positions} positions and the voice has {self.max_positions}")
        wanted = min(-(-positions // BLOCK) * BLOCK, -(-self.max_positions // BLOCK) * BLOCK)
        spare = self.positions - wanted
        if spare == 0 or (0 < spare < 2 * BLOCK and self.lengths.any()):
            return
        old = self.memory
        if old.shape[3] <= SPARE * BLOCK:
            self._spare[old.shape[3]] = self.generation, old
        if wanted in self._spare:
            self.generation, self.memory = self._spare.pop(wanted)
        else:
            self._newest += 1
            self.generation, self.memory = self._newest, self._allocate(wanted)
        for slot in range(self.count):
            length = int(self.lengths[slot])
            self.memory[:, slot, :, :length] = old[:, slot, :, :length]

    def layers(self, start: int, stop: int) -> list[NDArray[np.float32]]:
        """Contiguous views [stop - start, kv_heads, T, head_dim]: layer 0's keys, its values, layer 1's, …"""
        return [layer[start:stop] for layer in self.memory]

    def compact(self, slot: int, positions: NDArray[np.int64]) -> None:
        """Move these (ascending) positions written behind `lengths[slot]` up to it: an accepted tree path."""
        length = int(self.lengths[slot])
        self.memory[:, slot, :, length : length + len(positions)] = self.memory[:, slot][:, :, positions]

    def _allocate(self, positions: int) -> NDArray[np.float32]:
        # Zeroed, as 0 * NaN is NaN; the kernel hands out zero pages lazily, so unused slots cost no memory.
        tensors, capacity, heads, size = self._shape
        return np.zeros((tensors, capacity, heads, positions, size), dtype=np.float32)
