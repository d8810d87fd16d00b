"""A voice: a directory with voice.json and one file per module, checked on load."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tts_engine.errors import VoiceError
from tts_engine.prompt import CHANNELS, Vocabulary
from tts_engine.request import NAMES

FILES = ("lm", "vocoder", "frontend", "wordpiece")
DEFAULTS: dict[str, Any] = {
    "temperature": 0.8,
    "top_k": 50,
    "top_p": 0.95,
    "max_seconds": 120.0,
    "chunk_frames": 40,
    "first_chunk_frames": 6,
    # A sentence longer than this many frames a prompt symbol is a loop; it ends there.
    "max_frames_per_symbol": 25,
    # Before this many frames a prompt symbol a sentence cannot end: an end drawn at a comma would cut it.
    "min_frames_per_symbol": 0,
    "speculation": "none",
    "acceptance": "exact",
    "tolerance": 3,
    "bias": 0.02,
    "theta": 0.0,  # the narrowest groups of the voice
    "verify_top_k": 8,
    "verify_eos_top_k": 1,
    "nodes": 0,
}
LIMITS: dict[str, tuple[float, float]] = {
    "temperature": (0.0, 2.0),
    "top_k": (0, 4096),
    "top_p": (0.01, 1.0),
    "seed": (0, 2**63 - 1),
    "max_seconds": (0.1, 3600.0),
    "chunk_frames": (1, 500),
    "first_chunk_frames": (1, 500),
    "max_frames_per_symbol": (2, 100),
    "min_frames_per_symbol": (0, 50),
    "tolerance": (1, 4),
    "bias": (0.0, 1.0),
    "theta": (0.0, 1.0),
    "verify_top_k": (1, 4096),
    "verify_eos_top_k": (1, 4096),
    "nodes": (0, 64),
}


@dataclass(frozen=True)
class Voice:
    """All that differs between voices. `files` maps lm, vocoder, frontend, wordpiece to verified paths.

    drafts: what voice.json says of each proposer (medusa, mtp, draft), its `files` as verified paths; groups: files of
    acoustic similarity groups by θ. defaults and limits: request parameters by name (voice.json's over built-in ones).
    """

    name: str
    sample_rate: int
    frame_samples: int
    layers: int
    kv_heads: int
    head_dim: int
    hidden_size: int
    max_positions: int
    vocabulary: Vocabulary
    can_clone: bool
    files: Mapping[str, Path]
    defaults: Mapping[str, Any]
    limits: Mapping[str, tuple[float, float]]
    drafts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    groups: Mapping[float, Path] = field(default_factory=dict)

    @property
    def frames_per_second(self) -> float:
        return self.sample_rate / self.frame_samples

    def default_theta(self, proposer: str) -> float:
        """θ of the groups its drafts are verified by: its own, else the narrowest there are; 0 without groups."""
        return float(self.drafts[proposer].get("theta", max(self.groups, default=0.0)))

    @classmethod
    def load(cls, directory: Path) -> Voice:
        """Read and check a voice directory; VoiceError says in one sentence what is wrong with it."""
        manifest = Path(directory) / "voice.json"
        try:
            fields = json.loads(manifest.read_text(encoding="utf-8"))
        except OSError as error:
            raise VoiceError(f"no voice at {directory}: {manifest} cannot be read; run the export") from error
        except ValueError as error:
            raise VoiceError(f"{manifest} is not valid JSON; run the export again") from error
        try:
            return cls._from_manifest(Path(directory), fields)
        except KeyError as error:
            raise VoiceError(f"{manifest} lacks the key {error.args[0]!r}; run the export again") from error
        except (TypeError, ValueError, AttributeError) as error:
            raise VoiceError(f"{manifest} is wrong: {error}") from error

    @classmethod
    def _from_manifest(cls, directory: Path, fields: Mapping[str, Any]) -> Voice:
        if fields["channels"] != CHANNELS:
            raise VoiceError(f"voice has {fields['channels']} channels; this engine speaks {CHANNELS}-channel voices")
        limits = dict(LIMITS)
        limits.update({name: (low, high) for name, (low, high) in fields.get("limits", {}).items() if name in LIMITS})
        defaults = DEFAULTS | {name: value for name, value in fields.get("defaults", {}).items() if name in DEFAULTS}
        for name, value in defaults.items():
            if name in NAMES:
                continue
            low, high = limits[name]
            if not low <= value <= high:
                raise VoiceError(f"voice default {name} = {value} is outside its limits {low:g} to {high:g}")
        speculation = fields.get("speculation", {})
        return cls(
            name=str(fields["name"]),
            sample_rate=int(fields["sample_rate"]),
            frame_samples=int(fields["frame_samples"]),
            layers=int(fields["layers"]),
            kv_heads=int(fields["kv_heads"]),
            head_dim=int(fields["head_dim"]),
            hidden_size=int(fields["hidden_size"]),
            max_positions=int(fields["max_positions"]),
            vocabulary=Vocabulary.from_dict(fields),
            can_clone=bool(fields.get("can_clone", False)),
            files={name: _verified(directory, fields["files"][name]) for name in FILES},
            defaults=defaults,
            limits=limits,
            drafts={name: _draft(directory, entry) for name, entry in speculation.items() if name != "groups"},
            groups={
                float(theta): _verified(directory, file)
                for theta, file in speculation.get("groups", {}).get("files", {}).items()
            },
        )


def _draft(directory: Path, entry: Mapping[str, Any]) -> Mapping[str, Any]:
    """The manifest's entry of a draft, its files as verified paths."""
    return {**entry, "files": {name: _verified(directory, file) for name, file in entry["files"].items()}}


def _verified(directory: Path, entry: Mapping[str, str]) -> Path:
    """The entry's file, if it lies in the voice directory and its SHA-256 is the one written down."""
    name = entry["path"]
    path = directory / name
    if Path(name).name != name or not path.is_file():
        raise VoiceError(f"voice file {name!r} is not in {directory}; run the export again")
    with path.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    if digest != entry["sha256"]:
        raise VoiceError(f"voice file {path} does not match its checksum; run the export again")
    return path
