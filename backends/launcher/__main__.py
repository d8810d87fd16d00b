"""Serve the voice with tritonserver.

python -m backends.launcher                          # gRPC 8001, HTTP 8000, metrics 8002
python -m backends.launcher --grpc-port 0            # any free port; the addresses are printed
python -m backends.launcher --set capacity=64 --set serving=batched     # engine settings, over config.pbtxt's
python -m backends.launcher --host 0.0.0.0 --log-verbose 1   # to the whole network; tritonserver's log on stderr

Ctrl-C (or SIGTERM) stops it: open streams may finish for up to a minute; a second Ctrl-C ends them at once.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from pathlib import Path

from backends.launcher.server import REPOSITORY, LauncherError, running_server
from backends.launcher.settings import parse_settings


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m backends.launcher", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model-repository", type=Path, default=REPOSITORY)
    parser.add_argument("--grpc-port", type=int, default=8001, help="0: any free port (default: 8001)")
    parser.add_argument("--http-port", type=int, default=8000, help="0: any free port (default: 8000)")
    parser.add_argument("--metrics-port", type=int, default=8002, help="0: any free port (default: 8002)")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: this machine only)")
    parser.add_argument("--log-verbose", type=int, default=0, metavar="LEVEL", help="show tritonserver's log")
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="an engine setting, over config.pbtxt's"
    )
    parser.add_argument("--traces", metavar="URL", help="OpenTelemetry collector: http://localhost:4318/v1/traces")
    args = parser.parse_args()

    def stop(*_: object) -> None:
        os.write(2, b"stopping: open streams may finish; once more ends them\n")
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    try:
        with running_server(
            args.model_repository.resolve(),
            grpc_port=args.grpc_port,
            http_port=args.http_port,
            metrics_port=args.metrics_port,
            host=args.host,
            verbose=args.log_verbose,
            settings=parse_settings(args.set),
            traces=args.traces,
        ) as server:
            print(f"ready: gRPC {server.grpc_url}  HTTP {server.http_url}  metrics {server.metrics_url}/metrics")
            print(f'try:   tts-client say "Hello there." -o hello.wav --url {server.grpc_url}', flush=True)
            while server.alive:
                time.sleep(0.5)
            print(f"tritonserver stopped by itself: {server.complaint()}", file=sys.stderr)
            return 1
    except LauncherError as error:
        print(f"cannot serve: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 0


if __name__ == "__main__":
    sys.exit(main())
