"""A tiny LM over tiny utterances whose codes follow each other predictably, for everything that drafts."""

from __future__ import annotations

import numpy as np
import torch

from training.lm_data import Batch, Example, collate
from training.models.llama import SpeechLM, SpeechLMConfig
from tts_engine.prompt import Vocabulary

CODES = 16
VOCABULARY = Vocabulary.from_phonemes([" ", "a", "b"], codebook_size=CODES)


def tiny_lm() -> SpeechLM:
    """Weights large enough for logits that differ."""
    torch.manual_seed(0)
    model = SpeechLM(
        SpeechLMConfig(
            VOCABULARY.size, VOCABULARY.logit_offset, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, head_dim=8, intermediate_size=48,
        )
    ).eval()  # fmt: skip
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(6 if weight.dim() == 2 else 1)
    return model.requires_grad_(False)


def examples(count: int = 6) -> list[Example]:
    """Codes count up from a start of their own, so that any later one can be drafted."""
    made = []
    for index in range(count):
        prompt = np.zeros((3 + index % 3, 4), np.int64)
        prompt[:, 0] = VOCABULARY.phoneme_offset
        prompt[0, 0], prompt[-1, 0] = VOCABULARY.bos_id, VOCABULARY.soa_id
        codes = (index + np.arange(10 + index)) % CODES
        made.append(Example(prompt, codes, np.zeros(len(codes), np.float32)))
    return made


def batch() -> Batch:
    return collate(examples(), VOCABULARY, np.random.default_rng(0), 0.0)
