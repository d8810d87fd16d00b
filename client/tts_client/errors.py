"""What can go wrong on the way to speech, one class for each thing a caller would do about it."""

from __future__ import annotations

import grpc


class TTSError(Exception):
    """Base of all errors of this package; the message is one sentence that says what to do."""


class ServerUnreachable(TTSError):
    """Nothing answers at the address, or the connection broke."""


class Unavailable(TTSError):
    """The server answers but cannot take the request now: all slots are taken, or the model is not loaded."""


class InvalidArgument(TTSError):
    """The request itself is wrong; sending it again will not help."""


class DeadlineExceeded(TTSError):
    """The request did not finish within its timeout."""


class Cancelled(TTSError):
    """The stream was cancelled, here or by the server."""


class ServerError(TTSError):
    """The server failed; its log says more."""


def unreachable(url: str, chunks: int = 0) -> ServerUnreachable:
    """The error for a server that does not answer, before or after some chunks of a stream."""
    if chunks:
        return ServerUnreachable(f"the server at {url} went away after {chunks} chunks: look at its log")
    return ServerUnreachable(f"no server at {url}: is `make serve` running?")


def from_status(code: grpc.StatusCode, details: str) -> TTSError:
    """The error for a gRPC status that the server itself sent."""
    details = details.strip() or f"gRPC status {code.name}"
    match code:
        case grpc.StatusCode.UNAVAILABLE:
            return Unavailable(f"{details} (the server is up: try again later)")
        case grpc.StatusCode.NOT_FOUND:
            return Unavailable(f"{details} (the server is up: is the model loaded, and its name right?)")
        case grpc.StatusCode.INVALID_ARGUMENT | grpc.StatusCode.OUT_OF_RANGE | grpc.StatusCode.UNIMPLEMENTED:
            return InvalidArgument(details)
        case grpc.StatusCode.DEADLINE_EXCEEDED:
            return DeadlineExceeded("the request did not finish in time: give it a longer timeout, or less text")
        case grpc.StatusCode.CANCELLED:
            return Cancelled("the stream was cancelled")
        case _:
            return ServerError(f"{details} (gRPC status {code.name}: look at the server's log)")
