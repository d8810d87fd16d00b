"""Turn torch checkpoints into the voice directory that the server loads.

    python -m export                                  # checkpoints/rms -> model_repository/tts/1
    python -m export --variant int8                   # serve the int8 language model
    python -m export --checkpoints my/voice --out /srv/models/tts/1 --name mine

Every graph is held to its torch module by gates (max error, 200 greedy tokens identical, chunked = one-shot, alone =
in company); a failed gate fails the export and leaves the old voice in place. All forms of the language model
(fp32, int8, nbits8, nbits4) go to variants/; the chosen one is lm.onnx. "auto" reads the choice from
lm/serving.json ({"variant": ...}), written after an evaluation, and is fp32 without one.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import time
from pathlib import Path


def main() -> int:
    parser = argparse.ArgumentParser(
        "python -m export", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--checkpoints", type=Path, default=Path("checkpoints/rms"), help="holds lm/, codec/, prosody/")
    parser.add_argument("--out", type=Path, default=Path("model_repository/tts/1"), help="voice directory to write")
    parser.add_argument("--name", help="the voice's name (default: the checkpoints' directory)")
    parser.add_argument("--variant", default="auto", choices=["auto", "fp32", "int8", "nbits8", "nbits4"])
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="CPU threads (default: all)")
    args = parser.parse_args()

    logging.basicConfig(level=logging.WARNING)  # before the exporters set it to one line a node
    from export.errors import ExportError  # torch takes seconds to load: not for --help
    from export.gate import table
    from export.pipeline import Options, export_voice

    started = time.monotonic()
    name = args.name or args.checkpoints.resolve().name
    try:
        gates = export_voice(Options(args.checkpoints, args.out, name, args.variant, args.threads))
    except (ExportError, ValueError, OSError) as error:
        print(f"export failed: {error}", file=sys.stderr)
        return 1
    print(table(gates))
    sizes = ", ".join(f"{path.name} {path.stat().st_size / 1e6:.1f} MB" for path in sorted(args.out.glob("*.onnx")))
    print(f"\nvoice {name} in {args.out} after {time.monotonic() - started:.0f} s: {sizes}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
