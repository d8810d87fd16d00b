"""Measure how often a draft's candidates are accepted on held-out speech, and grow sparse trees from it.

    python -m training.calibrate --draft checkpoints/rms/heads-4            # tree_8.json … tree_64.json beside it
    python -m training.calibrate --draft checkpoints/rms/heads-6 --nodes 8 16 --temperature 0     # against greedy
    python -m training.calibrate --draft checkpoints/rms/mtp-2              # acceptance.json; MTP drafts a chain

Trees are grown for the rule `tolerance` (--tolerance), where a candidate is accepted that is among τ samples: they are
deeper than those for one sample, suit `top_k` as well, and cost `exact` next to nothing.

acceptance[i][r] is the probability that the candidate of rank r that head (or module) i + 1 proposes equals the token
the LM itself takes there: its arg max for temperature 0, else a sample with the voice's settings, whose chance is read
off the LM's distribution instead of being drawn. Before that token stands the held-out speech (teacher forcing), or
with --speech (training.own_speech) the LM's own, as in service.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from tqdm import tqdm

from training.drafting import (
    HELD,
    SAMPLING,
    Drafter,
    base_logits,
    batches,
    drafts,
    futures,
    load_base,
    load_drafter,
    load_examples,
    sampling_of,
    served_probabilities,
)
from training.lm_data import Batch
from training.models.llama import SpeechLM
from training.models.mtp import MTP
from training.sparse_tree import grow


@torch.no_grad()
def accepted(
    drafter: Drafter, base: SpeechLM, batch: Batch, ranks: int, sampling: tuple[float, int, float], tolerance: int = 1
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]]:
    """(Σ of acceptance probabilities [k, ranks], that with `tolerance` samples, places [k]) of a batch."""
    hidden, logits = drafts(drafter, base, batch)
    wanted = futures(batch.targets, drafter.steps)
    candidates = logits.topk(ranks, -1).indices
    served = served_probabilities(base_logits(base, hidden), *sampling)
    sums, tolerant = np.zeros((2, drafter.steps, ranks))
    counts = np.zeros(drafter.steps, np.int64)
    for ahead in range(drafter.steps):
        # The targets of an utterance follow each other, so the row `ahead + 1` further is the LM at the drafted token.
        here = torch.nonzero(wanted[:, ahead] >= 0)[:, 0]
        hit = served[here + ahead + 1].gather(1, candidates[here, ahead])
        sums[ahead] = hit.double().sum(0).cpu().numpy()
        tolerant[ahead] = (hit.double() * tolerance).clamp(max=1).sum(0).cpu().numpy()
        counts[ahead] = len(here)
    return sums, tolerant, counts


def table(acceptance: NDArray[np.float64]) -> str:
    """The best ranks of every position as aligned text."""
    shown = min(6, acceptance.shape[1])
    lines = ["position  " + "  ".join(f"rank {rank}" for rank in range(shown)) + "  all ranks"]
    for position, row in enumerate(acceptance, start=1):
        lines.append(f"{position:8}  " + "  ".join(f"{value:6.3f}" for value in row[:shown]) + f"  {row.sum():9.3f}")
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        "python -m training.calibrate", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--draft", type=Path, required=True, help="trained draft; the results go there too")
    parser.add_argument("--lm", type=Path, default=Path("checkpoints/rms/lm"))
    parser.add_argument("--corpus", type=Path, default=Path("data/corpus"))
    parser.add_argument("--codec", type=Path, default=Path("checkpoints/rms/codec"))
    parser.add_argument("--codes", type=Path, default=Path("data/lm"), help="cache of the corpus's codes")
    parser.add_argument("--speech", type=Path, help="codes that the LM spoke (training.own_speech) for the teacher's")
    parser.add_argument("--texts", type=int, default=HELD.stop, help="held-out texts to look at (default: all)")
    parser.add_argument("--nodes", type=int, nargs="+", default=[8, 16, 32, 64], help="sizes of the trees")
    parser.add_argument("--ranks", type=int, default=10, help="candidates a position (VADUSA: 10)")
    parser.add_argument("--tolerance", type=int, default=3, help="samples τ that trees are grown for")
    parser.add_argument("--temperature", type=float, help="default: the voice's; 0 is greedy")
    parser.add_argument("--top-k", type=int)
    parser.add_argument("--top-p", type=float)
    parser.add_argument("--budget", type=int, default=3000, help="positions a batch")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=0, help="CPU threads (default: all)")
    args = parser.parse_args(argv)
    if args.threads:
        torch.set_num_threads(args.threads)
    sampling = sampling_of(args.lm, args)
    base, vocabulary = load_base(args.lm)
    drafter = load_drafter(args.draft)
    held = load_examples(args.corpus, args.codec, args.codes, vocabulary, slice(None, args.texts), args.speech)
    base, drafter = base.to(args.device), drafter.to(args.device)
    sums, tolerant = np.zeros((2, drafter.steps, args.ranks))
    counts = np.zeros(drafter.steps, np.int64)
    for batch in tqdm(list(batches(held, vocabulary, args.budget, args.device)), desc="calibrates", unit="batch"):
        exact, more, places = accepted(drafter, base, batch, args.ranks, sampling, args.tolerance)
        sums, tolerant, counts = sums + exact, tolerant + more, counts + places
    # Sums may pass 1 by a rounding.
    acceptance, tolerated = (np.clip(x / np.maximum(counts, 1)[:, None], 0, 1) for x in (sums, tolerant))
    record = {
        **dict(zip(SAMPLING, sampling, strict=True)),
        "places": counts.tolist(),
        "acceptance": acceptance.round(6).tolist(),
    }
    (args.draft / "acceptance.json").write_text(json.dumps(record) + "\n")
    print(table(acceptance))
    chain = 1 + np.cumprod(acceptance[:, 0]).sum()
    print(f"chain of {drafter.steps}: {chain:.2f} tokens a step expected")
    if isinstance(drafter, MTP):
        return
    for nodes in args.nodes:
        tree = grow(tolerated, nodes)
        tree.save(args.draft / f"tree_{nodes}.json")
        print(f"tree of {nodes}: depth {tree.depth}")


if __name__ == "__main__":
    main()
