"""Train the prosody BERT on the teacher's own phrase breaks and pauses.

    python -m training.prosody --make-wordpiece     # once: checkpoints/rms/prosody/wordpiece.json
    python -m training.prosody                      # resumes from data/prosody/last.pt when it is there
    python -m training.prosody --bert DIR           # start from a BERT (its wordpiece.json = tokenizer.json)

Every word gets three labels, read at its first wordpiece: a prosodic word, a phonological phrase, an intonational
phrase ends here (incremental TTS, 2.1.1).
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F
from tqdm import tqdm

from training.models.bert import LEVELS, BertConfig, ProsodyBert
from training.progress import LossCurve, load_checkpoint, save_checkpoint
from training.wordpiece import make_wordpiece
from tts_engine.text import Sentence, TextFrontend, WordpieceEncoding

LEVEL_NAMES = ("prosodic word", "phonological phrase", "intonational phrase")
HELD_OUT = 500  # rows at the manifest's start; the LM's held-out utterances are among them
# Corpus texts are short and served sentences may not be: examples are as long as drawn here, of several texts on end.
SHORTEST, LONGEST, MAX_PIECES = 4, 200, 250
MEAN_PIECES = 12  # of a text, about
WARMUP_STEPS = 100
NO_LABEL = -1


@dataclass(frozen=True)
class Example:
    """`pieces` int64 [L] without [CLS] and [SEP]; `labels` int64 [L, 3], `NO_LABEL` beside first pieces."""

    pieces: np.ndarray
    labels: np.ndarray


def example(encoding: WordpieceEncoding, prosody: list[list[int]]) -> Example:
    """Labels of words laid on their first pieces."""
    labels = np.full((len(encoding.input_ids), LEVELS), NO_LABEL, np.int64)
    labels[encoding.first_piece] = prosody
    return Example(np.array(encoding.input_ids[1:-1], np.int64), labels[1:-1])


def load_examples(manifest: Path, frontend: TextFrontend) -> list[Example]:
    """One example a manifest row; rows the frontend reads in other words than the teacher are left out.

    Raises FileNotFoundError saying what to run.
    """
    if not manifest.exists():
        raise FileNotFoundError(f"no corpus at {manifest}: run `python -m training.corpus --out {manifest.parent}`")
    made = []
    for line in tqdm(manifest.read_text().splitlines(), desc="texts", unit="text"):
        row: dict[str, Any] = json.loads(line)
        words = tuple(word for sentence in frontend.sentences(row["text"]) for word in sentence.words)
        if [word.text for word in words] == [word.lower() for word in row["words"]]:
            made.append(example(frontend.encode(Sentence(row["text"], words)), row["prosody"]))
    return made


def draw(examples: list[Example], budget: int, random: np.random.Generator) -> list[Example]:
    """Examples of like length, about `budget` pieces together; each is one text or as many as its length takes."""
    wanted = float(np.exp(random.uniform(np.log(SHORTEST), np.log(LONGEST))))
    drawn = []
    for _ in range(max(1, int(budget / max(wanted, MEAN_PIECES)))):
        parts = [examples[random.integers(len(examples))]]
        while (size := sum(len(part.pieces) for part in parts)) < wanted:
            more = examples[random.integers(len(examples))]
            if size + len(more.pieces) > MAX_PIECES:
                break
            parts.append(more)
        drawn.append(
            Example(*(np.concatenate(kind) for kind in zip(*((p.pieces, p.labels) for p in parts), strict=True)))
        )
    return drawn


def collate(examples: list[Example], ends: tuple[int, int]) -> tuple[Tensor, Tensor, Tensor]:
    """`input_ids`, `attention_mask` int64 [B, L], `labels` int64 [B, L, 3]; `ends`: ids of [CLS] and [SEP]."""
    length = max(len(e.pieces) for e in examples) + 2
    ids = np.zeros((len(examples), length), np.int64)
    mask = np.zeros_like(ids)
    labels = np.full((*ids.shape, LEVELS), NO_LABEL, np.int64)
    for row, each in enumerate(examples):
        count = len(each.pieces)
        ids[row, : count + 2] = [ends[0], *each.pieces, ends[1]]
        mask[row, : count + 2] = 1
        labels[row, 1 : count + 1] = each.labels
    return torch.from_numpy(ids), torch.from_numpy(mask), torch.from_numpy(labels)


def loss(scores: Tensor, labels: Tensor) -> Tensor:
    """Mean cross-entropy over words and levels."""
    return F.cross_entropy(scores.flatten(0, 2), labels.flatten(), ignore_index=NO_LABEL)


@torch.no_grad()
def f1_scores(model: ProsodyBert, examples: list[Example], ends: tuple[int, int], device: str) -> list[float]:
    """F1 of label 1, a level each, over all words of `examples` (0 where a level has no hit)."""
    model.eval()
    hits, guesses, truths = np.zeros(LEVELS), np.zeros(LEVELS), np.zeros(LEVELS)
    for start in range(0, len(examples), 64):
        ids, mask, labels = (t.to(device) for t in collate(examples[start : start + 64], ends))
        words = labels[..., 0] != NO_LABEL
        guessed, true = model(ids, mask).argmax(-1)[words], labels[words]
        hits += (guessed * true).sum(0).cpu().numpy()
        guesses += guessed.sum(0).cpu().numpy()
        truths += true.sum(0).cpu().numpy()
    model.train()
    return [float(2 * h / (g + t)) if h else 0.0 for h, g, t in zip(hits, guesses, truths, strict=True)]


def train(args: argparse.Namespace) -> ProsodyBert:
    """Train by the options of `main` and save to `args.out`; returns the model."""
    torch.manual_seed(args.seed)
    args.work.mkdir(parents=True, exist_ok=True)
    wordpiece = (args.bert or args.out) / "wordpiece.json"
    if not wordpiece.exists():
        raise FileNotFoundError(f"no vocabulary at {wordpiece}: run `python -m training.prosody --make-wordpiece`")
    frontend = TextFrontend(wordpiece_path=wordpiece)
    vocabulary = json.loads(wordpiece.read_text())["model"]["vocab"]
    ends = vocabulary["[CLS]"], vocabulary["[SEP]"]
    examples = load_examples(args.manifest, frontend)
    held_count = min(HELD_OUT, len(examples) // 5)
    held, trained = examples[:held_count], examples[held_count:]
    if not held:
        raise ValueError(f"{args.manifest} holds {len(examples)} usable texts: too few to train on and to check with")
    config = BertConfig(vocab_size=len(vocabulary))
    model = ProsodyBert.from_pretrained(args.bert, new_head=True) if args.bert else ProsodyBert(config)
    model = model.to(args.device).train()
    optimiser = torch.optim.AdamW(model.parameters(), lr=args.rate, weight_decay=0.01)
    done = load_checkpoint(args.work / "last.pt", model, optimiser)
    curve = LossCurve(args.work / "loss.csv", args.work / "loss.png", resume=done > 0)
    progress = tqdm(initial=done, total=args.steps, desc="prosody", unit="step", mininterval=2)
    for step in range(done, args.steps):
        torch.manual_seed(args.seed * 1_000_003 + step)  # dropout, too, is the same after a resume
        batch = collate(draw(trained, args.budget, np.random.default_rng((args.seed, step))), ends)
        ids, mask, labels = (tensor.to(args.device) for tensor in batch)
        for group in optimiser.param_groups:
            group["lr"] = args.rate * min((step + 1) / WARMUP_STEPS, 1.02 - step / args.steps, 1.0)
        value = loss(model(ids, mask), labels)
        optimiser.zero_grad()
        value.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        curve.add(step, loss=value.item())
        progress.update()
        progress.set_postfix(loss=f"{curve.mean('loss'):.4f}")
        if (step + 1) % args.save_every == 0 or step + 1 == args.steps:
            save_checkpoint(args.work / "last.pt", model, optimiser, step + 1)
            scores = f1_scores(model, held, ends, args.device)
            tqdm.write(f"step {step + 1}: held-out F1 " + _table(scores))
    progress.close()
    model.save_pretrained(args.out)
    if curve.table.exists():
        curve.draw(args.out / "loss.png")
    if args.bert:
        (args.out / "wordpiece.json").write_bytes(wordpiece.read_bytes())
    scores = f1_scores(model, held, ends, args.device)
    print(f"held-out F1 over {len(held)} texts: {_table(scores)}; saved in {args.out}")
    return model.eval()


def _table(scores: list[float]) -> str:
    return ", ".join(f"{name} {score:.3f}" for name, score in zip(LEVEL_NAMES, scores, strict=True))


def options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--make-wordpiece", action="store_true", help="write OUT/wordpiece.json and stop")
    parser.add_argument("--manifest", type=Path, default=Path("data/corpus/manifest.jsonl"))
    parser.add_argument("--work", type=Path, default=Path("data/prosody"), help="checkpoint to resume from, curve")
    parser.add_argument("--out", type=Path, default=Path("checkpoints/rms/prosody"))
    parser.add_argument("--bert", type=Path, help="directory of a BERT to start from (default: from scratch, small)")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--budget", type=int, default=1200, help="wordpieces a step")
    parser.add_argument("--rate", type=float, default=5e-4, help="peak learning rate (2e-5 for a pretrained BERT)")
    parser.add_argument("--save-every", type=int, default=250, help="steps between checkpoints and held-out figures")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads")
    parser.add_argument("--seed", type=int, default=0)
    return parser


def main() -> None:
    args = options().parse_args()
    torch.set_num_threads(args.threads)
    if args.make_wordpiece:
        texts = (
            [json.loads(line)["text"] for line in args.manifest.read_text().splitlines()]
            if args.manifest.exists()
            else []
        )
        print(f"{make_wordpiece(args.out / 'wordpiece.json', texts)} wordpieces in {args.out}")
    else:
        train(args)


if __name__ == "__main__":
    main()
