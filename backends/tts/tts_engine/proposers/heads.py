"""Draft heads: the likeliest tokens of every head, arranged as the voice's sparse tree (VADUSA, section II)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tts_engine.config import EngineConfig
from tts_engine.item import Item
from tts_engine.prompt import CHANNELS
from tts_engine.proposers.proposer import Proposal
from tts_engine.sampling import SamplingBatch
from tts_engine.session import Session
from tts_engine.speculative import Tree
from tts_engine.voice import Voice


class DraftHeads:
    """Needs nothing but the hidden state at the position that gave an item's last token, kept in the item's row."""

    name = "medusa"
    needs_all_hidden = False

    def __init__(self, voice: Voice, config: EngineConfig) -> None:
        entry = voice.drafts[self.name]
        self._reads = bool(entry["reads_next_token"])
        inputs = ["hidden", "tokens"] if self._reads else ["hidden"]
        self.sessions = {"heads": Session(entry["files"]["heads"], config, inputs, ["top_ids"])}
        self._parents = np.array(entry["parents"], dtype=np.int64)
        self._ranks = np.array(entry["ranks"], dtype=np.int64)
        self._levels = Tree.of(self._parents).depths[1:] - 1  # 0: the first head's
        self.most = len(self._parents)
        acceptance = np.array(entry["acceptance"], dtype=np.float64)
        self.chances = np.empty(self.most)
        for node, (parent, level, rank) in enumerate(zip(self._parents, self._levels, self._ranks, strict=True)):
            self.chances[node] = acceptance[level, rank] * (self.chances[parent] if parent >= 0 else 1.0)
        self._offset = voice.vocabulary.logit_offset
        self._hidden = np.zeros((config.capacity, voice.hidden_size), dtype=np.float32)

    def prefilled(self, items: list[Item], start: int, tokens: NDArray[np.int64], hidden: NDArray[np.float32]) -> None:
        self._hidden[[item.row for item in items]] = hidden[:, -1]

    def propose(self, items: list[Item], start: int, count: int, nodes: int, settings: SamplingBatch) -> Proposal:
        feeds: dict[str, NDArray] = {"hidden": self._hidden[[item.row for item in items], None]}
        if self._reads:
            feeds["tokens"] = np.zeros((len(items), 1, CHANNELS), dtype=np.int64)
            feeds["tokens"][:, 0, 0] = [self._offset + item.last_token for item in items]
        candidates = self.sessions["heads"].run(feeds, ["top_ids"])["top_ids"][:, 0]
        return Proposal(candidates[:, self._levels[:nodes], self._ranks[:nodes]], self._parents[:nodes])

    def stepped(
        self, items: list[Item], places: NDArray[np.int64], hidden: NDArray[np.float32], tokens: NDArray[np.int64]
    ) -> None:
        if places.shape[1] == 1:  # a plain step
            self._hidden[[item.row for item in items]] = hidden[:, 0]
            return
        last = places[np.arange(len(items)), (places >= 0).sum(axis=1) - 1]
        self._hidden[[item.row for item in items]] = hidden[np.arange(len(items)), last]
