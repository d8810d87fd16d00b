"""Starts tritonserver on this repository's models: `python -m backends.launcher`."""

from backends.launcher.server import LauncherError, RunningServer, running_server

__all__ = ["LauncherError", "RunningServer", "running_server"]
