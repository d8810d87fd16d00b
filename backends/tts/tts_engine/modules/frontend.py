"""Frontend: sentences -> prompts, with the prosody BERT run once for all texts that wait."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from typing import Protocol

import numpy as np

from tts_engine.config import EngineConfig
from tts_engine.errors import RequestError
from tts_engine.item import Item, Stage
from tts_engine.lanes import Lanes, balanced
from tts_engine.prompt import prompt_ids
from tts_engine.session import Array, Session
from tts_engine.text import Sentence, WordpieceEncoding
from tts_engine.voice import Voice

# Wordpieces of a run, padding included: wider ones are no faster, and ONNX Runtime keeps the memory of the widest.
RUN_PIECES = 1024
LONG_SENTENCE = 64  # wordpieces


class TextPipeline(Protocol):
    """The part of `tts_engine.text.TextFrontend` that the engine uses."""

    def iterate(self, text: str) -> Iterator[Sentence]: ...
    def encode(self, sentence: Sentence) -> WordpieceEncoding: ...


class Frontend:
    """Batched prosody prediction and prompt building for each item's current sentence."""

    def __init__(self, voice: Voice, text: TextPipeline, config: EngineConfig, lanes: Lanes) -> None:
        self.session = Session(voice.files["frontend"], config, ["input_ids", "attention_mask"], ["logits"])
        self._voice = voice
        self._text = text
        self._lanes = lanes

    def run(self, items: list[Item]) -> None:
        """FRONTEND -> PREFILL. Prosody of a word: the labels at its first wordpiece (incremental_tts 2.1.1)."""
        started = time.perf_counter()
        sentences = [item.sentence for item in items]
        prompts = self._prompts(sentences)
        seconds = time.perf_counter() - started
        for item, prompt in zip(items, prompts, strict=True):
            item.prompt = prompt
            item.min_sentence_frames = int(self._voice.defaults["min_frames_per_symbol"] * len(prompt))
            item.max_sentence_frames = self._frame_limit(len(prompt))
            item.frontend_seconds += seconds
            item.stage = Stage.PREFILL

    def _prompts(self, sentences: list[Sentence]) -> list[np.ndarray]:
        encodings = [self._text.encode(sentence) for sentence in sentences]
        lengths = [len(encoding.input_ids) for encoding in encodings]
        order = sorted(range(len(lengths)), key=lengths.__getitem__)
        edges = balanced([lengths[row] for row in order], self._lanes.parts(len(order)), RUN_PIECES)
        parts = [order[first:last] for first, last in pairwise(edges)]
        runs = [partial(self.session.run, _feeds([encodings[row] for row in rows])) for rows in parts]
        labels: dict[int, Array] = {}
        for rows, outputs in zip(parts, self._lanes.share(runs), strict=True):
            labels |= zip(rows, outputs["logits"].argmax(axis=-1), strict=True)
        return [
            prompt_ids(sentence, labels[row][encoding.first_piece], self._voice.vocabulary)
            for row, (sentence, encoding) in enumerate(zip(sentences, encodings, strict=True))
        ]

    def warm_up(self) -> None:
        """Run the widest there is, once a lane."""
        piece = WordpieceEncoding([0] * LONG_SENTENCE, [])
        self._lanes.warm_up(partial(self.session.run, _feeds([piece] * (RUN_PIECES // LONG_SENTENCE))))

    def _frame_limit(self, prompt_length: int) -> int:
        room = self._voice.max_positions - prompt_length
        if room < 1:
            raise RequestError(
                f"a sentence of {prompt_length} symbols leaves no room in the voice's {self._voice.max_positions} "
                "positions; split it"
            )
        return min(room, int(self._voice.defaults["max_frames_per_symbol"] * prompt_length))


def _feeds(encodings: list[WordpieceEncoding]) -> dict[str, Array]:
    """One batch, the shorter ones padded."""
    length = max(len(encoding.input_ids) for encoding in encodings)
    input_ids = np.zeros((len(encodings), length), dtype=np.int64)
    attention_mask = np.zeros_like(input_ids)
    for row, encoding in enumerate(encodings):
        input_ids[row, : len(encoding.input_ids)] = encoding.input_ids
        attention_mask[row, : len(encoding.input_ids)] = 1
    return {"input_ids": input_ids, "attention_mask": attention_mask}
