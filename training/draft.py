"""Train what drafts for the speech LM: draft heads (VADUSA) or MTP modules (Llasa+). The LM is frozen unless told.

    python -m training.draft --kind heads --heads 4               # checkpoints/rms/heads-4; resumes from data/heads-4
    python -m training.draft --kind heads --heads 6 --minutes 20
    python -m training.draft --kind heads --speech data/lm/own.npz    # on the LM's own speech (training.own_speech)
    python -m training.draft --kind heads --tune-lm 0.1           # the LM too: heads-4-tuned, and lm/ in it
    python -m training.draft --kind heads --start checkpoints/rms/heads-6 --tune-lm 0.1   # from drafts there are
    python -m training.draft --kind mtp --modules 2               # checkpoints/rms/mtp-2
    python -m training.draft --kind mtp --modules 2 --decay 1 --no-reads      # as in Llasa+
    python -m training.draft --kind heads --device cuda --budget 32000 --steps 10000

At the position that reads token t the LM predicts token t + 1, head or module i = 1 … k token t + 1 + i. The loss is

    L = sum_i λ^i CE(p_i, P_{t+1+i})

VADUSA section II-A with λ = 0.8 (--decay), with λ = 1 it is Llasa+ eq. 2, but for the target: not the token that came,
but the distribution P, at the voice's temperature, from which the LM draws one there; that is what drafts are verified
against, and it says more than a sample. Tuning the LM adds its own CE with the tokens (i = 0).
Printed at the end: how often each one's most probable token is the held-out speech's, beside the LM's own figure
(position 0).
"""

from __future__ import annotations

import argparse
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from tqdm import tqdm

from training.drafting import (
    HELD,
    TRAIN,
    Drafter,
    base_logits,
    batches,
    drafts,
    futures,
    load_base,
    load_drafter,
    load_examples,
    on_device,
    sampling_of,
)
from training.lm_data import Batch, Buckets, Example, collate
from training.models.draft_heads import DraftHeads
from training.models.llama import SpeechLM
from training.models.mtp import MTP
from training.progress import LossCurve, load_checkpoint, save_checkpoint
from tts_engine.prompt import Vocabulary

RATES = {"heads": 2e-3, "mtp": 1e-3}  # VADUSA's; Llasa+'s 1e-4 is for modules of a 1B model
WARM_UP = 40


def draft_loss(
    drafter: Drafter, base: SpeechLM, batch: Batch, decay: float, temperature: float
) -> tuple[Tensor, Tensor]:
    """(Σ_i decay^i cross-entropy of position i, top-1 accuracy a position [k]) of one batch.

    The LM's own cross-entropy (i = 0) is in the sum when the LM is being tuned.
    """
    with torch.autocast(batch.tokens.device.type, torch.bfloat16):
        hidden, logits = drafts(drafter, base, batch)
        own = base_logits(base, hidden)
    wanted = futures(batch.targets, drafter.steps)
    loss = logits.new_zeros((), dtype=torch.float32)
    if hidden.requires_grad:
        loss = loss + F.cross_entropy(own.float(), batch.targets[batch.targets >= 0])
    target = (own.detach().float() / temperature).softmax(-1)
    hits = []
    for ahead in range(drafter.steps):
        # The targets of an utterance follow each other: the row `ahead + 1` further is the LM at the drafted token.
        here = torch.nonzero(wanted[:, ahead] >= 0)[:, 0]
        soft, guess = target[here + ahead + 1], logits[here, ahead].float()
        loss = loss + decay ** (ahead + 1) * F.cross_entropy(guess, soft)
        hits.append((guess[::16].argmax(-1) == wanted[here, ahead][::16]).float().mean())  # all of them would cost
    return loss, torch.stack(hits).detach()


@torch.no_grad()
def held_out_accuracy(
    drafter: Drafter, base: SpeechLM, held: Sequence[Example], vocabulary: Vocabulary, budget: int, device: str
) -> list[float]:
    """Top-1 accuracy of the base (position 0) and of every drafted position, [1 + k], over all of `held`."""
    hits, counts = torch.zeros(1 + drafter.steps), torch.zeros(1 + drafter.steps)
    for batch in batches(held, vocabulary, budget, device):
        hidden, logits = drafts(drafter, base, batch)
        guess = torch.cat([base_logits(base, hidden)[:, None], logits], 1).argmax(-1)
        wanted = torch.cat([batch.targets[batch.targets >= 0][:, None], futures(batch.targets, drafter.steps)], 1)
        hits += (guess == wanted).sum(0).cpu()
        counts += (wanted >= 0).sum(0).cpu()
    accuracies: list[float] = (hits / counts.clamp(min=1)).tolist()
    return accuracies


