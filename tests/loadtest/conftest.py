"""The pooled server on the tiny voice, as the server tests have it, and the folder it serves."""

from __future__ import annotations

from tests.server.conftest import repository, server

__all__ = ["repository", "server"]
