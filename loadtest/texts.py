"""The texts of the load tests: fixed, committed, each with its seed and how long our voice speaks it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

PATH = Path(__file__).with_name("texts.json")
KINDS = ("short", "medium", "long", "mixed")
MEAN_SECONDS = {"short": 2.64, "medium": 4.08, "long": 7.00, "mixed": 4.54}  # incremental_tts 3.1


@dataclass(frozen=True)
class Text:
    """What one request says. seconds: of audio, as measured when the texts were chosen."""

    text: str
    seed: int
    seconds: float


def load_texts(kind: str, path: Path = PATH) -> list[Text]:
    """The texts of one of KINDS, in their fixed order."""
    return [Text(**text) for text in json.loads(path.read_text(encoding="utf-8"))[kind]]


def save_texts(texts: dict[str, list[Text]], path: Path = PATH) -> None:
    """Write all kinds, a line a text."""
    kinds = []
    for kind, chosen in texts.items():
        lines = ",\n".join(f"  {json.dumps(asdict(text))}" for text in chosen)
        kinds.append(f' "{kind}": [\n{lines}\n ]')
    path.write_text("{\n" + ",\n".join(kinds) + "\n}\n", encoding="utf-8")
