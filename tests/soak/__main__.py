"""Run the soak against a server of its own.

    python -m tests.soak                      # 20,000 streams, minutes
    python -m tests.soak --streams 2000 --seed 3
    python -m tests.soak --repository DIR     # another model repository

A table for people, one JSON line last; exit status 1 when anything was lost.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from pathlib import Path

from backends.launcher import running_server
from tests.soak.soak import soak


def main() -> int:
    parser = argparse.ArgumentParser(
        "python -m tests.soak", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--streams", type=int, default=20_000)
    parser.add_argument("--together", type=int, default=24, help="streams open at once")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--repository", type=Path, default=Path("model_repository"))
    args = parser.parse_args()
    with running_server(args.repository.resolve()) as server:
        result = asyncio.run(soak(server, args.streams, args.together, args.seed))
    for name, value in result.items():
        print(f"{name:28} {value}")
    print(json.dumps(result))
    return 1 if result["faults"] else 0


if __name__ == "__main__":
    sys.exit(main())
