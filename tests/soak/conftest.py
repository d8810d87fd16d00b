"""The server of the server tests."""

from tests.server.conftest import repository, server

__all__ = ["repository", "server"]
