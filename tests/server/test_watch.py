"""The watch, without Triton: what one stream or a report does wrong is nobody else's."""

from __future__ import annotations

import logging
import threading

import pytest
import watch


class Looked:
    """A stream that counts the looks at it."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.looks = 0
        self.seen = threading.Event()  # more than once

    def look(self) -> None:
        self.looks += 1
        if self.looks > 1:
            self.seen.set()
        if self.error:
            raise self.error


@pytest.mark.parametrize("culprit", ["stream", "report"])
def test_the_watch_outlives_a_failure(
    culprit: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(watch, "FAILED_SECONDS", 0.01)

    def report() -> None:
        if culprit == "report":
            raise RuntimeError("no such metric")

    broken, sound = Looked(RuntimeError("sender gone") if culprit == "stream" else None), Looked()
    with caplog.at_level(logging.ERROR):
        watched = watch.Watch(report)
        watched.add(broken)
        watched.add(sound)
        assert broken.seen.wait(10)
        assert sound.seen.wait(10)
        watched.stop()
    assert "looking after open streams failed" in caplog.text


def test_a_failure_is_not_a_flood_of_log_lines(caplog: pytest.LogCaptureFixture) -> None:
    broken = Looked(RuntimeError("sender gone"))
    with caplog.at_level(logging.ERROR):
        watched = watch.Watch(lambda: None)
        watched.add(broken)
        assert broken.seen.wait(10)
        watched.stop()
    assert len(caplog.records) == broken.looks <= 3  # a second apart
