"""Frontend: sentences -> prompts, with the prosody BERT run once for all texts that wait."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Protocol

import numpy as np

from tts_engine.config import EngineConfig
from tts_engine.errors import RequestError
from tts_engine.item import Item, Stage
from tts_engine.lanes import Lanes
from tts_engine.prompt import prompt_ids
from tts_engine.session import Session
from tts_engine.text import Sentence, WordpieceEncoding
from tts_engine.voice import Voice


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
        length = max(len(encoding.input_ids) for encoding in encodings)
        input_ids = np.zeros((len(sentences), length), dtype=np.int64)
        attention_mask = np.zeros_like(input_ids)
        for row, encoding in enumerate(encodings):
            input_ids[row, : len(encoding.input_ids)] = encoding.input_ids
            attention_mask[row, : len(encoding.input_ids)] = 1
        feeds = {"input_ids": input_ids, "attention_mask": attention_mask}
        logits = self._lanes.run(self.session, feeds)["logits"]
        labels = logits.argmax(axis=-1)
        return [
            prompt_ids(sentence, labels[row, encoding.first_piece], self._voice.vocabulary)
            for row, (sentence, encoding) in enumerate(zip(sentences, encodings, strict=True))
        ]

    def _frame_limit(self, prompt_length: int) -> int:
        room = self._voice.max_positions - prompt_length
        if room < 1:
            raise RequestError(
                f"a sentence of {prompt_length} symbols leaves no room in the voice's {self._voice.max_positions} "
                "positions; split it"
            )
        return min(room, int(self._voice.defaults["max_frames_per_symbol"] * prompt_length))
