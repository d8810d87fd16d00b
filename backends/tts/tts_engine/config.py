"""The engine's knobs, as they stand in engine.json."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from pathlib import Path


@dataclass(frozen=True)
class EngineConfig:
    """What a deployment may choose.

    capacity: requests in flight at once. threads: for all graph runs together; graph_threads: of them for one run
    of the language model, 1 where it fits into the cache, all where it waits for memory. max_text_chars: longest
    text taken. sentence_pause_seconds: silence between two sentences of one request. serving: "pooled", or "batched"
    for the twin of `tts_engine.twin`; batch_window_ms: how long its first request waits for company. max_lead_seconds:
    audio sent ahead of its listener at most, so that a reader that does not read costs no more memory than that; 0: no
    bound. max_first_chunk_ms: a request whose projected first chunk comes later is refused at once; 0: none is.
    provider: where graphs run, "cpu", or "cuda" with onnxruntime-gpu in onnxruntime's place.
    """

    capacity: int = 32
    threads: int = 2
    graph_threads: int = 1
    max_text_chars: int = 200_000
    sentence_pause_seconds: float = 0.2
    serving: str = "pooled"
    batch_window_ms: float = 10.0
    max_lead_seconds: float = 60.0
    max_first_chunk_ms: float = 0.0
    provider: str = "cpu"

    def __post_init__(self) -> None:
        if not 1 <= self.capacity <= 1024:
            raise ValueError(f"engine setting capacity must be between 1 and 1024, not {self.capacity}")
        if not 1 <= self.threads <= 256:
            raise ValueError(f"engine setting threads must be between 1 and 256, not {self.threads}")
        if not 1 <= self.graph_threads <= self.threads:
            raise ValueError(f"engine setting graph_threads must be between 1 and threads, not {self.graph_threads}")
        if self.max_text_chars < 1:
            raise ValueError(f"engine setting max_text_chars must be at least 1, not {self.max_text_chars}")
        if not 0 <= self.sentence_pause_seconds <= 10:
            raise ValueError("engine setting sentence_pause_seconds must be between 0 and 10")
        if self.serving not in ("pooled", "batched"):
            raise ValueError(f'engine setting serving must be "pooled" or "batched", not {self.serving!r}')
        if not 0 <= self.batch_window_ms <= 1000:
            raise ValueError(f"engine setting batch_window_ms must be between 0 and 1000, not {self.batch_window_ms}")
        if self.provider not in ("cpu", "cuda"):
            raise ValueError(f'engine setting provider must be "cpu" or "cuda", not {self.provider!r}')
        for name in ("max_lead_seconds", "max_first_chunk_ms"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"engine setting {name} must be 0 (no bound) or more, not {getattr(self, name)}")

    @classmethod
    def load(cls, path: Path) -> EngineConfig:
        """Read engine.json (missing keys take the defaults); ValueError says which key or value is wrong."""
        try:
            values = dict(json.loads(path.read_text(encoding="utf-8")))
        except (OSError, TypeError, ValueError) as error:
            raise ValueError(f"cannot read engine settings {path}: {error}") from error
        known = {item.name for item in fields(cls)}
        unknown = set(values) - known
        if unknown:
            raise ValueError(f"unknown engine settings {sorted(unknown)} in {path}; known are {sorted(known)}")
        try:
            return cls(**values)
        except TypeError as error:
            raise ValueError(f"engine settings in {path} have a value of the wrong type: {error}") from error
