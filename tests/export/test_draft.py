"""Graphs of drafts: equal to torch, alone as in company, in every form; gates that catch; pairs that do not fit."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from safetensors.torch import load_file, save_file

from export import draft as export_module
from export.checkpoint import Checkpoint
from export.draft import export_draft
from export.draft_graphs import build_head, build_mtp
from export.drafts import export_drafts
from export.errors import ExportError
from export.quantize import VARIANTS
from export.runtime import load
from training.drafting import base_logits
from training.models.draft_heads import DraftHeads
from training.models.llama import SpeechLM
from training.models.mtp import MTP

ROOT = Path(__file__).resolve().parents[2]
KINDS = ("heads", "heads-plain", "mtp", "mtp-plain")


@pytest.fixture(scope="module")
def drafts(checkpoints: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """heads/, mtp/, and without next token heads-plain/, mtp-plain/, all weights random, and a tree."""
    root = tmp_path_factory.mktemp("drafts")
    base = SpeechLM.from_pretrained(checkpoints / "lm")
    torch.manual_seed(5)
    models: tuple[DraftHeads | MTP, ...] = (
        DraftHeads.from_base(base, 3),
        DraftHeads.from_base(base, 2, reads_path=False),
        MTP.from_base(base, 2),
        MTP.from_base(base, 1, reads_next_token=False),
    )
    for name, model in zip(KINDS, models, strict=True):
        with torch.no_grad():
            for weight in model.parameters():
                weight.add_(torch.randn_like(weight) * 0.1)
        model.save_pretrained(root / name)
    (root / "heads" / "tree_2.json").write_text(
        '{"parents": [-1, 0], "ranks": [0, 0], "expected_acceptance_length": 1.5}'
    )
    return root


def files(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


@pytest.mark.parametrize("variant", list(VARIANTS))
@pytest.mark.parametrize(
    ("kind", "graphs"),
    [
        ("heads", {"head_1.onnx", "head_2.onnx", "head_3.onnx", "tree_2.json"}),
        ("heads-plain", {"head_1.onnx", "head_2.onnx"}),
        ("mtp", {"mtp_1.onnx", "mtp_2.onnx"}),
        ("mtp-plain", {"mtp_1.onnx"}),
    ],
)
def test_every_draft_passes_its_gates(
    checkpoints: Path, drafts: Path, tmp_path: Path, kind: str, graphs: set[str], variant: str
) -> None:
    gates = export_draft(drafts / kind, checkpoints / "lm", tmp_path, variant)
    assert files(tmp_path) == graphs
    assert all(gate.passed for gate in gates)
    assert len([gate for gate in gates if gate.bar is not None]) >= 2
    for name in graphs - {"tree_2.json"}:
        onnx.checker.check_model(onnx.load(tmp_path / name))


@pytest.mark.parametrize("kind", ["heads", "heads-plain"])
def test_head_graphs_are_the_torch_module_at_any_batch(checkpoints: Path, drafts: Path, kind: str) -> None:
    heads = DraftHeads.from_pretrained(drafts / kind)
    sessions = [
        load(build_head(Checkpoint(drafts / kind), Checkpoint(checkpoints / "lm"), head), 1)
        for head in range(heads.steps)
    ]
    base = SpeechLM.from_pretrained(checkpoints / "lm")
    for shape in ((1, 1), (5, 1), (3, 7)):
        random = np.random.default_rng(0)
        hidden = random.normal(size=(*shape, 64)).astype(np.float32)
        tokens = random.integers(1, 100, (*shape, heads.steps, 4))
        with torch.no_grad():
            embedded = base.model.embed_tokens(torch.from_numpy(tokens)).sum(-2)
            wanted = base_logits(base, heads(torch.from_numpy(hidden), embedded)).numpy()
        state = hidden
        for ahead, session in enumerate(sessions):
            feeds = {"hidden": state} | ({"tokens": tokens[:, :, ahead]} if kind == "heads" else {})
            logits, after = session.run(["logits", "next_hidden"], feeds)
            assert logits.shape == (*shape, 17)
            np.testing.assert_allclose(logits, wanted[:, :, ahead], atol=1e-4)
            state = after if kind == "heads" else hidden


def test_graph_interface_is_the_documented_one(checkpoints: Path, drafts: Path) -> None:
    lm = Checkpoint(checkpoints / "lm")
    common = {"hidden", "position_ids", "write_idx", "bias", "logit_idx"}
    for kind, module, reads in (("mtp", 1, {"tokens"}), ("mtp-plain", 0, set())):
        graph = build_mtp(Checkpoint(drafts / kind), lm, module).graph
        caches = {f"{{}}_{key}.{module}" for key in "kv"}
        assert {value.name for value in graph.input} == common | reads | {name.format("past") for name in caches}
        assert {value.name for value in graph.output} == {"logits", "top_logits", "top_ids", "next_hidden"} | {
            name.format("present") for name in caches
        }


@pytest.mark.parametrize(
    ("kind", "weight"),
    [
        ("heads", "heads.2.up_proj.bias"),
        ("mtp", "model.layers.1.enorm.weight"),
        ("mtp", "model.layers.0.eh_proj.weight"),
    ],
)
def test_a_wrong_weight_fails_the_gate_and_leaves_what_was_there(
    checkpoints: Path, drafts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, weight: str
) -> None:
    """The graph is built from a checkpoint that differs from the torch module's in one weight."""
    other = tmp_path / "other"
    shutil.copytree(drafts / kind, other)
    tensors = load_file(other / "model.safetensors")
    tensors[weight] = tensors[weight] * 1.1 + 0.05
    save_file(tensors, other / "model.safetensors", metadata={"format": "pt"})
    monkeypatch.setattr(export_module, "Checkpoint", lambda path: Checkpoint(other if path == drafts / kind else path))
    with pytest.raises(ExportError, match="parity gate failed"):
        export_draft(drafts / kind, checkpoints / "lm", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_draft_of_another_lm_is_refused(checkpoints: Path, drafts: Path, tmp_path: Path) -> None:
    for kind, field in (("heads", "logit_count"), ("mtp", "vocab_size")):
        other = tmp_path / kind
        shutil.copytree(drafts / kind, other)
        config = json.loads((other / "config.json").read_text())
        (other / "config.json").write_text(json.dumps(config | {field: config[field] + 1}))
        with pytest.raises(ExportError, match="another LM"):
            export_draft(other, checkpoints / "lm", tmp_path / "out")
    with pytest.raises(ExportError, match="holds no draft"):
        export_draft(checkpoints / "lm", checkpoints / "lm", tmp_path / "out")


def test_heads_without_calibration_are_refused_with_what_to_run(
    checkpoints: Path, drafts: Path, tmp_path: Path
) -> None:
    shutil.copytree(checkpoints / "lm", tmp_path / "lm")
    shutil.copytree(drafts / "heads-plain", tmp_path / "heads-2")
    with pytest.raises(ExportError, match=r"acceptance.json is missing; run python -m training\.calibrate"):
        export_drafts(tmp_path, tmp_path / "out", "fp32", 1, np.zeros((4, 4), dtype=np.int64))


def test_the_command(checkpoints: Path, drafts: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "export.draft", "--lm", str(checkpoints / "lm"), "--out", str(tmp_path)]
    done = subprocess.run(
        [*command, "--draft", str(drafts / "heads"), "--threads", "1"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "max |Δ logit|" in done.stdout
    failed = subprocess.run([*command, "--draft", str(tmp_path / "none")], cwd=ROOT, capture_output=True, text=True)
    assert failed.returncode == 1
    assert failed.stderr.startswith("export failed: ")
