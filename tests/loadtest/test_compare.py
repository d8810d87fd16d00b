"""Two builds compared: a difference is found, none is not, and both servers are asked."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from backends.launcher import RunningServer
from loadtest.compare import main, measure, ratio


def test_a_difference_within_turns_shows_through_what_changes_between_them() -> None:
    rng = np.random.default_rng(3)
    machine = rng.uniform(1, 3, 100)  # as fast as its neighbours let it
    before, after = 20 * machine * rng.normal(1, 0.1, 100), 18 * machine * rng.normal(1, 0.1, 100)
    middle, low, high = ratio(before, after)
    assert low < 0.9 < high < 1
    assert low < middle < high
    _, low, high = ratio(before, before * rng.normal(1, 0.1, 100))
    assert low < 1 < high


def test_first_chunks_of_every_server_width_and_turn(server: RunningServer) -> None:
    times = measure([server.grpc_url, server.grpc_url], (1, 3), turns=2)
    assert times.shape == (2, 2, 2)
    assert (times > 0).all() and len(np.unique(times)) == times.size


def test_a_checkout_without_its_own_python_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"no \.venv/bin/python; run `make export` there"):
        main([str(tmp_path), str(tmp_path)])


@pytest.mark.parametrize("option", ["--turns", "--together"])
def test_nothing_to_measure_is_refused(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([".", ".", option, "0"])
    assert "must be at least 1" in capsys.readouterr().err
