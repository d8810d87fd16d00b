"""Draft heads: the likeliest tokens of every head, arranged as the voice's sparse tree (VADUSA, section II)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

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

Places = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Level:
    """One head's share of a tree: it runs once a `parents` node and gives the tokens of `nodes`.

    parents, nodes: int64, nodes of the tree (parent -1: the committed token). before: the rows of the previous head's
    run that the parents' tokens came from. rows, ranks: of which parent (a place in `parents`) each node is which
    candidate.
    """

    parents: Places
    before: Places
    nodes: Places
    rows: Places
    ranks: Places


class DraftHeads:
    """Needs nothing but the hidden state at the position that gave an item's last token, kept in the item's row.

    Head i reads the state of head i - 1 and the token it drafts behind, once for every node of the tree at depth
    i - 1 that has children; heads that read no path give the same candidates behind all of these.
    """

    name = "medusa"
    needs_all_hidden = False

    def __init__(self, voice: Voice, config: EngineConfig) -> None:
        entry = voice.drafts[self.name]
        self._reads = bool(entry["reads_path"])
        inputs = ["hidden", "tokens"] if self._reads else ["hidden"]
        self._names = [f"head_{head + 1}" for head in range(int(entry["heads"]))]
        outputs = ["top_ids", "next_hidden"]
        self.sessions = {
            name: Session(entry["files"][name], config, inputs, outputs, arena=False) for name in self._names
        }
        self._parents = np.array(entry["parents"], dtype=np.int64)
        self._ranks = np.array(entry["ranks"], dtype=np.int64)
        self._depths = Tree.of(self._parents).depths[1:]
        self.most = len(self._parents)
        acceptance = np.array(entry["acceptance"], dtype=np.float64)
        self.chances = np.empty(self.most)
        for node, (parent, depth, rank) in enumerate(zip(self._parents, self._depths, self._ranks, strict=True)):
            self.chances[node] = acceptance[depth - 1, rank] * (self.chances[parent] if parent >= 0 else 1.0)
        self._offset = voice.vocabulary.logit_offset
        self._hidden = np.zeros((config.capacity, voice.hidden_size), dtype=np.float32)
        self._levels = cache(self._arrange)

    def prefilled(self, items: list[Item], start: int, tokens: NDArray[np.int64], hidden: NDArray[np.float32]) -> None:
        self._hidden[[item.row for item in items]] = hidden[:, -1]

    def propose(self, items: list[Item], start: int, count: int, nodes: int, settings: SamplingBatch) -> Proposal:
        drafted = np.empty((len(items), nodes + 1), dtype=np.int64)  # the last column, -1, is the committed token
        drafted[:, -1] = [item.last_token for item in items]
        states = first = self._hidden[[item.row for item in items], None]
        for name, level in zip(self._names, self._levels(nodes), strict=False):
            feeds = {"hidden": np.ascontiguousarray((states if self._reads else first)[:, level.before])}
            if self._reads:
                feeds["tokens"] = np.zeros((len(items), len(level.parents), CHANNELS), dtype=np.int64)
                feeds["tokens"][:, :, 0] = self._offset + drafted[:, level.parents]
            outputs = self.sessions[name].run(feeds, ["top_ids", "next_hidden"])
            drafted[:, level.nodes] = outputs["top_ids"][:, level.rows, level.ranks]
            states = outputs["next_hidden"]
        return Proposal(drafted[:, :nodes], self._parents[:nodes])

    def stepped(
        self, items: list[Item], places: NDArray[np.int64], hidden: NDArray[np.float32], tokens: NDArray[np.int64]
    ) -> None:
        if places.shape[1] == 1:  # a plain step
            self._hidden[[item.row for item in items]] = hidden[:, 0]
            return
        last = places[np.arange(len(items)), (places >= 0).sum(axis=1) - 1]
        self._hidden[[item.row for item in items]] = hidden[np.arange(len(items)), last]

    def _arrange(self, nodes: int) -> list[Level]:
        """The levels of the tree's first `nodes` nodes."""
        parents, depths = self._parents[:nodes], self._depths[:nodes]
        levels: list[Level] = []
        row_of = {-1: 0}  # the row of the run that gave a node's token
        for depth in range(1, int(depths.max()) + 1):
            mine = np.flatnonzero(depths == depth)
            inner = np.unique(parents[mine])
            before = np.array([row_of[int(node)] if self._reads else 0 for node in inner])
            rows = np.searchsorted(inner, parents[mine])
            row_of = dict(zip(mine.tolist(), rows.tolist(), strict=True))
            levels.append(Level(inner, before, mine, rows, self._ranks[mine]))
        return levels