def fresh(args: argparse.Namespace, base: SpeechLM) -> Drafter:
    if args.kind == "heads":
        return DraftHeads.from_base(base, args.heads, args.reads)
    return MTP.from_base(base, args.modules, args.reads)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        "python -m training.draft", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kind", choices=tuple(RATES), required=True)
    parser.add_argument("--heads", type=int, default=4, help="draft heads (VADUSA: 4 or 6)")
    parser.add_argument("--modules", type=int, default=2, choices=(1, 2), help="MTP modules")
    parser.add_argument(
        "--reads",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="heads and modules read the tokens they draft behind",
    )
    parser.add_argument("--lm", type=Path, default=Path("checkpoints/rms/lm"), help="the frozen base")
    parser.add_argument("--corpus", type=Path, default=Path("data/corpus"))
    parser.add_argument("--codec", type=Path, default=Path("checkpoints/rms/codec"))
    parser.add_argument("--codes", type=Path, default=Path("data/lm"), help="cache of the corpus's codes")
    parser.add_argument("--speech", type=Path, help="codes that the LM spoke (training.own_speech) for the teacher's")
    parser.add_argument("--start", type=Path, metavar="DRAFT", help="begin with these weights, not with fresh ones")
    parser.add_argument("--work", type=Path, help="checkpoint to resume from, curve (default: data/KIND-K)")
    parser.add_argument("--out", type=Path, help="default: KIND-K beside the LM")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--minutes", type=float, default=0, help="end the schedule by this time instead of by steps")
    parser.add_argument("--budget", type=int, default=3000, help="positions a batch")
    parser.add_argument("--rate", type=float, help="peak learning rate (default: 2e-3 for heads, 1e-3 for MTP)")
    parser.add_argument("--decay", type=float, default=0.8, help="λ, weight of position i is λ^i")
    parser.add_argument(
        "--tune-lm", type=float, default=0.0, metavar="SHARE", help="tune the LM too, at this share of the rate (0.1)"
    )
    parser.add_argument("--noise", type=float, default=0.05, help="share of input codes moved to a neighbour")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=0, help="CPU threads (default: all)")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(argv)
    if args.heads < 1:
        parser.error("--heads must be at least 1")
    if args.threads:
        torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    start = load_drafter(args.start) if args.start else None
    if start:
        if isinstance(start, MTP) != (args.kind == "mtp"):
            parser.error(f"{args.start} holds no {args.kind}")
        args.heads = args.modules = start.steps
    name = f"{args.kind}-{args.heads if args.kind == 'heads' else args.modules}"
    if not args.reads:
        name += "-plain"
    if args.tune_lm:
        name += "-tuned"
    work, out = args.work or Path("data") / name, args.out or args.lm.parent / name
    work.mkdir(parents=True, exist_ok=True)
    temperature = sampling_of(args.lm, argparse.Namespace(temperature=None, top_k=None, top_p=None))[0] or 1.0
    base, vocabulary = load_base(args.lm)
    held, made = (
        load_examples(args.corpus, args.codec, args.codes, vocabulary, part, args.speech) for part in (HELD, TRAIN)
    )
    if not made:
        parser.error(f"nothing to train on: give training.own_speech a --count well above {HELD.stop}")
    buckets = Buckets(made, args.budget)
    drafter = (start or fresh(args, base)).to(args.device).train()
    base = base.to(args.device).requires_grad_(args.tune_lm > 0)
    rate = args.rate or RATES[args.kind]
    trained = nn.ModuleList([drafter, base] if args.tune_lm else [drafter])
    shares = [1.0, args.tune_lm]  # of the learning rate
    groups = [{"params": list(part.parameters()), "share": s} for part, s in zip(trained, shares, strict=False)]
    optimiser = torch.optim.AdamW(groups, rate, betas=(0.9, 0.98), weight_decay=0.0)
    done = load_checkpoint(work / "last.pt", trained, optimiser)
    curve = LossCurve(work / "loss.csv", work / "loss.png", resume=done > 0)
    began = time.monotonic()
    for step in (progress := tqdm(range(done, args.steps), initial=done, total=args.steps, desc=name, unit="step")):
        share = step / args.steps if not args.minutes else (time.monotonic() - began) / 60 / args.minutes
        if share >= 1:
            break
        for group in optimiser.param_groups:
            group["lr"] = rate * group["share"] * min(1.0, (step + 1) / WARM_UP) * min(1.0, 0.01 + 1.5 * (1 - share))
        random = np.random.default_rng((args.seed, step))
        batch = on_device(collate(buckets.draw(random, np.inf), vocabulary, random, args.noise), args.device)
        loss, accuracy = draft_loss(drafter, base, batch, args.decay, temperature)
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained.parameters(), 1.0)
        optimiser.step()
        curve.add(step, loss=loss.item(), **{f"accuracy {i}": a for i, a in enumerate(accuracy.tolist(), 1)})
        progress.set_postfix({key: f"{curve.mean(key):.3f}" for key in ("loss", "accuracy 1")})
        if (step + 1) % 200 == 0:
            save_checkpoint(work / "last.pt", trained, optimiser, step + 1)
            curve.draw()
    drafter.eval().save_pretrained(out)
    if args.tune_lm:
        base.save_pretrained(out / "lm")
        for path in args.lm.glob("*.json"):
            if not (out / "lm" / path.name).exists():
                shutil.copyfile(path, out / "lm" / path.name)
    if curve.table.exists():
        curve.draw(out / "loss.png")
    accuracies = held_out_accuracy(drafter, base, held, vocabulary, args.budget, args.device)
    print(f"{name} in {out}; held-out top-1 accuracy of the LM (position 0) and of what it drafts:")
    print("\n".join(f"  position {position}  {value:.3f}" for position, value in enumerate(accuracies)))


if __name__ == "__main__":
    main()
