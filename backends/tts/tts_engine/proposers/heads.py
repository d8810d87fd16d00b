"""Draft heads: the likeliest tokens of every head, as a tree that each item grows for itself (VADUSA, section II)."""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from tts_engine.config import EngineConfig
from tts_engine.item import Item
from tts_engine.prompt import CHANNELS
from tts_engine.proposers.growth import Growth
from tts_engine.proposers.proposer import Proposal
from tts_engine.request import Settings
from tts_engine.sampling import SamplingBatch
from tts_engine.session import Session
from tts_engine.speculative import Tree
from tts_engine.voice import Voice


class DraftHeads:
    """Needs nothing but the hidden state at the position that gave an item's last token, kept in the item's row.

    The calibrated sparse tree says how many nodes of a depth may have children; which ones, and how many each has, the
    heads' own probabilities say for every item (as EAGLE-2 does, Li et al. 2024). Head i reads the state of head i - 1
    and the token it drafts behind; heads that read no path give the same candidates behind all nodes of their depth.
    A head that cannot add to any tree does not run.
    """

    name = "medusa"
    needs_all_hidden = False

    def __init__(self, voice: Voice, config: EngineConfig) -> None:
        entry = voice.drafts[self.name]
        self._reads = bool(entry["reads_path"])
        inputs = ["hidden", "tokens"] if self._reads else ["hidden"]
        self._outputs = ["top_ids", "top_logits", "next_hidden"]
        self._names = [f"head_{head + 1}" for head in range(int(entry["heads"]))]
        self.sessions = {
            name: Session(entry["files"][name], config, inputs, self._outputs, arena=False) for name in self._names
        }
        self._parents = np.array(entry["parents"], dtype=np.int64)
        self._depths = Tree.of(self._parents).depths[1:]
        self.most = len(self._parents)
        acceptance = np.array(entry["acceptance"], dtype=np.float64)
        self._ranks = acceptance.shape[1]
        self.chances = np.empty(self.most)
        for node, (parent, depth, rank) in enumerate(zip(self._parents, self._depths, entry["ranks"], strict=True)):
            self.chances[node] = acceptance[depth - 1, rank] * (self.chances[parent] if parent >= 0 else 1.0)
        self._offset = voice.vocabulary.logit_offset
        self._hidden = np.zeros((config.capacity, voice.hidden_size), dtype=np.float32)
        self._widest = cache(self._widest_depth)

    def prefilled(self, items: list[Item], start: int, tokens: NDArray[np.int64], hidden: NDArray[np.float32]) -> None:
        self._hidden[[item.row for item in items]] = hidden[:, -1]

    def propose(self, items: list[Item], start: int, count: int, nodes: list[int], settings: SamplingBatch) -> Proposal:
        tokens = np.zeros((len(items), max(nodes)), dtype=np.int64)
        parents = np.tile(np.arange(-1, max(nodes) - 1), (len(items), 1))
        for size in set(nodes) - {0}:
            rows = [row for row, wanted in enumerate(nodes) if wanted == size]
            tokens[rows, :size], parents[rows, :size] = self._grown([items[row] for row in rows], size)
        return Proposal(tokens, parents)

    def _grown(self, items: list[Item], nodes: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(tokens, parents) of one tree an item."""
        growth = Growth(len(items))
        token = np.array([[item.last_token] for item in items])
        states = first = self._hidden[[item.row for item in items], None]
        samples = np.array([[[_samples(item.settings)]] for item in items])
        for name in self._names:
            feeds = {"hidden": states if self._reads else first}
            if self._reads:
                feeds["tokens"] = np.zeros((*token.shape, CHANNELS), dtype=np.int64)
                feeds["tokens"][:, :, 0] = self._offset + token
            outputs = self.sessions[name].run(feeds, self._outputs)
            ids, probs = outputs["top_ids"][:, :, : self._ranks], _probabilities(outputs["top_logits"])
            chances = 1 - (1 - probs[:, :, : self._ranks]) ** samples
            shape = (*token.shape, ids.shape[2])
            growth.offer(np.broadcast_to(ids, shape), np.broadcast_to(chances, shape))
            if growth.settled(nodes):
                break
            token, behind = growth.open(self._widest(nodes))
            if self._reads:
                states = np.take_along_axis(outputs["next_hidden"], behind[:, :, None], axis=1)
        return growth.trees(nodes)

    def stepped(
        self, items: list[Item], places: NDArray[np.int64], hidden: NDArray[np.float32], tokens: NDArray[np.int64]
    ) -> None:
        if places.shape[1] == 1:  # a plain step
            self._hidden[[item.row for item in items]] = hidden[:, 0]
            return
        last = places[np.arange(len(items)), (places >= 0).sum(axis=1) - 1]
        self._hidden[[item.row for item in items]] = hidden[np.arange(len(items)), last]

    def _widest_depth(self, nodes: int) -> int:
        """How many nodes of a depth may have children: as many as in the widest depth of a sparse tree twice as large,
        since a tree that is grown for one item is deeper or wider than the one that suits all."""
        parents, depths = self._parents[: 2 * nodes], self._depths[: 2 * nodes]
        return max(len(np.unique(parents[depths == depth])) for depth in depths.tolist())


def _samples(settings: Settings) -> int:
    """Tokens of the target's distribution that a rule lets a draft be one of: what makes deep trees pay."""
    return {"tolerance": settings.tolerance, "top_k": settings.verify_top_k}.get(settings.acceptance, 1)


def _probabilities(top_logits: NDArray[np.float32]) -> NDArray[np.float64]:
    """Of the largest logits among themselves; heads are trained towards what the voice's temperature leaves."""
    weights = np.exp((top_logits - top_logits[..., :1]).astype(np.float64))
    shares: NDArray[np.float64] = weights / weights.sum(axis=-1, keepdims=True)
    return shares
