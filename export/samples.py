"""What the gates run on: prompts and wordpieces of a few plain sentences, through the real text frontend."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tts_engine.prompt import PROSODY_LEVELS, Vocabulary, prompt_ids
from tts_engine.text import TextFrontend

SENTENCES = (
    "A small lamp was left burning in the window all night.",
    "Yes.",
    "He paid seven pounds for the old clock, and then, to everyone's surprise, he gave it away.",
    "Wait here.",
    "They walked along the river until it grew dark.",
)


def prompts(vocabulary: Vocabulary) -> list[NDArray[np.int64]]:
    """One prompt int64 [L_i, 4] a sentence, each last word of which ends every prosodic level."""
    frontend = TextFrontend(list(vocabulary.phonemes))
    made = []
    for text in SENTENCES:
        sentence = frontend.sentences(text)[0]
        levels = np.zeros((len(sentence.words), PROSODY_LEVELS), np.int64)
        levels[-1] = 1
        made.append(prompt_ids(sentence, levels, vocabulary))
    return made


def wordpieces(vocabulary: Vocabulary, wordpiece: Path) -> NDArray[np.int64]:
    """input_ids int64 [L] of the longest sentence."""
    frontend = TextFrontend(list(vocabulary.phonemes), wordpiece)
    encodings = [frontend.encode(frontend.sentences(text)[0]).input_ids for text in SENTENCES]
    return np.array(max(encodings, key=len), np.int64)
