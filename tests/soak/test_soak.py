"""A short soak; `make soak` is the long one."""

from __future__ import annotations

import asyncio

from backends.launcher import RunningServer
from tests.soak.soak import soak


def test_nothing_is_lost_in_four_hundred_mixed_streams(server: RunningServer) -> None:
    result = asyncio.run(soak(server, 400, 12, seed=1))
    faults = [fault for fault in result["faults"] if "grew" not in fault]  # a short run is all warm-up
    assert faults == []
    assert result["spoken"] + result["cancelled"] + result["refused"] == 400
    assert min(result["spoken"], result["cancelled"], result["refused"], result["compared_with_alone"]) > 0
    assert set(result["memory_kb_at_the_end"]) == {"server", "stub"}
