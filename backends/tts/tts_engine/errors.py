"""What can go wrong, told in one sentence that says what to do."""

from __future__ import annotations


class RequestError(Exception):
    """A request that cannot be served; the engine itself is fine."""


class InvalidRequest(RequestError):
    """The request is wrong: empty text, an unknown or out-of-range parameter, a reference the voice cannot use."""


class CapacityExceeded(RequestError):
    """All slots are taken; try again later."""


class VoiceError(Exception):
    """The voice directory cannot be used."""
