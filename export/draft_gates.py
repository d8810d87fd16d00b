"""Gates of drafts: each graph against its torch module, and its served form alone and in company."""

from __future__ import annotations

import numpy as np
import onnxruntime
import torch
from numpy.typing import NDArray

from export.gate import Gate, milliseconds
from export.parity import LOGIT_BAR
from export.runtime import MASKED, blocks
from training.models.draft_heads import DraftHeads
from training.models.llama import SpeechLM
from training.models.mtp import MTP

Floats = NDArray[np.float32]
Tokens = NDArray[np.int64]


def heads_gates(
    exact: list[onnxruntime.InferenceSession],
    served: list[onnxruntime.InferenceSession],
    heads: DraftHeads,
    model: SpeechLM,
    tokens: Tokens,
    hidden: torch.Tensor,
    variant: str,
) -> list[Gate]:
    """Each head on torch's states: the fp32 graph against torch, the served form on its own and in company.

    tokens int64 [1, T, C] and the LM's hidden states [1, T, H] of them; only positions with all next tokens count.
    """
    reads, length = heads.config.reads_path, tokens.shape[1] - heads.steps
    with torch.no_grad():
        embedded = model.model.embed_tokens(torch.from_numpy(tokens)).sum(2)
        following = torch.stack([embedded[:, i : i + length] for i in range(1, heads.steps + 1)], -2)
        states = heads(hidden[:, :length], following)
        wanted = (states @ model.lm_head.weight[model.config.logit_offset :].T).numpy()
    rows: list[Gate] = []
    before = first = hidden[:, :length].numpy()
    for index, (session, form) in enumerate(zip(exact, served, strict=True)):
        ahead = tokens[:, index + 1 : index + 1 + length]

        def run(graph: onnxruntime.InferenceSession, inputs: Floats, ids: Tokens) -> tuple[Floats, Floats]:
            feeds = {"hidden": inputs} | ({"tokens": ids} if reads else {})
            logits, after = graph.run(["logits", "next_hidden"], feeds)
            return logits, after

        (whole, after), logits = run(session, before, ahead), run(form, before, ahead)[0]
        by_row = run(form, before[0, :, None], ahead[0, :, None])[0]
        alone = np.stack([run(form, before[:, t : t + 1], ahead[:, t : t + 1])[0][0, 0] for t in range(length)])
        company = max(float(np.abs(by_row[:, 0] - alone).max()), float(np.abs(logits[0] - alone).max()))
        target, state = wanted[:, :, index], states[:, :, index].numpy()
        name = f"head_{index + 1}"
        rows += [
            Gate(f"{name} fp32", "max |Δ logit|", float(np.abs(whole - target).max()), LOGIT_BAR),
            Gate(f"{name} fp32", "max |Δ hidden|", float(np.abs(after - state).max()), LOGIT_BAR),
            *_served_gates(f"{name} {variant}", logits, target, company),
        ]
        ms = milliseconds(lambda f=form, b=before, a=ahead: run(f, b[:, :1], a[:, :1]))  # type: ignore[misc]
        rows.append(Gate(f"{name} {variant}", "one position, B = 1", 1, ms=ms))
        before = state if reads else first
    return rows


def _served_gates(graph: str, logits: Floats, wanted: Floats, company: float) -> list[Gate]:
    return [
        Gate(graph, "rms Δ logit", float(np.sqrt(np.mean((logits - wanted) ** 2)))),
        Gate(graph, "top-1 agreement", float((logits.argmax(-1) == wanted.argmax(-1)).mean())),
        Gate(graph, "max |Δ| alone - in company", company, 0),
    ]


class _Module:
    """One MTP graph over a cache of its own, [1, Hkv, T, D] a row, all rows at the same position."""

    def __init__(self, session: onnxruntime.InferenceSession, batch: int, positions: int) -> None:
        self._session = session
        shapes = {value.name: value.shape for value in session.get_inputs()}
        self._reads = "tokens" in shapes
        self._names = [name for name in shapes if name.startswith("past_")]
        _, heads, _, size = shapes[self._names[0]]
        self._cache = [np.zeros((batch, heads, positions, size), np.float32) for _ in self._names]
        self._at = 0

    def forward(self, hidden: Floats, tokens: Tokens) -> tuple[Floats, Floats]:
        """hidden [B, n, H], tokens [B, n, C] that the module reads → logits [B, n, V], next_hidden [B, n, H]."""
        batch, n = hidden.shape[:2]
        positions = np.broadcast_to(self._at + np.arange(n), (batch, n))
        seen = np.arange(self._cache[0].shape[2]) <= positions[..., None]
        feeds = {
            "hidden": hidden,
            "position_ids": positions.copy(),
            "write_idx": np.full(batch, self._at),
            "bias": np.where(seen, np.float32(0), MASKED)[:, None],
            "logit_idx": np.broadcast_to(np.arange(n), (batch, n)).copy(),
            **dict(zip(self._names, self._cache, strict=True)),
        }
        if self._reads:
            feeds["tokens"] = tokens
        names = ["logits", "next_hidden", *(name.replace("past", "present") for name in self._names)]
        logits, following, *self._cache = self._session.run(names, feeds)
        self._at += n
        return logits, following


def mtp_gates(
    exact: list[onnxruntime.InferenceSession],
    served: list[onnxruntime.InferenceSession],
    mtp: MTP,
    model: SpeechLM,
    tokens: Tokens,
    hidden: torch.Tensor,
    variant: str,
) -> list[Gate]:
    """Each module on torch's states: fp32 in two pieces against torch, the served form alone and in company.

    tokens int64 [1, T, C] and the LM's hidden states [1, T, H] of them; only positions with all next tokens count.
    """
    with torch.no_grad():
        embedded = model.model.embed_tokens(torch.from_numpy(tokens)).sum(2)
        states = mtp(hidden, embedded)
        wanted = (states @ model.lm_head.weight[model.config.logit_offset :].T).numpy()
    rows: list[Gate] = []
    length = tokens.shape[1] - mtp.steps
    size, half = blocks(length), length // 2
    before = hidden[:, :length].numpy()
    for module, (session, form) in enumerate(zip(exact, served, strict=True)):
        ahead = tokens[:, module + 1 : module + 1 + length]
        target = wanted[:, :length, module]
        runner = _Module(session, 1, size)
        pieces = [runner.forward(before[:, part], ahead[:, part]) for part in (slice(half), slice(half, None))]
        logits, following = (np.concatenate(parts, 1) for parts in zip(*pieces, strict=True))
        after = states[:, :length, module].numpy()
        name = f"mtp_{module + 1}"
        rows += [
            Gate(f"{name} fp32", "max |Δ logit|, cached", float(np.abs(logits - target).max()), LOGIT_BAR),
            Gate(f"{name} fp32", "max |Δ hidden|, cached", float(np.abs(following - after).max()), LOGIT_BAR),
        ]
        alone = _Module(form, 1, size).forward(before, ahead)[0]
        # Other rows: the same speech backwards.
        crowd = [np.concatenate([x, x[:, ::-1], x]) for x in (before, ahead)]
        company = float(np.abs(_Module(form, 3, size + 64).forward(*crowd)[0][:1] - alone).max())
        rows += _served_gates(f"{name} {variant}", alone, target, company)
        step = _Module(form, 1, size)
        ms = milliseconds(lambda s=step, b=before, a=ahead: s.forward(b[:, :1], a[:, :1]))  # type: ignore[misc]
        rows.append(Gate(f"{name} {variant}", "one position, B = 1", 1, ms=ms))
        before = after
    return rows
