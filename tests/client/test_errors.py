"""Errors that a healthy server does not send, in the words of the backend and of Triton."""

from __future__ import annotations

import pytest

from tts_client import DeadlineExceeded, ServerError, TTSError, Unavailable
from tts_client.errors import from_text


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("prefill failed: out of memory", ServerError),
        ("the language model gave non-finite logits for this request", ServerError),
        ("Failed to process the request(s) for model instance 'tts_0_0', message: Stub process is down", ServerError),
        ("the request's timeout passed before its audio was done", DeadlineExceeded),
        ("Request for unknown model: 'tts' has no available versions", Unavailable),
    ],
)
def test_texts_without_a_code_are_told_apart(text: str, kind: type[TTSError]) -> None:
    error = from_text(f"[request id: r7] {text}")
    assert type(error) is kind
    assert str(error).startswith(text)
