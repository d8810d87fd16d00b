"""LM training examples: prompt, codes and where in the prompt the teacher was at every frame."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from tqdm import tqdm

from training.data import Utterance
from training.models.codec import Codec
from tts_engine.prompt import Vocabulary, prompt_ids
from tts_engine.text import Sentence, TextFrontend, Word

FRAME_SECONDS = 0.02
CODEC_LOOKAHEAD = 0.03  # a code describes sound up to 30 ms ahead (training/models/codec.py)


@dataclass(frozen=True)
class Example:
    """`prompt` int64 [L, C] (bos … soa), `codes` int64 [n], `pointer` float32 [n]: where a frame is in it."""

    prompt: np.ndarray
    codes: np.ndarray
    pointer: np.ndarray


def encode_corpus(codec: Codec, utterances: list[Utterance], cache: Path, batch: int = 16) -> list[np.ndarray]:
    """Codes of every utterance, cached under a name made of the codec's encoder weights."""
    weights = {k: v for k, v in codec.state_dict().items() if not k.startswith("decoder.")}
    digest = hashlib.sha256(b"".join(v.numpy().tobytes() for v in weights.values())).hexdigest()[:12]
    path = cache / f"codes-{digest}.npz"
    known: dict[str, np.ndarray] = {}
    if path.exists():
        with np.load(path) as arrays:
            flat, ends = arrays["codes"], arrays["ends"]
            known = dict(zip(arrays["ids"].tolist(), np.split(flat, ends[:-1]), strict=True))
    todo = sorted((u for u in utterances if u.id not in known), key=lambda u: len(u.wave))
    for start in tqdm(range(0, len(todo), batch), desc="codec encodes", unit="batch", disable=not todo):
        group = todo[start : start + batch]
        waves = np.zeros((len(group), max(len(u.wave) for u in group) // 320 * 320 + 320), np.float32)
        for row, u in zip(waves, group, strict=True):
            row[: len(u.wave)] = u.wave / 32767.0
        with torch.autocast("cpu", torch.bfloat16):
            latents = codec.latents(torch.from_numpy(waves)).float()
        codes = codec.quantiser(latents)[1].numpy().astype(np.uint16)
        known |= {u.id: row[: -(-len(u.wave) // 320)] for u, row in zip(group, codes, strict=True)}
    if todo:
        ids = list(known)
        np.savez(path, ids=np.array(ids), codes=np.concatenate([known[i] for i in ids]),
                 ends=np.cumsum([len(known[i]) for i in ids]))  # fmt: skip
    return [known[u.id].astype(np.int64) for u in utterances]


def pointer(words: list[Word], spans: list[list[float]], frames: int) -> np.ndarray:
    """Prompt position (float32 [frames]) the teacher speaks at each frame; linear within a word, its
    punctuation or space during a pause. Position 0 is bos."""
    times, places, at = [0.0], [0.5], 1
    for word, (start, end) in zip(words, spans, strict=True):
        times += [start, end]
        places += [at - 0.5, at + len(word.phonemes) - 0.5]
        at += len(word.phonemes) + len(word.punctuation) + 1
    times.append(times[-1] + 0.2)
    places.append(at - 1.0)
    centre = (np.arange(frames) + 0.5) * FRAME_SECONDS + CODEC_LOOKAHEAD
    return np.interp(centre, times, places).astype(np.float32)


def examples(utterances: list[Utterance], codes: list[np.ndarray], vocabulary: Vocabulary) -> list[Example]:
    """One example an utterance; texts whose words the frontend reads otherwise than the teacher are left out."""
    frontend = TextFrontend(list(vocabulary.phonemes))
    made = []
    for utterance, code in zip(tqdm(utterances, desc="prompts", unit="text"), codes, strict=True):
        words = [word for sentence in frontend.sentences(utterance.text) for word in sentence.words]
        if len(words) != len(utterance.words):
            continue
        prompt = prompt_ids(Sentence(utterance.text, tuple(words)), np.array(utterance.prosody), vocabulary)
        made.append(Example(prompt, code, pointer(words, utterance.spans, len(code))))
    return made


@dataclass(frozen=True)
class Batch:
    """Right padded. `tokens` int64 [B, T, C]; `targets` int64 [B, T] (logit index, -1 = none);
    `pointers` float32 [B, T] (-1 = none)."""

    tokens: torch.Tensor
    targets: torch.Tensor
    pointers: torch.Tensor

    def to(self, device: str) -> Batch:
        return Batch(self.tokens.to(device), self.targets.to(device), self.pointers.to(device))


def collate(group: list[Example], vocabulary: Vocabulary, random: np.random.Generator, noise: float) -> Batch:
    """`noise`: share of input codes moved to a neighbour on the quantiser's grid, so that the model learns to recover
    from its own sampling errors."""
    length = max(len(e.prompt) + len(e.codes) for e in group)
    tokens = np.zeros((len(group), length, group[0].prompt.shape[1]), np.int64)
    targets = np.full((len(group), length), -1, np.int64)
    pointers = np.full((len(group), length), -1, np.float32)
    for row, example in enumerate(group):
        start, count = len(example.prompt), len(example.codes)
        codes = example.codes.copy()
        hit = np.flatnonzero(random.random(count) < noise)
        place = 8 ** random.integers(0, 4, len(hit))
        digit = codes[hit] // place % 8
        codes[hit] += np.where(digit == 0, 1, np.where(digit == 7, -1, random.choice((-1, 1), len(hit)))) * place
        tokens[row, :start] = example.prompt
        tokens[row, start : start + count, 0] = vocabulary.audio_offset + codes
        targets[row, start - 1 : start - 1 + count] = 1 + example.codes
        targets[row, start - 1 + count] = 0
        pointers[row, start - 1 : start - 1 + count] = example.pointer
    return Batch(torch.from_numpy(tokens), torch.from_numpy(targets), torch.from_numpy(pointers))


class Buckets:
    """Batches of about `budget` positions from examples of like length. `ceiling` bounds the length (curriculum)."""

    def __init__(self, made: list[Example], budget: int) -> None:
        self.made = sorted(made, key=lambda e: len(e.prompt) + len(e.codes))
        self.lengths = np.array([len(e.prompt) + len(e.codes) for e in self.made])
        self.budget = budget

    def draw(self, random: np.random.Generator, ceiling: float) -> list[Example]:
        last = max(1, int(np.searchsorted(self.lengths, ceiling)))
        # Long examples hold more positions: draw a start in proportion to length.
        weight = np.cumsum(self.lengths[:last])
        start = int(np.searchsorted(weight, random.random() * weight[-1]))
        count = max(1, self.budget // int(self.lengths[start]))
        window = np.arange(max(0, start - 2 * count), min(last, start + 2 * count))
        picked = random.choice(window, min(count, len(window)), replace=False)
        picked = picked[: max(1, self.budget // int(self.lengths[picked].max()))]
        return [self.made[i] for i in picked]
