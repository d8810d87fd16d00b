"""Measure the pooled server and its non-incremental twin under load; writes results/load.json and results/load/.

    python -m loadtest             # a quarter of an hour on two cores that do nothing else
    python -m loadtest --quick     # minutes; the same report from few requests

Starts its own servers, one after the other. Prints a table for people, and one JSON line last.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from loadtest.figures import verdicts
from loadtest.report import write
from loadtest.servers import ServerError
from loadtest.sweep import QUICK, Plan, measure
from tts_client import TTSError


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m loadtest", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="few requests of each kind")
    parser.add_argument("--model-repository", type=Path, help="what to serve (default: this checkout's)")
    parser.add_argument("--out", type=Path, default=Path("results"))
    args = parser.parse_args()
    plan = QUICK if args.quick else Plan()
    try:
        results = measure(plan, args.model_repository)
    except (ServerError, TTSError) as error:
        print(f"cannot measure: {error}", file=sys.stderr)
        return 1
    result = write(results, plan, args.out, args.quick)
    for meaning, value, bar, verdict in verdicts(result):
        print(f"{meaning:80} {value:>12}   bar {bar:12} {verdict}")
    print(f"report: {args.out / 'load' / 'report.html'}")
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
