"""The repository of the server tests; servers that are to be broken are started one by one."""

from tests.server.conftest import Gauges, gauges, repository, server, speaker

__all__ = ["Gauges", "gauges", "repository", "server", "speaker"]
