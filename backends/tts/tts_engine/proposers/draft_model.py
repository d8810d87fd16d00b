"""Draft model: a small LM that speaks ahead; a chain, with the distributions its tokens were drawn from (PCG, SSD)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tts_engine.config import EngineConfig
from tts_engine.item import Item
from tts_engine.kv_cache import KVCache
from tts_engine.lanes import Lanes
from tts_engine.language_model import LanguageModel
from tts_engine.proposers.chain import History, draw_chain
from tts_engine.proposers.proposer import Proposal
from tts_engine.sampling import SamplingBatch, Scores
from tts_engine.voice import Voice

LOOK_AHEAD = 5


class DraftModel:
    """Its keys and values lie behind the LM's in the same slots; what it has not read yet it reads when it drafts."""

    name = "draft"
    most = LOOK_AHEAD
    needs_all_hidden = False

    def __init__(self, voice: Voice, config: EngineConfig, cache: KVCache, lanes: Lanes, first_layer: int) -> None:
        entry = voice.drafts[self.name]
        layers = int(entry["layers"])
        self._model = LanguageModel(entry["files"]["draft"], voice, config, cache, lanes, layers, first_layer)
        self.sessions = {"draft": self._model.session}
        acceptance = [float(chance) for chance in entry["acceptance"]]
        self.chances = np.cumprod((acceptance + acceptance[-1:] * self.most)[: self.most])
        self._offset = voice.vocabulary.logit_offset
        self._history = History(config.capacity, voice.max_positions)
        self._done = np.zeros(config.capacity, dtype=np.int64)  # positions of each row that its cache holds

    def prefilled(self, items: list[Item], start: int, tokens: NDArray[np.int64], hidden: NDArray[np.float32]) -> None:
        self._history.start(items, tokens)
        self._done[[item.row for item in items]] = 0

    def propose(self, items: list[Item], start: int, count: int, nodes: list[int], settings: SamplingBatch) -> Proposal:
        rows, ours = np.array([item.row for item in items]), [item.slot - start for item in items]
        lengths = self._model.cache.lengths[start : start + count]
        ends = lengths[ours]
        self._history.add(items, ends, self._offset + np.array([item.last_token for item in items]))
        unread = int((ends + 1 - self._done[rows]).max())
        batch = self._model.batch(start, start + count, unread, 1)
        # Everyone's last `unread` tokens; reading one again changes nothing, and nobody writes past the cache.
        batch.write_idx[:] = np.maximum(lengths + 1 - unread, 0)
        batch.position_ids[:] = batch.write_idx[:, None] + np.arange(unread)
        batch.tokens[ours] = self._history.tokens[rows[:, None], batch.position_ids[ours]]
        batch.see_context(np.tri(unread, dtype=bool))
        batch.logit_idx[ours, 0] = ends - batch.write_idx[ours]
        batch.run()
        self._done[rows] = ends + nodes
        following = self._model.batch(start, start + count, 1, 1)

        def step(depth: int, token: NDArray[np.int64] | None) -> Scores:
            if token is None:
                return batch.scores[ours, 0]
            following.write_idx[:] = lengths + depth
            following.position_ids[:, 0] = following.write_idx
            following.tokens[ours, 0, 0] = self._offset + token
            following.see_context(np.ones((1, 1), dtype=bool))
            following.run()
            return following.scores[ours, 0]

        tokens, kept = draw_chain(items, max(nodes), settings, step)
        return Proposal(tokens, np.arange(-1, max(nodes) - 1), kept)

    def stepped(
        self, items: list[Item], places: NDArray[np.int64], hidden: NDArray[np.float32], tokens: NDArray[np.int64]
    ) -> None:
        ends = self._history.commit(items, self._model.cache, places, tokens, self._offset)
        rows = [item.row for item in items]
        self._done[rows] = np.minimum(self._done[rows], ends)
