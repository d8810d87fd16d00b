"""The export from end to end: build, gate, then put the voice in place at once."""

from __future__ import annotations

import math
import shutil
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import onnx
import torch
from tqdm import tqdm

from export import parity, samples
from export.checkpoint import Checkpoint, read_json
from export.drafts import export_drafts, remove_stale
from export.errors import ExportError
from export.frontend import VARIANTS as FRONTENDS
from export.frontend import build_frontend
from export.gate import Gate, require
from export.lm import LlamaConfig, build_lm
from export.manifest import FILES, sampling_defaults, vocabulary, write_manifest
from export.quantize import VARIANTS as LMS
from export.reference import reference_lm
from export.runtime import load
from export.vocoder import VARIANTS as VOCODERS
from export.vocoder import build_vocoder
from training.models.bert import ProsodyBert
from training.models.codec import CodecDecoder
from tts_engine.voice import Voice

STAGES = 5 + len(LMS)


@dataclass(frozen=True)
class Options:
    """checkpoints: directory with lm/, codec/, prosody/. out: voice directory. variant: of the LM, or "auto"."""

    checkpoints: Path
    out: Path
    name: str
    variant: str = "auto"
    threads: int = 1
    greedy_tokens: int = parity.GREEDY_TOKENS


def served_variant(checkpoint: Path, wanted: str, known: Collection[str] = LMS) -> str:
    """The variant to serve: `wanted`; for "auto" what the checkpoint's serving.json says, else fp32."""
    if wanted == "auto":
        path = checkpoint / "serving.json"
        wanted = read_json(path).get("variant", "fp32") if path.exists() else "fp32"
    if wanted not in known:
        raise ExportError(f"unknown variant {wanted!r} of {checkpoint.name}; known are {', '.join(known)}")
    return wanted


def export_voice(options: Options) -> list[Gate]:
    """Build and check everything beside `out`, then move it there; the rows of the table.

    A failed gate leaves `out` as it was. A variant that is not the served one and fails only its own gate is left out.

    Raises:
        ExportError: with the gate or the file that is wrong.
        ValueError, OSError: from the torch modules' own loaders.
    """
    torch.set_num_threads(options.threads)
    staging = options.out.parent / f".{options.out.name}.partial"
    shutil.rmtree(staging, ignore_errors=True)
    (staging / "variants").mkdir(parents=True)
    try:
        with tqdm(total=STAGES, desc="export", unit="stage", leave=False) as progress:
            gates = _build(options, staging, progress)
        _replace(options.out, staging)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return gates


def _build(options: Options, staging: Path, progress: tqdm) -> list[Gate]:
    """Everything into `staging`; raises at the first failed gate that a served graph must pass."""

    def stage(name: str) -> None:
        progress.set_postfix_str(name)
        progress.update()

    lm, codec, prosody = (options.checkpoints / part for part in ("lm", "codec", "prosody"))
    served = served_variant(lm, options.variant)
    stage("lm")
    checkpoint = Checkpoint(lm)
    config = LlamaConfig.from_dict(checkpoint.config)
    ids = vocabulary(lm, config)
    prompts = samples.prompts(ids)
    exact = build_lm(checkpoint)
    exact_session = load(exact, options.threads)
    gates, codes = parity.lm_gates(exact_session, reference_lm(checkpoint), prompts[0], options.greedy_tokens)
    require(gates)
    for name, transform in LMS.items():
        stage(f"lm {name}")
        graph = transform(exact)
        session = load(graph, options.threads)
        rows = parity.variant_gates(name, session, exact_session, prompts, codes, config.logit_offset)
        gates += rows
        if name == served:
            require(rows)
            onnx.save(graph, staging / FILES["lm"])
        if all(row.passed for row in rows):
            onnx.save(graph, staging / "variants" / f"lm_{name}.onnx")

    stage("vocoder")
    decoder = CodecDecoder.from_pretrained(codec)
    size = math.prod(decoder.config.levels)
    if size != ids.codebook_size:
        raise ExportError(f"the LM speaks {ids.codebook_size} codes, the codec has {size}; train them together")
    plain = build_vocoder(decoder, staging / FILES["vocoder"])
    plain_session = load(plain, options.threads)
    gates += (rows := parity.vocoder_gates(plain_session, decoder, codes))
    require(rows)
    served_vocoder = served_variant(codec, "auto", VOCODERS)
    for name, transform in VOCODERS.items():
        graph = transform(plain)
        if name != "fp32":
            session = load(graph, options.threads)
            gates += (rows := parity.vocoder_variant_gates(name, session, plain_session, decoder, codes))
        if name == served_vocoder:
            require(rows)
            onnx.save(graph, staging / FILES["vocoder"])
        if all(row.passed for row in rows):
            onnx.save(graph, staging / "variants" / f"vocoder_{name}.onnx")

    stage("frontend")
    shutil.copyfile(prosody / FILES["wordpiece"], staging / FILES["wordpiece"])
    bert = ProsodyBert.from_pretrained(prosody)
    build_frontend(bert, staging / FILES["frontend"])
    pieces = samples.wordpieces(ids, staging / FILES["wordpiece"])
    plain_session = load(staging / FILES["frontend"], options.threads)
    gates += (rows := parity.frontend_gates(plain_session, bert, pieces))
    require(rows)
    if (served_frontend := served_variant(prosody, "auto", FRONTENDS)) != "fp32":
        graph = FRONTENDS[served_frontend](onnx.load(staging / FILES["frontend"]))
        session = load(graph, options.threads)
        gates += (rows := parity.frontend_variant_gates(served_frontend, session, plain_session, pieces))
        require(rows)
        onnx.save(graph, staging / FILES["frontend"])

    stage("drafts")
    speculation, rows = export_drafts(options.checkpoints, staging, served, options.threads, prompts[0])
    gates += rows

    stage("voice.json")
    write_manifest(staging, options.name, config, decoder.config, ids, sampling_defaults(lm), speculation)
    Voice.load(staging)  # what the engine will do
    return gates


def _replace(out: Path, staging: Path) -> None:
    """Move the files of `staging` into `out`, voice.json last: without it a half-moved voice is no voice."""
    out.mkdir(parents=True, exist_ok=True)
    (out / "voice.json").unlink(missing_ok=True)
    shutil.rmtree(out / "variants", ignore_errors=True)
    remove_stale(out)
    for path in sorted(staging.iterdir(), key=lambda path: path.name == "voice.json"):
        path.replace(out / path.name)
