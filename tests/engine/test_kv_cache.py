"""Slots come and go without touching their neighbours; T grows and shrinks around what is written."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tts_engine.errors import RequestError
from tts_engine.kv_cache import BLOCK, KVCache


def filled(cache: KVCache, slot: int, length: int, value: float) -> None:
    cache.memory[:, slot, :, :length] = value
    cache.lengths[slot] = length


def test_views_are_contiguous_and_the_same_memory() -> None:
    cache = KVCache(layers=2, capacity=4, kv_heads=1, head_dim=8, max_positions=256)
    assert cache.add(3) == 0
    views = cache.layers(1, 3)
    assert len(views) == 4
    for index, view in enumerate(views):
        assert view.shape == (2, 1, BLOCK, 8)
        assert view.flags.c_contiguous
        view[0] = index
    assert [cache.memory[index, 1].max() for index in range(4)] == [0, 1, 2, 3]


def test_removing_copies_only_the_last_slot() -> None:
    cache = KVCache(2, 4, 1, 8, 256)
    cache.add(4)
    for slot in range(4):
        filled(cache, slot, 10 + slot, slot + 1)
    untouched = [cache.memory[:, slot].copy() for slot in (0, 2)]
    cache.remove(1)
    assert cache.count == 3
    assert cache.lengths.tolist() == [10, 13, 12, 0]
    assert (cache.memory[:, 1, :, :13] == 4).all()
    for slot, before in zip((0, 2), untouched, strict=True):
        np.testing.assert_array_equal(cache.memory[:, slot], before)


def test_scrub_leaves_no_nan_behind() -> None:
    cache = KVCache(1, 2, 1, 8, 64)
    cache.add(2)
    filled(cache, 0, 20, np.nan)
    filled(cache, 1, 5, 1.0)
    cache.remove(0, scrub=True)
    assert np.isfinite(cache.memory).all()
    assert (cache.memory[:, 0, :, :5] == 1).all()


def test_a_memory_used_again_holds_what_is_written_and_no_number_that_is_none() -> None:
    cache = KVCache(2, 3, 1, 8, 300)
    cache.add(2)
    filled(cache, 0, 40, 1.0)
    filled(cache, 1, 30, 2.0)
    small = cache.memory
    cache.reserve(100)
    filled(cache, 0, 40, 3.0)
    cache.reserve(100)
    cache.lengths[:] = 0
    cache.reserve(40)
    assert cache.memory is small
    filled(cache, 1, 40, np.nan)
    cache.reserve(100)
    cache.remove(1, scrub=True)
    cache.lengths[:] = 0
    cache.reserve(40)
    assert np.isfinite(cache.memory).all()


def test_growth_and_shrinking_keep_what_is_written() -> None:
    cache = KVCache(2, 3, 1, 8, 300)
    cache.add(2)
    filled(cache, 0, 60, 1.0)
    filled(cache, 1, 30, 2.0)
    generation = cache.generation
    cache.reserve(65)
    assert cache.positions == 2 * BLOCK
    assert cache.generation > generation
    cache.reserve(300)
    assert cache.positions == 5 * BLOCK
    cache.reserve(4 * BLOCK)  # one block unused: stays, so that a boundary is not crossed to and fro
    assert cache.positions == 5 * BLOCK
    cache.reserve(61)
    assert cache.positions == BLOCK
    assert (cache.memory[:, 0, :, :60] == 1).all()
    assert (cache.memory[:, 1, :, :30] == 2).all()
    with pytest.raises(RequestError, match="300"):
        cache.reserve(301)


def test_full_cache_refuses() -> None:
    cache = KVCache(1, 2, 1, 8, 64)
    cache.add(2)
    with pytest.raises(RequestError, match="2 slots"):
        cache.add(1)


def test_compact_moves_an_accepted_path_up() -> None:
    cache = KVCache(1, 2, 1, 8, 64)
    cache.add(2)
    cache.memory[:, 1, 0, :, 0] = np.arange(BLOCK)
    cache.lengths[1] = 10
    cache.compact(1, np.array([10, 12, 15]))
    assert cache.memory[0, 1, 0, 8:14, 0].tolist() == [8, 9, 10, 12, 15, 13]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["add", "remove", "extend"]), st.integers(0, 9)), max_size=40))
def test_any_history_keeps_each_owner_its_own_content(history: list[tuple[str, int]]) -> None:
    cache = KVCache(1, 5, 1, 2, 512)
    owners: list[int] = []
    length_of: dict[int, int] = {}
    for serial, (action, pick) in enumerate(history):
        if action == "add" and cache.count < cache.capacity:
            slot = cache.add(1)
            assert slot == len(owners)
            owners.append(serial)
            cache.reserve(max(20, int(cache.lengths.max())))
            filled(cache, slot, 20, serial)
            length_of[serial] = 20
        elif owners and action == "remove":
            slot = pick % len(owners)
            cache.remove(slot)
            last = owners.pop()
            if slot < len(owners):
                owners[slot] = last
        elif owners:
            slot = pick % len(owners)
            owner = owners[slot]
            length_of[owner] = min(length_of[owner] + 40, 512)
            cache.reserve(int(max(cache.lengths.max(), length_of[owner])))
            filled(cache, slot, length_of[owner], owner)
        assert cache.count == len(owners)
        for slot, owner in enumerate(owners):
            assert cache.lengths[slot] == length_of[owner]
            assert (cache.memory[:, slot, :, : length_of[owner]] == owner).all()
