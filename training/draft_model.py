"""Train a draft model: some layers of the speech LM, started from it and taught to say what it says (PCG, SSD).

    python -m training.draft_model --speech data/lm/own.npz       # checkpoints/rms/draft-2; resumes from data/draft-2
    python -m training.draft_model --layers 0 2 5 --steps 3000

It learns, on speech that the LM spoke itself (training.own_speech), the LM's distribution at the voice's temperature:

    L = - Σ_v p(v) log q(v),   p = softmax(LM / temperature), q = softmax(draft / temperature)

Printed at the end, on held-out texts: Σ_v min(p, q), the share of its tokens that exact speculative sampling accepts,
with the voice's own sampling settings; acceptance.json holds it for the export.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from training.drafting import (
    HELD,
    SAMPLING,
    TRAIN,
    base_logits,
    batches,
    load_base,
    load_examples,
    on_device,
    sampling_of,
    served_probabilities,
)
from training.lm_data import Batch, Buckets, Example, collate
from training.models.llama import SpeechLM
from training.progress import LossCurve, load_checkpoint, save_checkpoint
from tts_engine.prompt import Vocabulary

WARM_UP = 40


def layer_subset(base: SpeechLM, layers: Sequence[int]) -> SpeechLM:
    """An LM of these layers of `base`, its embeddings, norm and head copied; ValueError where it has no such layer."""
    if not layers or not all(0 <= layer < base.config.num_hidden_layers for layer in layers):
        raise ValueError(f"layers must lie between 0 and {base.config.num_hidden_layers - 1}, not {list(layers)}")
    made = SpeechLM(replace(base.config, num_hidden_layers=len(layers)))
    wanted = {f"model.layers.{layer}.": f"model.layers.{place}." for place, layer in enumerate(layers)}
    weights = {}
    for name, weight in base.state_dict().items():
        if not name.startswith("model.layers."):
            weights[name] = weight
        for theirs, ours in wanted.items():
            if name.startswith(theirs):
                weights[name.replace(theirs, ours)] = weight
    made.load_state_dict(weights)
    return made


def distillation(draft: SpeechLM, base: SpeechLM, batch: Batch, temperature: float) -> tuple[Tensor, Tensor]:
    """(cross-entropy between the two at the places that have a target, Σ min(p, q) there on average)."""
    place = batch.targets >= 0
    with torch.autocast(batch.tokens.device.type, torch.bfloat16):
        with torch.no_grad():
            target = base_logits(base, base.hidden(batch.tokens)[0][place])
        logits = base_logits(draft, draft.hidden(batch.tokens)[0][place])
    p = (target.float() / temperature).softmax(-1)
    log_q = (logits.float() / temperature).log_softmax(-1)
    with torch.no_grad():
        overlap = torch.minimum(p[::16], log_q[::16].exp()).sum(-1).mean()
    return -(p * log_q).sum(-1).mean(), overlap


@torch.no_grad()
def acceptance(
    draft: SpeechLM,
    base: SpeechLM,
    held: Sequence[Example],
    vocabulary: Vocabulary,
    sampling: tuple[float, int, float],
    budget: int,
    device: str,
) -> float:
    """Σ min(p, q) with the voice's sampling, over all of `held`, before speech that the LM spoke."""
    total, count = 0.0, 0
    for batch in batches(held, vocabulary, budget, device):
        place = batch.targets >= 0
        p, q = (
            served_probabilities(base_logits(model, model.hidden(batch.tokens)[0][place]).float(), *sampling)
            for model in (base, draft)
        )
        total += float(torch.minimum(p, q).sum())
        count += len(p)
    return total / max(1, count)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        "python -m training.draft_model", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--layers", type=int, nargs="+", default=[0, 3], help="layers of the LM that it starts as")
    parser.add_argument("--lm", type=Path, default=Path("checkpoints/rms/lm"), help="the LM, frozen")
    parser.add_argument("--corpus", type=Path, default=Path("data/corpus"))
    parser.add_argument("--codec", type=Path, default=Path("checkpoints/rms/codec"))
    parser.add_argument("--codes", type=Path, default=Path("data/lm"), help="cache of the corpus's codes")
    parser.add_argument("--speech", type=Path, help="codes that the LM spoke (training.own_speech) for the teacher's")
    parser.add_argument("--work", type=Path, help="checkpoint to resume from, curve (default: data/draft-COUNT)")
    parser.add_argument("--out", type=Path, help="default: draft-COUNT beside the LM")
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--budget", type=int, default=3000, help="positions a batch")
    parser.add_argument("--rate", type=float, default=1e-3, help="peak learning rate")
    parser.add_argument("--temperature", type=float, help="default: the voice's")
    parser.add_argument("--top-k", type=int)
    parser.add_argument("--top-p", type=float)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=0, help="CPU threads (default: all)")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(argv)
    if args.threads:
        torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    name = f"draft-{len(args.layers)}"
    work, out = args.work or Path("data") / name, args.out or args.lm.parent / name
    work.mkdir(parents=True, exist_ok=True)
    sampling = sampling_of(args.lm, args)
    base, vocabulary = load_base(args.lm)
    held, made = (
        load_examples(args.corpus, args.codec, args.codes, vocabulary, part, args.speech) for part in (HELD, TRAIN)
    )
    if not made:
        parser.error(f"nothing to train on: give training.own_speech a --count well above {HELD.stop}")
    base = base.to(args.device)
    draft = layer_subset(base, args.layers).to(args.device).train()
    optimiser = torch.optim.AdamW(draft.parameters(), args.rate, betas=(0.9, 0.98), weight_decay=0.0)
    done = load_checkpoint(work / "last.pt", draft, optimiser)
    curve = LossCurve(work / "loss.csv", work / "loss.png", resume=done > 0)
    buckets = Buckets(made, args.budget)
    for step in (progress := tqdm(range(done, args.steps), initial=done, total=args.steps, desc=name, unit="step")):
        for group in optimiser.param_groups:
            group["lr"] = args.rate * min(1.0, (step + 1) / WARM_UP) * min(1.0, 0.01 + 1.5 * (1 - step / args.steps))
        random = np.random.default_rng((args.seed, step))
        batch = on_device(collate(buckets.draw(random, np.inf), vocabulary, random, 0.0), args.device)
        loss, overlap = distillation(draft, base, batch, sampling[0] or 1.0)
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(draft.parameters(), 1.0)
        optimiser.step()
        curve.add(step, loss=loss.item(), overlap=overlap.item())
        progress.set_postfix({key: f"{curve.mean(key):.3f}" for key in ("loss", "overlap")})
        if (step + 1) % 200 == 0:
            save_checkpoint(work / "last.pt", draft, optimiser, step + 1)
            curve.draw()
    draft.eval().save_pretrained(out)
    if curve.table.exists():
        curve.draw(out / "loss.png")
    share = acceptance(draft, base, held, vocabulary, sampling, args.budget, args.device)
    record = {**dict(zip(SAMPLING, sampling, strict=True)), "acceptance": [round(share, 6)]}
    (out / "acceptance.json").write_text(json.dumps(record) + "\n")
    print(f"{name} in {out}; exact sampling accepts {share:.3f} of its tokens on held-out texts")


if __name__ == "__main__":
    main()
