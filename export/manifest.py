"""voice.json: everything the engine must know of a voice, with a checksum of every file."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from export.checkpoint import read_json
from export.errors import ExportError
from export.lm import LlamaConfig
from training.models.codec import CodecConfig
from tts_engine.prompt import Vocabulary
from tts_engine.voice import DEFAULTS, LIMITS

FILES = {"lm": "lm.onnx", "vocoder": "vocoder.onnx", "frontend": "frontend.onnx", "wordpiece": "wordpiece.json"}


def vocabulary(lm: Path, config: LlamaConfig) -> Vocabulary:
    """The ids of a voice's LM from its phonemes.json and config.json; ExportError when the two do not agree."""
    table = lm / "phonemes.json"
    try:
        phonemes = json.loads(table.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ExportError(f"{table} cannot be read; run python -m training.phonemes") from error
    made = Vocabulary.from_phonemes(phonemes, config.logit_count - 1)
    if made.logit_offset != config.logit_offset:
        raise ExportError(
            f"{table} puts the first logit at id {made.logit_offset}, the LM was trained with {config.logit_offset}; "
            "the table was changed after training"
        )
    return made


def sampling_defaults(lm: Path) -> dict[str, Any]:
    """The engine's defaults, with those of the checkpoint's generation_config.json (where it has one) over them."""
    path = lm / "generation_config.json"
    given = read_json(path) if path.exists() else {}
    return DEFAULTS | {name: value for name, value in given.items() if name in DEFAULTS}


def write_manifest(
    voice: Path,
    name: str,
    config: LlamaConfig,
    codec: CodecConfig,
    ids: Vocabulary,
    defaults: dict[str, Any],
    speculation: dict[str, Any],
) -> None:
    """Write voice.json beside the files it lists (docs/ARCHITECTURE.md, "voice.json")."""
    fields: dict[str, Any] = {
        "name": name,
        "sample_rate": codec.sample_rate,
        "frame_samples": codec.frame_samples,
        "channels": config.channels,
        "layers": config.layers,
        "kv_heads": config.kv_heads,
        "head_dim": config.head_dim,
        "hidden_size": config.hidden_size,
        "max_positions": config.max_positions,
        "can_clone": False,
        **ids.to_dict(),
        "files": {key: {"path": file, "sha256": digest(voice / file)} for key, file in FILES.items()},
        "defaults": defaults,
        "limits": LIMITS,
        "speculation": speculation,
    }
    (voice / "voice.json").write_text(json.dumps(fields, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def digest(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
