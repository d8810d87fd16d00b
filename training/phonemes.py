"""Write the voice's symbol table: every phone espeak uses for common English words.

    python -m training.phonemes --out checkpoints/rms/lm/phonemes.json

The table's order is the order of the LM's phoneme ids: never regenerate it under a trained voice.
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path

from tts_engine.text.phonemizer import inventory
from tts_engine.text.symbols import symbol_table

SYSTEM_WORDS = Path("/usr/share/dict/words")
COMMON_WORDS = 40_000
# Phones of fewer words are foreign ones; serving maps them to a neighbour rather than to an untrained symbol.
MIN_WORDS = 40
_WORD = re.compile(r"[a-z']+")


def vocabulary() -> list[str]:
    """The most frequent English words of `wordfreq` and, where installed, the system's word list."""
    from wordfreq import top_n_list

    words = {word for word in top_n_list("en", COMMON_WORDS) if _WORD.fullmatch(word)}
    if SYSTEM_WORDS.exists():
        words |= {word for word in SYSTEM_WORDS.read_text().lower().split() if _WORD.fullmatch(word)}
    return sorted(words)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("checkpoints/rms/lm/phonemes.json"))
    args = parser.parse_args()
    table = symbol_table(inventory(vocabulary(), MIN_WORDS))
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(table, ensure_ascii=False, indent=0) + "\n", encoding="utf-8")
    print(f"{len(table)} symbols in {args.out}")


if __name__ == "__main__":
    main()
