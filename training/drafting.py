"""What training and calibration of drafts share: data, the tokens to draft, logits of either kind of draft."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from training.data import HELD_OUT, Utterance, load_corpus
from training.lm_data import Batch, Example, collate, encode_corpus, examples
from training.models import files
from training.models.codec import Codec
from training.models.draft_heads import DraftHeads
from training.models.llama import SpeechLM
from training.models.mtp import KIND as MTP_KIND
from training.models.mtp import MTP
from tts_engine.prompt import Vocabulary
from tts_engine.voice import DEFAULTS

SAMPLING = ("temperature", "top_k", "top_p")
Drafter = DraftHeads | MTP
HELD, TRAIN = slice(None, HELD_OUT), slice(HELD_OUT, None)


def load_base(directory: Path) -> tuple[SpeechLM, Vocabulary]:
    """The frozen LM of a checkpoint directory and its ids; FileNotFoundError says what to run."""
    if not (directory / files.CONFIG).exists():
        raise FileNotFoundError(f"no speech LM in {directory}: run `python -m training.lm --out {directory}`")
    base = SpeechLM.from_pretrained(directory).requires_grad_(False)
    phonemes = json.loads((directory / "phonemes.json").read_text())
    vocabulary = Vocabulary.from_phonemes(phonemes, base.config.vocab_size - base.config.logit_offset - 1)
    if vocabulary.logit_offset != base.config.logit_offset:
        raise ValueError(
            f"{directory / 'phonemes.json'} does not belong to the LM beside it; take both from one training"
        )
    return base, vocabulary


def load_drafter(directory: Path) -> Drafter:
    """Draft heads or MTP modules, whichever `directory` holds; FileNotFoundError says what to run."""
    if not (directory / files.CONFIG).exists():
        raise FileNotFoundError(f"no draft in {directory}: run `python -m training.draft --out {directory}`")
    kind = json.loads((directory / files.CONFIG).read_text()).get("kind")
    return MTP.from_pretrained(directory) if kind == MTP_KIND else DraftHeads.from_pretrained(directory)


def load_examples(
    corpus: Path, codec: Path, cache: Path, vocabulary: Vocabulary, part: slice, speech: Path | None = None
) -> list[Example]:
    """A part of the corpus (HELD or TRAIN) as prompts and codes; codes are cached in `cache`.

    speech: codes by the LM itself (training.own_speech) instead; texts that are not in it are left out.
    """
    utterances = load_corpus(corpus, part.stop)[part]
    if speech is None:
        cache.mkdir(parents=True, exist_ok=True)
        return examples(utterances, encode_corpus(Codec.from_pretrained(codec), utterances, cache), vocabulary)
    with np.load(speech) as arrays:
        rows = np.split(arrays["codes"].astype(np.int64), arrays["ends"][:-1])
        spoken = dict(zip(arrays["ids"].tolist(), rows, strict=True))
    utterances = [utterance for utterance in utterances if utterance.id in spoken]
    return examples(utterances, [spoken[utterance.id] for utterance in utterances], vocabulary)


def prompts(utterances: Sequence[Utterance], vocabulary: Vocabulary) -> dict[str, NDArray[np.int64]]:
    """Prompt int64 [L, C] by utterance id; texts that `examples` leaves out are not among them."""
    # The only code of each is its place, by which those that were kept are known.
    made = examples(list(utterances), [np.array([place]) for place in range(len(utterances))], vocabulary)
    return {utterances[int(example.codes[0])].id: example.prompt for example in made}


def sampling_of(lm: Path, args: argparse.Namespace) -> tuple[float, int, float]:
    """(temperature, top_k, top_p): the arguments', else the voice's (generation_config.json), else the engine's."""
    path = lm / "generation_config.json"
    known = DEFAULTS | (json.loads(path.read_text()) if path.exists() else {})
    temperature, top_k, top_p = (
        known[name] if getattr(args, name) is None else getattr(args, name) for name in SAMPLING
    )
    return float(temperature), int(top_k), float(top_p)


def served_probabilities(logits: Tensor, temperature: float, top_k: int, top_p: float) -> Tensor:
    """What the engine samples from, [N, V]: temperature, then top-k, then top-p; temperature 0 is the arg max.

    top_k 0 and top_p 1 keep everything, as in the engine.
    """
    if temperature == 0:
        return torch.zeros_like(logits).scatter_(-1, logits.argmax(-1, keepdim=True), 1.0)
    count = min(top_k or logits.shape[-1], logits.shape[-1])
    values, candidates = (logits / temperature).topk(count, -1)
    weights = values.softmax(-1)
    weights = weights * (weights.cumsum(-1) - weights < top_p)
    weights = weights / weights.sum(-1, keepdim=True)
    return torch.zeros_like(logits).scatter_(-1, candidates, weights)


def batches(made: Sequence[Example], vocabulary: Vocabulary, budget: int, device: str) -> Iterator[Batch]:
    """All examples once, without noise, shortest first, in batches of about `budget` positions."""
    group: list[Example] = []
    for example in sorted(made, key=lambda e: len(e.prompt) + len(e.codes)):
        if group and (len(group) + 1) * (len(example.prompt) + len(example.codes)) > budget:
            yield on_device(collate(group, vocabulary, np.random.default_rng(0), 0.0), device)
            group = []
        group.append(example)
    if group:
        yield on_device(collate(group, vocabulary, np.random.default_rng(0), 0.0), device)


def on_device(batch: Batch, device: str) -> Batch:
    return Batch(batch.tokens.to(device), batch.targets.to(device), batch.pointers.to(device))


def futures(targets: Tensor, steps: int) -> Tensor:
    """What to draft: targets int64 [B, T] (-1 = none) → [N, steps], a row for each of the N targets in order.

    Column i - 1 is the target i positions later, -1 behind the end.
    """
    columns = [F.pad(targets[:, ahead:], (0, ahead), value=-1) for ahead in range(1, steps + 1)]
    return torch.stack(columns, -1)[targets >= 0]


def drafts(drafter: Drafter, base: SpeechLM, batch: Batch) -> tuple[Tensor, Tensor]:
    """At each of the N targets of a batch: (the base's hidden state [N, H], the draft's logits [N, k, V]).

    Gradients flow to the base too where its parameters ask for them. `base_logits(base, hidden)` are its own logits.
    """
    place = batch.targets >= 0
    hidden = base.hidden(batch.tokens)[0]
    embedded = base.model.embed_tokens(batch.tokens).sum(2)
    if isinstance(drafter, DraftHeads):
        following = torch.stack([F.pad(embedded[:, i:], (0, 0, 0, i))[place] for i in range(1, drafter.steps + 1)], -2)
        return hidden[place], base_logits(base, drafter(hidden[place], following))
    return hidden[place], base_logits(base, drafter(hidden, embedded)[place])


def base_logits(base: SpeechLM, hidden: Tensor) -> Tensor:
    """The LM's head over the logits it exports: [..., H] → [..., V]."""
    return F.linear(hidden, base.lm_head.weight[base.config.logit_offset :])
