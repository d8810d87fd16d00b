"""Looks after open streams from a thread of its own: clients that left, deadlines that passed."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Protocol

logger = logging.getLogger(__name__)
ROUND_SECONDS = 0.001  # between two looks at a stream; an engine step is one to five
LONGEST_SECONDS = 0.05  # that nobody looks, where a look took long because the machine is busy
SHARE = 0.1  # of this thread's time at most: asking Triton costs some 0.1 ms a stream, too much between two steps
FAILED_SECONDS = 1.0  # until the next look where one failed: what fails once may fail at every look, a log line each


class Watched(Protocol):
    """The part of `stream.Stream` that is looked after."""

    def look(self) -> None: ...


class Watch:
    """Runs from the start. `after_round` is called in its thread after every look at all streams, and once more after
    the last one has left. An exception in one of these is logged, and the others go on: nobody else notices who left.
    """

    def __init__(self, after_round: Callable[[], None]) -> None:
        self._after_round = after_round
        self._streams: set[Watched] = set()
        self._left = False  # a stream has, since the last look
        self._changed = threading.Condition()
        self._ended = False
        self._thread = threading.Thread(target=self._run, name="tts-watch", daemon=True)
        self._thread.start()

    def add(self, stream: Watched) -> None:
        with self._changed:
            self._streams.add(stream)
            self._changed.notify()

    def remove(self, stream: Watched) -> None:
        with self._changed:
            self._streams.discard(stream)
            self._left = True
            self._changed.notify()

    def __len__(self) -> int:
        """Streams that have not ended."""
        return len(self._streams)

    def stop(self) -> None:
        with self._changed:
            self._ended = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._streams or self._left or self._ended)
                if self._ended:
                    return
                self._left = False
                streams = list(self._streams)
            began = time.monotonic()
            looked = [_attempt(stream.look) for stream in streams]
            took = time.monotonic() - began
            well = _attempt(self._after_round) and all(looked)
            time.sleep(min(LONGEST_SECONDS, max(ROUND_SECONDS, took / SHARE)) if well else FAILED_SECONDS)


def _attempt(call: Callable[[], None]) -> bool:
    """Whether it came through."""
    try:
        call()
    except Exception:
        logger.exception("looking after open streams failed; again in %g s", FAILED_SECONDS)
        return False
    return True
