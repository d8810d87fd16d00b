"""The drafts of a voice: whatever lies beside its LM becomes graphs, groups and an entry of voice.json."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from export import parity
from export.checkpoint import Checkpoint, read_json
from export.draft import export_draft
from export.errors import ExportError
from export.gate import Gate, require
from export.lm import LlamaConfig, build_lm
from export.manifest import digest
from export.quantize import VARIANTS
from export.reference import reference_lm
from export.runtime import load
from tts_engine.speculative import Groups

# Cosines of the LM's embeddings above which codes sound alike (PCG, section 2.1); sizes are in docs/NOTES.md.
THETAS = (0.6, 0.7, 0.8, 0.9)
TREES = "tree_*.json"
STALE = ("head_*.onnx", "mtp_*.onnx", "draft.onnx", "groups_*.npz", TREES)  # what an earlier export may have left


def export_drafts(
    checkpoints: Path, staging: Path, variant: str, threads: int, prompt: NDArray[np.int64]
) -> tuple[dict[str, Any], list[Gate]]:
    """Write all drafts found in `checkpoints` (heads-*, mtp-*, draft-*, the first of each) into `staging`.

    Returns:
        The manifest's "speculation", and the rows of the table.

    Raises:
        ExportError: a draft does not fit the LM, lacks its calibration, or a gate failed.
    """
    lm = checkpoints / "lm"
    config = LlamaConfig.from_dict(Checkpoint(lm).config)
    found = {kind: next(iter(sorted(checkpoints.glob(f"{kind}-*"))), None) for kind in ("heads", "mtp", "draft")}
    entries: dict[str, Any] = {}
    gates: list[Gate] = []
    if found["heads"]:
        acceptance = _acceptance(found["heads"])  # first, as it says what to run where the calibration is missing
        gates += export_draft(found["heads"], lm, staging, variant, threads)
        fields = read_json(found["heads"] / "config.json")
        tree = json.loads(max(staging.glob(TREES), key=lambda path: path.stat().st_size).read_text())
        entries["medusa"] = {
            "files": _files(staging, *(f"head_{head + 1}" for head in range(fields["heads"]))),
            "heads": fields["heads"],
            "reads_path": fields["reads_path"],
            "parents": tree["parents"],
            "ranks": tree["ranks"],
            "acceptance": acceptance,
        }
    if found["mtp"]:
        gates += export_draft(found["mtp"], lm, staging, variant, threads)
        fields = read_json(found["mtp"] / "config.json")
        modules = int(fields["num_hidden_layers"])
        entries["mtp"] = {
            "files": _files(staging, *(f"mtp_{module + 1}" for module in range(modules))),
            "modules": modules,
            "reads_next_token": fields["reads_next_token"],
            "acceptance": [max(ranks[0], 1e-3) for ranks in _acceptance(found["mtp"])],
        }
    if found["draft"]:
        gates += _draft_model(found["draft"], config, staging, variant, threads, prompt)
        layers = LlamaConfig.from_dict(Checkpoint(found["draft"]).config).layers
        entries["draft"] = {
            "files": _files(staging, "draft"),
            "layers": layers,
            "acceptance": _acceptance(found["draft"]),
        }
    for name, kind in (("medusa", "heads"), ("mtp", "mtp"), ("draft", "draft")):
        draft = found[kind]
        if draft and (draft / "serving.json").exists():
            entries[name]["theta"] = float(read_json(draft / "serving.json")["theta"])
    if entries:
        entries["groups"] = {"files": _groups(lm, config, staging)}
    return entries, gates


def remove_stale(voice: Path) -> None:
    """Delete the drafts of an earlier export."""
    for pattern in STALE:
        for path in voice.glob(pattern):
            path.unlink()


def _draft_model(
    checkpoint: Path, lm: LlamaConfig, staging: Path, variant: str, threads: int, prompt: NDArray[np.int64]
) -> list[Gate]:
    source = Checkpoint(checkpoint)
    own = LlamaConfig.from_dict(source.config)
    same = ("vocab_size", "hidden_size", "kv_heads", "head_dim", "max_positions", "logit_offset", "channels")
    wrong = [name for name in same if getattr(own, name) != getattr(lm, name)]
    if wrong:
        raise ExportError(f"{checkpoint} differs from the LM in {', '.join(wrong)}; train it from this LM")
    exact = build_lm(source)
    gates, _ = parity.lm_gates(load(exact, threads), reference_lm(source), prompt, parity.GREEDY_TOKENS // 4)
    gates = [replace(gate, graph=gate.graph.replace("lm", "draft", 1)) for gate in gates]
    require(gates)
    onnx.save(VARIANTS[variant](exact), staging / "draft.onnx")
    return gates


def _acceptance(checkpoint: Path) -> list[Any]:
    path = checkpoint / "acceptance.json"
    if not path.exists():
        raise ExportError(f"{path} is missing; run python -m training.calibrate --draft {checkpoint}")
    return list(read_json(path)["acceptance"])


def _files(staging: Path, *names: str) -> dict[str, Any]:
    return {name: {"path": f"{name}.onnx", "sha256": digest(staging / f"{name}.onnx")} for name in names}


def _groups(lm: Path, config: LlamaConfig, staging: Path) -> dict[str, Any]:
    """Groups over the embeddings of the audio codes; the end of a sentence is like nothing else."""
    table = Checkpoint(lm).tensor("model.embed_tokens.weight")[config.logit_offset :]
    files = {}
    for theta in THETAS:
        path = staging / f"groups_{theta:g}.npz"
        Groups.build(table, theta, alone=(0,)).save(path)
        files[f"{theta:g}"] = {"path": path.name, "sha256": digest(path)}
    return files
