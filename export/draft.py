"""Turn a trained draft (heads or MTP modules) into graphs beside the LM, each held to its torch module.

    python -m export.draft --draft checkpoints/rms/heads-4              # head_1.onnx … into model_repository/tts/1
    python -m export.draft --draft checkpoints/rms/heads-4 --variant int8
    python -m export.draft --draft checkpoints/rms/mtp-2 --out /srv/voice     # mtp_1.onnx, mtp_2.onnx

The sparse trees beside the draft (python -m training.calibrate) are copied too. A failed gate leaves everything as it
was. Graphs: export/draft_graphs.py.
"""

from __future__ import annotations

import argparse
import logging
import os
import shutil
import sys
from pathlib import Path

import numpy as np
import onnx
import torch
from numpy.typing import NDArray

from export import samples
from export.checkpoint import Checkpoint
from export.draft_gates import heads_gates, mtp_gates
from export.draft_graphs import build_head, build_mtp
from export.errors import ExportError
from export.gate import Gate, require, table
from export.lm import LlamaConfig
from export.manifest import vocabulary
from export.parity import spoken
from export.quantize import VARIANTS
from export.reference import reference_lm
from export.runtime import load
from training.models.draft_heads import DraftHeads
from training.models.mtp import MTP

FRAMES = 60  # of speech behind the gates' prompt


def export_draft(draft: Path, lm: Path, out: Path, variant: str = "fp32", threads: int = 1) -> list[Gate]:
    """Write the graphs of checkpoint `draft`, made for the LM checkpoint `lm`, and its trees into `out`.

    Raises:
        ExportError: the two do not fit each other, or a gate failed.
    """
    torch.set_num_threads(threads)
    checkpoint, base = Checkpoint(draft), Checkpoint(lm)
    check_pair(checkpoint, base)
    model = reference_lm(base)
    tokens = speech(lm, base)
    with torch.no_grad():
        hidden = model.hidden(torch.from_numpy(tokens))[0]
    if checkpoint.config["kind"] == "heads":
        heads = range(int(checkpoint.config["heads"]))
        graphs = {f"head_{head + 1}.onnx": build_head(checkpoint, base, head) for head in heads}
    else:
        modules = range(int(checkpoint.config["num_hidden_layers"]))
        graphs = {f"mtp_{module + 1}.onnx": build_mtp(checkpoint, base, module) for module in modules}
    served = {name: VARIANTS[variant](graph) for name, graph in graphs.items()}
    exact = [load(graph, threads) for graph in graphs.values()]
    sessions = [load(graph, threads) for graph in served.values()]
    if checkpoint.config["kind"] == "heads":
        gates = heads_gates(exact, sessions, DraftHeads.from_pretrained(draft), model, tokens, hidden, variant)
    else:
        gates = mtp_gates(exact, sessions, MTP.from_pretrained(draft), model, tokens, hidden, variant)
    require(gates)
    out.mkdir(parents=True, exist_ok=True)
    for name, graph in served.items():
        onnx.save(graph, out / f".{name}.partial")
        (out / f".{name}.partial").replace(out / name)
    for tree in sorted(draft.glob("tree_*.json")):
        shutil.copyfile(tree, out / tree.name)
    return gates


def check_pair(draft: Checkpoint, lm: Checkpoint) -> None:
    """ExportError where a draft was not trained for an LM of these sizes."""
    config = LlamaConfig.from_dict(lm.config)
    kind = draft.config.get("kind")
    if kind == "heads":
        theirs: tuple[int, ...] = (draft.config["hidden_size"], draft.config["logit_count"])
        ours: tuple[int, ...] = config.hidden_size, config.logit_count
    elif kind == "mtp":
        sizes = LlamaConfig.from_dict(draft.config)
        theirs = sizes.hidden_size, sizes.logit_offset, sizes.vocab_size
        ours = config.hidden_size, config.logit_offset, config.vocab_size
    else:
        raise ExportError(f"{draft.directory} holds no draft; train one with python -m training.draft")
    if theirs != ours:
        raise ExportError(f"{draft.directory} was trained for another LM than {lm.directory}; train the draft again")


def speech(lm: Path, checkpoint: Checkpoint) -> NDArray[np.int64]:
    """What the gates run on: a real prompt with random codes behind it, int64 [1, L + FRAMES, C]."""
    config = LlamaConfig.from_dict(checkpoint.config)
    prompt = samples.prompts(vocabulary(lm, config))[0]
    codes = np.random.default_rng(0).integers(0, config.logit_count - 1, FRAMES)
    return spoken(prompt, codes, config.logit_offset)


def main() -> int:
    parser = argparse.ArgumentParser(
        "python -m export.draft", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--draft", type=Path, required=True, help="checkpoint of draft heads or MTP modules")
    parser.add_argument("--lm", type=Path, default=Path("checkpoints/rms/lm"), help="the LM it was trained for")
    parser.add_argument("--out", type=Path, default=Path("model_repository/tts/1"), help="voice directory")
    parser.add_argument("--variant", default="fp32", choices=list(VARIANTS))
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="CPU threads (default: all)")
    args = parser.parse_args()
    logging.basicConfig(level=logging.WARNING)
    try:
        gates = export_draft(args.draft, args.lm, args.out, args.variant, args.threads)
    except (ExportError, ValueError, OSError) as error:
        print(f"export failed: {error}", file=sys.stderr)
        return 1
    print(table(gates))
    return 0


if __name__ == "__main__":
    sys.exit(main())
