"""The export from end to end on tiny checkpoints; what fails it, and that failing leaves the old voice alone."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from export import parity
from export.errors import ExportError
from export.gate import Gate, require, table
from export.pipeline import Options, export_voice, served_variant
from export.quantize import VARIANTS
from export.runtime import load
from export.vocoder import VARIANTS as VOCODERS
from tests.export.conftest import write_codec, write_lm
from training.models.bert import ProsodyBert
from training.models.codec import CodecDecoder
from tts_engine.config import EngineConfig
from tts_engine.engine import Engine
from tts_engine.request import SamplingParams, SpeechRequest
from tts_engine.voice import Voice

VARIANT_NAMES = {f"lm {name}" for name in VARIANTS} | {f"vocoder {name}" for name in VOCODERS}
Exported = tuple[Path, list[Gate]]


def test_exported_voice_is_what_the_engine_loads(exported: Exported) -> None:
    voice = Voice.load(exported[0])
    assert voice.name == "tiny"
    assert (voice.layers, voice.kv_heads, voice.head_dim, voice.hidden_size, voice.max_positions) == (2, 2, 16, 64, 512)
    assert voice.vocabulary.codebook_size == 16


def test_engine_speaks_with_the_exported_voice(exported: Exported) -> None:
    engine = Engine(Voice.load(exported[0]), EngineConfig(capacity=2, threads=1))
    engine.start()
    try:
        request = SpeechRequest("Wait here.", SamplingParams(seed=1, max_seconds=0.5))
        chunks = list(engine.stream(request))
    finally:
        engine.stop()
    pcm = np.concatenate([chunk.pcm for chunk in chunks])
    assert chunks[-1].final and chunks[-1].finish_reason in ("stop", "length")
    assert 0 < len(pcm) <= 8000 and len(pcm) % 320 == 0
    assert np.isfinite(pcm).all()


def test_every_gate_ran_and_passed(exported: Exported) -> None:
    rows = exported[1]
    assert all(row.passed for row in rows)
    assert {row.graph for row in rows} == {"frontend", *VARIANT_NAMES}
    greedy = [row for row in rows if row.what == "greedy tokens of 200 that differ"]
    assert [row.value for row in greedy] == [0]
    assert sum(row.ms is not None for row in rows) >= 3 * len(VARIANTS) + 2
    assert len(table(rows).splitlines()) == len(rows) + 2


def test_variants_lie_beside_the_served_one(exported: Exported) -> None:
    out, _ = exported
    assert {path.stem.replace("_", " ") for path in (out / "variants").iterdir()} == VARIANT_NAMES
    assert (out / "lm.onnx").read_bytes() == (out / "variants" / "lm_fp32.onnx").read_bytes()
    assert not list(out.parent.glob(".*"))


def test_serving_json_chooses_the_variant(tmp_path: Path) -> None:
    assert served_variant(tmp_path, "auto") == "fp32"
    (tmp_path / "serving.json").write_text('{"variant": "int8"}')
    assert served_variant(tmp_path, "auto") == "int8"
    assert served_variant(tmp_path, "nbits4") == "nbits4"
    (tmp_path / "serving.json").write_text('{"variant": "int3"}')
    with pytest.raises(ExportError, match="int3"):
        served_variant(tmp_path, "auto")


def test_failed_export_leaves_the_old_voice(checkpoints: Path, exported: Exported, tmp_path: Path) -> None:
    out = tmp_path / "1"
    shutil.copytree(exported[0], out)
    shutil.copytree(checkpoints, tmp_path / "tiny")
    shutil.rmtree(tmp_path / "tiny" / "codec")
    write_codec(tmp_path / "tiny" / "codec", (4, 4, 2))
    with pytest.raises(ExportError, match="the LM speaks 16 codes, the codec has 32"):
        export_voice(Options(tmp_path / "tiny", out, "tiny", greedy_tokens=8))
    Voice.load(out)
    assert {path.name for path in tmp_path.iterdir()} == {"1", "tiny"}


def test_phoneme_table_changed_after_training_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_lm(tmp_path / "tiny" / "lm")
    path = tmp_path / "tiny" / "lm" / "phonemes.json"
    path.write_text(json.dumps([*json.loads(path.read_text()), "new"]))
    command = [sys.executable, "-m", "export", "--checkpoints", str(tmp_path / "tiny"), "--out", str(tmp_path / "1")]
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert "export failed" in done.stderr and "changed after training" in done.stderr
    assert not (tmp_path / "1").exists()


def spoil(path: Path) -> onnx.ModelProto:
    """The graph with its largest matrix 2 % larger."""
    model = onnx.load(path)
    weight = max(
        (item for item in model.graph.initializer if item.data_type == onnx.TensorProto.FLOAT and len(item.dims) == 2),
        key=lambda item: np.prod(item.dims),
    )
    weight.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(weight) * np.float32(1.02), weight.name))
    return model


def test_vocoder_gate_fails_on_a_wrong_weight(exported: Exported, checkpoints: Path) -> None:
    decoder = CodecDecoder.from_pretrained(checkpoints / "codec")
    codes = np.random.default_rng(0).integers(0, 16, 50)
    require(parity.vocoder_gates(load(exported[0] / "vocoder.onnx", 1), decoder, codes))
    with pytest.raises(ExportError, match="vocoder fp32 error, dB below signal"):
        require(parity.vocoder_gates(load(spoil(exported[0] / "vocoder.onnx"), 1), decoder, codes))


def test_frontend_gate_fails_on_a_wrong_weight(exported: Exported, checkpoints: Path) -> None:
    bert = ProsodyBert.from_pretrained(checkpoints / "prosody")
    for ids in (np.array([2, 3]), np.arange(64)):
        require(parity.frontend_gates(load(exported[0] / "frontend.onnx", 1), bert, ids))
    with pytest.raises(ExportError, match="frontend"):
        require(parity.frontend_gates(load(spoil(exported[0] / "frontend.onnx"), 1), bert, np.arange(64)))


def test_a_gate_that_measured_nan_fails() -> None:
    with pytest.raises(ExportError, match="lm error is nan, bar 1"):
        require([Gate("lm", "error", float("nan"), 1.0)])
