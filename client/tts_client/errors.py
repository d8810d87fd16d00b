"""What can go wrong on the way to speech, one class for each thing a caller would do about it."""

from __future__ import annotations

import re

import grpc

# Triton's gRPC streams carry the text of an error without its code. (The header `triton_grpc_error` would bring the
# code, but it crashes tritonserver 2.51 in a race: one refused request in 5 to 200.) So the texts are told apart.
_REQUEST_ID = re.compile(r"^\[request id: [^]]*\] ")
_NO_MODEL = re.compile(r"unknown model|not ready|no available versions")
_FULL = re.compile(r"try again later")
_TOO_LATE = re.compile(r"timeout passed")
_SERVER_FAULT = re.compile(r"failed|non-finite|stub process|internal", re.IGNORECASE)


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


def from_text(message: str) -> TTSError:
    """The error for a text that the server sent in place of audio."""
    message = _REQUEST_ID.sub("", message)
    if _FULL.search(message):
        return Unavailable(message)
    if _NO_MODEL.search(message):
        return Unavailable(f"{message} (the server is up: is the model loaded, and its name right?)")
    if _TOO_LATE.search(message):
        return DeadlineExceeded(message)
    if _SERVER_FAULT.search(message):
        return ServerError(f"{message} (look at the server's log)")
    return InvalidArgument(message)
