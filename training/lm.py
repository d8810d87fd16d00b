"""Train the speech LM: phonemes and prosody in, codec tokens out.

    python -m training.lm --minutes 90                    # resumes from data/lm/last.pt when it is there
    python -m training.lm --device cuda --budget 32000 --steps 20000
    python -m training.lm --size paper --device cuda …    # 12 layers of 1024; training.paper_size does all of it

Three things make it learn in minutes what plain next-token training takes hours for: short utterances come
first; one attention head is told where in the prompt the teacher was (its word times), so alignment need
not be discovered; code embeddings and output rows share factors along the quantiser's four dimensions
(folded into plain tables when saved).
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parametrize
from tqdm import tqdm

from training.data import HELD_OUT, load_corpus
from training.lm_data import Batch, Buckets, collate, encode_corpus, examples
from training.models.codec import Codec
from training.models.llama import SpeechLM, SpeechLMConfig
from training.progress import LossCurve, load_checkpoint, save_checkpoint
from tts_engine.prompt import Vocabulary

# The served voice's is what two cores decode in real time many times over; the papers' is VADUSA's and PCG's.
SIZES: dict[str, dict[str, Any]] = {
    "demo": {},
    "paper": {
        "hidden_size": 1024,
        "num_hidden_layers": 12,
        "num_attention_heads": 16,
        "num_key_value_heads": 16,
        "intermediate_size": 4096,
    },
}
POINTER_WIDTH = 1.2  # phonemes


class GridFactors(nn.Module):
    """Adds Σ_d factor[d, digit_d(code)] to the rows of the audio codes of a table [vocab, H]."""

    onehot: Tensor

    def __init__(self, vocabulary: Vocabulary, levels: tuple[int, ...], hidden: int) -> None:
        super().__init__()
        self.first = vocabulary.audio_offset
        radix = np.cumprod([1, *levels[:-1]])
        digits = np.arange(vocabulary.codebook_size)[:, None] // radix % np.array(levels)
        place = torch.from_numpy(digits + np.cumsum([0, *levels[:-1]]))
        self.register_buffer("onehot", F.one_hot(place, sum(levels)).sum(1).float(), persistent=False)
        self.factors = nn.Parameter(torch.randn(sum(levels), hidden) * 0.02)

    def forward(self, table: Tensor) -> Tensor:
        return table + F.pad(self.onehot @ self.factors, (0, 0, self.first, 0))


def losses(model: SpeechLM, batch: Batch, vocabulary: Vocabulary, watch: int) -> tuple[Tensor, Tensor, Tensor]:
    """(cross-entropy, pointer loss, accuracy) of one batch."""
    with torch.autocast(batch.tokens.device.type, torch.bfloat16):
        hidden, watched = model.hidden(batch.tokens, watch)
        place = batch.targets >= 0
        logits = hidden[place] @ model.lm_head.weight[vocabulary.logit_offset :].T
    assert watched is not None
    targets = batch.targets[place]
    entropy = F.cross_entropy(logits.float(), targets)
    with torch.no_grad():
        accuracy = (logits[::16].argmax(-1) == targets[::16]).float().mean()  # a sample: argmax over 4,097 costs
    query, key = (x.float() for x in watched)
    length = query.shape[1]
    scores = query @ key.transpose(1, 2) / query.shape[-1] ** 0.5
    scores = scores.masked_fill(torch.ones(length, length, dtype=torch.bool, device=scores.device).triu(1), -torch.inf)
    distance = batch.pointers[..., None] - torch.arange(length, device=scores.device)
    wanted = torch.exp(-((distance / POINTER_WIDTH) ** 2) / 2)
    mass = (scores.softmax(-1) * wanted).sum(-1)[batch.pointers >= 0]
    return entropy, -torch.log(mass + 1e-4).mean(), accuracy


def optimisers(model: SpeechLM, rate: float) -> list[torch.optim.Optimizer]:
    """Muon for the matrices of the layers, AdamW for tables, factors and norms."""
    matrices = [p for n, p in model.named_parameters() if p.dim() == 2 and ".layers." in n]
    others = [p for n, p in model.named_parameters() if not (p.dim() == 2 and ".layers." in n)]
    return [
        torch.optim.Muon(matrices, lr=rate, weight_decay=0.05, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(others, lr=rate, betas=(0.9, 0.98), weight_decay=0.0),
    ]


class Both(torch.optim.Optimizer):
    """Two optimisers as one, so that checkpoints hold one."""

    def __init__(self, parts: list[torch.optim.Optimizer]) -> None:
        self.parts = parts
        self.param_groups = [group for part in parts for group in part.param_groups]

    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for part in self.parts:
            part.step()

    def zero_grad(self, set_to_none: bool = True) -> None:
        for part in self.parts:
            part.zero_grad(set_to_none)

    def state_dict(self) -> dict[str, object]:
        return {str(i): part.state_dict() for i, part in enumerate(self.parts)}

    def load_state_dict(self, state_dict: dict[str, dict[str, object]]) -> None:
        for i, part in enumerate(self.parts):
            part.load_state_dict(state_dict[str(i)])
        self.param_groups = [group for part in self.parts for group in part.param_groups]


def save_folded(model: SpeechLM, out: Path) -> None:
    """Save with the factors folded into plain tables."""
    plain = SpeechLM(model.config)
    state = {k: v for k, v in model.state_dict().items() if ".parametrizations." not in f".{k}"}
    state |= {
        "model.embed_tokens.weight": model.model.embed_tokens.weight.detach(),
        "lm_head.weight": model.lm_head.weight.detach(),
    }
    plain.load_state_dict(state)
    plain.save_pretrained(out)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, default=Path("data/corpus"))
    parser.add_argument("--codec", type=Path, default=Path("checkpoints/rms/codec"))
    parser.add_argument("--work", type=Path, default=Path("data/lm"), help="checkpoint to resume from, codes, curve")
    parser.add_argument("--out", type=Path, default=Path("checkpoints/rms/lm"))
    parser.add_argument("--size", choices=tuple(SIZES), default="demo", help="demo: 12.7 M parameters; paper: 210 M")
    parser.add_argument("--steps", type=int, default=3800)
    parser.add_argument("--minutes", type=float, default=0, help="end the schedule by this time instead of by steps")
    parser.add_argument("--budget", type=int, default=3000, help="positions a batch")
    parser.add_argument("--rate", type=float, default=2e-3, help="peak learning rate")
    parser.add_argument("--noise", type=float, default=0.05, help="share of input codes moved to a neighbour")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=0, help="CPU threads (default: all)")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    if args.threads:
        torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    args.work.mkdir(parents=True, exist_ok=True)
    vocabulary = Vocabulary.from_phonemes(json.loads((args.out / "phonemes.json").read_text()))
    codec = Codec.from_pretrained(args.codec)
    corpus = load_corpus(args.corpus)
    codes = encode_corpus(codec, corpus, args.work)
    held = examples(corpus[:HELD_OUT], codes[:HELD_OUT], vocabulary)
    buckets = Buckets(examples(corpus[HELD_OUT:], codes[HELD_OUT:], vocabulary), args.budget)
    size = SIZES[args.size]
    config = SpeechLMConfig(vocab_size=vocabulary.size, logit_offset=vocabulary.logit_offset, **size)
    model = SpeechLM(config)
    for module in (model.model.embed_tokens, model.lm_head):
        factors = GridFactors(vocabulary, codec.config.levels, config.hidden_size)
        parametrize.register_parametrization(module, "weight", factors)
    model = model.to(args.device).train()
    watch = config.num_hidden_layers // 2 - 1
    optimiser = Both(optimisers(model, args.rate))
    done = load_checkpoint(args.work / "last.pt", model, optimiser)
    curve = LossCurve(args.work / "loss.csv", args.work / "loss.png", resume=done > 0)
    check = collate(held[:40], vocabulary, np.random.default_rng(0), 0.0).to(args.device)
    began = time.monotonic()
    progress = tqdm(initial=done, total=args.steps, desc="lm", unit="step", mininterval=5)
    for step in range(done, args.steps):
        share = (step / args.steps) if not args.minutes else (time.monotonic() - began) / 60 / args.minutes
        if share >= 1:
            break
        for group in optimiser.param_groups:
            group["lr"] = args.rate * min(1.0, (step + 1) / 100) * min(1.0, 0.01 + 1.5 * (1 - share))
        random = np.random.default_rng((args.seed, step))
        ceiling = 60 + step * 0.6 if step < 800 else np.inf  # short utterances first
        batch = collate(buckets.draw(random, ceiling), vocabulary, random, args.noise).to(args.device)
        entropy, guide, accuracy = losses(model, batch, vocabulary, watch)
        optimiser.zero_grad()
        (entropy + 0.2 * guide).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        curve.add(step, entropy=entropy.item(), pointer=guide.item(), accuracy=accuracy.item())
        progress.update()
        progress.set_postfix({name: f"{curve.mean(name):.3f}" for name in ("entropy", "pointer", "accuracy")})
        if (step + 1) % 200 == 0:
            with torch.no_grad():
                held_loss, _, held_accuracy = losses(model, check, vocabulary, watch)
            tqdm.write(f"step {step + 1}: held-out entropy {held_loss:.3f}, accuracy {held_accuracy:.3f}")
            save_checkpoint(args.work / "last.pt", model, optimiser, step + 1)
            save_folded(model, args.work)
            curve.draw()
    save_folded(model, args.out)
    curve.draw(args.out / "loss.png")


if __name__ == "__main__":
    main()
