"""What the engine is measured against: one text after the other, eager PyTorch, a batch of one.

The same weights, frontend, sampling and seeds as the engine, with a preallocated key-value cache and every core; what
is missing is the graph runtime and the batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from training.models.bert import ProsodyBert
from training.models.codec import CodecDecoder
from training.models.llama import SpeechLM, rotary, rotate
from tts_engine.prompt import prompt_ids
from tts_engine.request import SamplingParams
from tts_engine.sampling import NARROW, SamplingBatch, Scores, sample, uniforms
from tts_engine.text import Sentence, TextFrontend
from tts_engine.voice import Voice

EOS = 0


class CachedLM:
    """Decoding of one sequence: `reset()`, then `step(tokens int64 [1, n, C])` → logits [V] (eos + codes)."""

    def __init__(self, model: SpeechLM, positions: int) -> None:
        c = model.config
        self.model = model
        self.layers: Any = model.model.layers
        self.head = model.lm_head.weight[c.logit_offset :]  # text ids are never predicted
        self.keys = torch.zeros(c.num_hidden_layers, 1, c.num_key_value_heads, positions, c.head_dim)
        self.values = torch.zeros_like(self.keys)
        self.cos, self.sin = rotary(c, positions, torch.device("cpu"))
        self.length = 0

    def reset(self) -> None:
        self.length = 0

    def step(self, tokens: Tensor) -> Tensor:
        """Append n positions; logits [V] of the last one."""
        model, c = self.model, self.model.config
        start, stop = self.length, self.length + tokens.shape[1]
        cos, sin = self.cos[start:stop], self.sin[start:stop]
        x = model.model.embed_tokens(tokens).sum(2)
        for index, layer in enumerate(self.layers):
            attention = layer.self_attn
            normed = layer.input_layernorm(x)
            q, k, v = (
                project(normed).view(1, stop - start, -1, c.head_dim).transpose(1, 2)
                for project in (attention.q_proj, attention.k_proj, attention.v_proj)
            )
            self.keys[index, :, :, start:stop] = rotate(k, cos, sin)
            self.values[index, :, :, start:stop] = v
            y = F.scaled_dot_product_attention(
                rotate(q, cos, sin),
                self.keys[index, :, :, :stop],
                self.values[index, :, :, :stop],
                is_causal=start == 0,  # a later single position sees everything before it
                enable_gqa=True,
            )
            x = x + attention.o_proj(y.transpose(1, 2).reshape(1, stop - start, -1))
            x = x + layer.mlp(layer.post_attention_layernorm(x))
        self.length = stop
        return F.linear(model.model.norm(x[:, -1]), self.head)[0]


class SequentialLoop:
    """Frontend, language model and codec decoder of `checkpoints` (lm/, codec/, prosody/) on `threads` threads."""

    def __init__(self, voice: Voice, checkpoints: Path, threads: int) -> None:
        torch.set_num_threads(threads)
        self.voice = voice
        self.text = TextFrontend(list(voice.vocabulary.phonemes), voice.files["wordpiece"])
        self.prosody = ProsodyBert.from_pretrained(checkpoints / "prosody")
        self.lm = CachedLM(SpeechLM.from_pretrained(checkpoints / "lm"), voice.max_positions)
        self.decoder = CodecDecoder.from_pretrained(checkpoints / "codec")

    def stream(self, text: str, seed: int) -> Iterator[np.ndarray]:
        """The text's sentences, one piece of audio each."""
        with torch.inference_mode():
            for index, sentence in enumerate(self.text.sentences(text)):
                codes = torch.tensor(self._codes(sentence, index, seed))[None]
                lengths = torch.tensor([codes.shape[1]])
                yield self.decoder(codes, lengths, self.decoder.initial_state(1))[0][0].numpy()

    def _codes(self, sentence: Sentence, index: int, seed: int) -> list[int]:
        settings = SamplingParams(seed=seed).resolve(self.voice.defaults, self.voice.limits)
        batch = SamplingBatch.from_settings([settings])
        vocabulary = self.voice.vocabulary
        encoding = self.text.encode(sentence)
        ids = torch.tensor([encoding.input_ids])
        labels = self.prosody(ids, torch.ones_like(ids))[0].argmax(-1)[encoding.first_piece]
        prompt = prompt_ids(sentence, labels.numpy(), vocabulary)
        limit = min(
            self.voice.max_positions - len(prompt), int(self.voice.defaults["max_frames_per_symbol"] * len(prompt))
        )
        least = int(self.voice.defaults["min_frames_per_symbol"] * len(prompt))
        self.lm.reset()
        logits = self.lm.step(torch.from_numpy(prompt)[None])
        following = torch.zeros(1, 1, prompt.shape[1], dtype=torch.long)
        codes: list[int] = []
        while True:
            counter = np.array([(index << 32) + len(codes)], np.uint64)
            if len(codes) < least:
                logits[EOS] = -1e30
            top = logits.topk(min(NARROW + 1, len(logits)))
            scores = Scores(logits.numpy()[None], top.values.numpy()[None], top.indices.numpy()[None])
            token = int(sample(scores, batch, uniforms(batch.keys, counter))[0])
            if token == EOS:
                return codes
            codes.append(token - 1)
            if len(codes) >= limit:
                return codes
            following[0, 0, 0] = vocabulary.logit_offset + token
            logits = self.lm.step(following)
