"""Say one text through a server of its own: `python -m backends.launcher.speak TEXT -o out.wav` (`make speak`).

All arguments are those of `tts-client say`; the server runs on free ports and is stopped afterwards.
"""

from __future__ import annotations

import subprocess
import sys

from backends.launcher.server import LauncherError, running_server


def main() -> int:
    """The exit status of the client, or 1 with one sentence where the server cannot start."""
    print("starting tritonserver …", file=sys.stderr)
    try:
        with running_server() as server:
            # A process of its own: the client is judged as its users run it, and knows the server by its address only.
            command = [sys.executable, "-m", "tts_client", "say", *sys.argv[1:], "--url", server.grpc_url]
            return subprocess.run(command).returncode
    except LauncherError as error:
        print(f"cannot serve: {error}", file=sys.stderr)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
