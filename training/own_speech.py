"""Let the speech LM speak the corpus's texts itself: what a draft must guess is the LM's tokens, not the teacher's.

    python -m training.own_speech --count 3000                       # data/lm/own.npz, the held-out texts among them
    python -m training.draft --kind heads --speech data/lm/own.npz
    python -m training.calibrate --draft checkpoints/rms/heads-4 --speech data/lm/own.npz

Texts whose prompts are equally long are spoken together, over a key-value cache, with the voice's sampling settings.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F
from tqdm import tqdm

from training.data import load_corpus
from training.drafting import base_logits, load_base, prompts, sampling_of, served_probabilities
from training.models.llama import Layer, SpeechLM, rotary, rotate


class Cached:
    """The LM over a key-value cache for rows at the same position: `forward(tokens [B, n, C]) → hidden [B, n, H]`."""

    def __init__(self, base: SpeechLM, batch: int, positions: int) -> None:
        c, device = base.config, base.lm_head.weight.device
        self._base = base
        self._at = 0
        self._cache = torch.zeros(
            c.num_hidden_layers, 2, batch, c.num_key_value_heads, positions, c.head_dim, device=device
        )
        self._cos, self._sin = rotary(c, positions, device)

    def forward(self, tokens: Tensor) -> Tensor:
        batch, n = tokens.shape[:2]
        start, end = self._at, self._at + n
        self._at = end
        base, c = self._base, self._base.config
        seen = torch.arange(end, device=tokens.device) <= torch.arange(start, end, device=tokens.device)[:, None]
        x = base.model.embed_tokens(tokens).sum(2)
        for layer, cache in zip(cast(list[Layer], list(base.model.layers)), self._cache, strict=True):
            attention, h = layer.self_attn, layer.input_layernorm(x)
            q, k, v = (
                project(h).view(batch, n, -1, c.head_dim).transpose(1, 2)
                for project in (attention.q_proj, attention.k_proj, attention.v_proj)
            )
            cos, sin = self._cos[start:end], self._sin[start:end]
            cache[0, :, :, start:end], cache[1, :, :, start:end] = rotate(k, cos, sin), v
            y = F.scaled_dot_product_attention(
                rotate(q, cos, sin), cache[0, :, :, :end], cache[1, :, :, :end], attn_mask=seen, enable_gqa=True
            )
            x = x + attention.o_proj(y.transpose(1, 2).reshape(batch, n, -1))
            x = x + layer.mlp(layer.post_attention_layernorm(x))
        hidden: Tensor = base.model.norm(x)
        return hidden


@torch.inference_mode()
def speak(
    base: SpeechLM, prompt: Tensor, sampling: tuple[float, int, float], limit: int, random: torch.Generator
) -> list[NDArray[np.int64] | None]:
    """The codes of each row of prompt int64 [B, L, C]; None where the end does not come within `limit` codes."""
    batch, length, channels = prompt.shape
    model = Cached(base, batch, length + limit)
    hidden = model.forward(prompt)[:, -1]
    drawn = []
    ended = torch.zeros(batch, dtype=torch.bool, device=prompt.device)
    for _ in range(limit):
        token = torch.multinomial(served_probabilities(base_logits(base, hidden), *sampling), 1, generator=random)[:, 0]
        drawn.append(token)
        ended |= token == 0
        if ended.all():
            break
        following = prompt.new_zeros(batch, 1, channels)
        following[:, 0, 0] = base.config.logit_offset + token  # a row that has ended goes on unheard
        hidden = model.forward(following)[:, 0]
    rows = torch.stack(drawn, 1).cpu().numpy()
    ends = [np.flatnonzero(row == 0) for row in rows]
    return [row[: end[0]] - 1 if len(end) else None for row, end in zip(rows, ends, strict=True)]


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        "python -m training.own_speech", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--lm", type=Path, default=Path("checkpoints/rms/lm"))
    parser.add_argument("--corpus", type=Path, default=Path("data/corpus"))
    parser.add_argument("--out", type=Path, default=Path("data/lm/own.npz"))
    parser.add_argument("--count", type=int, default=3000, help="texts, the first of which are the held-out ones")
    parser.add_argument("--batch", type=int, default=32, help="texts spoken together")
    parser.add_argument("--limit", type=int, default=500, help="codes after which a text is given up")
    parser.add_argument("--temperature", type=float, help="default: the voice's")
    parser.add_argument("--top-k", type=int)
    parser.add_argument("--top-p", type=float)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=0, help="CPU threads (default: all)")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(argv)
    if args.threads:
        torch.set_num_threads(args.threads)
    base, vocabulary = load_base(args.lm)
    base = base.to(args.device)
    sampling = sampling_of(args.lm, args)
    groups: dict[int, list[tuple[str, NDArray[np.int64]]]] = defaultdict(list)
    made = prompts(load_corpus(args.corpus, args.count), vocabulary)
    for key, prompt in made.items():
        groups[len(prompt)].append((key, prompt))
    random = torch.Generator(args.device).manual_seed(args.seed)
    spoken: dict[str, NDArray[np.int64]] = {}
    with tqdm(total=len(made), desc="the LM speaks", unit="text") as progress:
        for group in groups.values():
            for start in range(0, len(group), args.batch):
                keys, rows = zip(*group[start : start + args.batch], strict=True)
                codes = speak(base, torch.from_numpy(np.stack(rows)).to(args.device), sampling, args.limit, random)
                spoken |= {key: row for key, row in zip(keys, codes, strict=True) if row is not None and len(row)}
                progress.update(len(keys))
    args.out.parent.mkdir(parents=True, exist_ok=True)
    np.savez(args.out, ids=np.array(list(spoken)), codes=np.concatenate(list(spoken.values())).astype(np.uint16),
             ends=np.cumsum([len(row) for row in spoken.values()]))  # fmt: skip
    print(f"{len(spoken)} of {len(made)} texts spoken to their end: {args.out}")


if __name__ == "__main__":
    main()
