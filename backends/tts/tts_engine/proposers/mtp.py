"""MTP modules: one decoder layer each on the LM's hidden states, the second on the first's (Llasa+, section II-A)."""

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


class MTP:
    """Module i reads, at position p, the state h^{i-1}_p and the token at p + i, and drafts the one behind that.

    Positions that a module has not read yet it reads when it drafts, the last one again where its token was a guess.
    """

    name = "mtp"
    needs_all_hidden = True

    def __init__(self, voice: Voice, config: EngineConfig, cache: KVCache, lanes: Lanes, first_layer: int) -> None:
        entry = voice.drafts[self.name]
        self.most = int(entry["modules"])
        names = [f"mtp_{module + 1}" for module in range(self.most)]
        self._modules = [
            LanguageModel(entry["files"][name], voice, config, cache, lanes, 1, first_layer + module, module, True)
            for module, name in enumerate(names)
        ]
        self.sessions = {name: model.session for name, model in zip(names, self._modules, strict=True)}
        self.chances = np.cumprod([float(chance) for chance in entry["acceptance"]][: self.most])
        self._offset = voice.vocabulary.logit_offset
        self._history = History(config.capacity, voice.max_positions + self.most)
        shape = (self.most, config.capacity, voice.max_positions, voice.hidden_size)
        self._states = np.zeros(shape, dtype=np.float32)  # what each module reads; unused pages cost nothing
        self._done = np.zeros((self.most, config.capacity), dtype=np.int64)

    def prefilled(self, items: list[Item], start: int, tokens: NDArray[np.int64], hidden: NDArray[np.float32]) -> None:
        rows = [item.row for item in items]
        self._history.start(items, tokens)
        self._states[0, rows, : hidden.shape[1]] = hidden
        self._done[:, rows] = 0

    def propose(self, items: list[Item], start: int, count: int, nodes: list[int], settings: SamplingBatch) -> Proposal:
        ends = self._modules[0].cache.lengths[[item.slot for item in items]]  # where the committed token will stand
        self._history.add(items, ends, self._offset + np.array([item.last_token for item in items]))

        def step(depth: int, token: NDArray[np.int64] | None) -> Scores:
            if token is not None:
                self._history.add(items, ends + depth, self._offset + token)
            return self._run(depth, items, start, count, ends)

        tokens, kept = draw_chain(items, max(nodes), settings, step)
        return Proposal(tokens, np.arange(-1, max(nodes) - 1), kept)

    def _run(self, depth: int, items: list[Item], start: int, count: int, ends: NDArray[np.int64]) -> Scores:
        """Module depth + 1 over all it has not read, up to position ends - 1; the scores there, B rows."""
        model = self._modules[depth]
        rows, ours = np.array([item.row for item in items]), [item.slot - start for item in items]
        lengths = model.cache.lengths[start : start + count]
        unread = int((ends - self._done[depth, rows]).max())
        batch = model.batch(start, start + count, unread, 1)
        batch.write_idx[:] = np.maximum(lengths - unread, 0)
        batch.position_ids[:] = batch.write_idx[:, None] + np.arange(unread)
        places = batch.position_ids[ours]
        batch.states[ours] = self._states[depth, rows[:, None], places]
        batch.tokens[ours] = self._history.tokens[rows[:, None], places + depth + 1]
        batch.see_context(np.tri(unread, dtype=bool))
        batch.logit_idx[ours, 0] = ends - 1 - batch.write_idx[ours]
        batch.run()
        if depth + 1 < self.most:
            self._states[depth + 1, rows[:, None], places] = batch.hidden[ours]
        self._done[depth, rows] = ends - depth  # the last `depth` positions read tokens that were guesses
        return batch.scores[ours, 0]

    def stepped(
        self, items: list[Item], places: NDArray[np.int64], hidden: NDArray[np.float32], tokens: NDArray[np.int64]
    ) -> None:
        cache = self._modules[0].cache
        for row, item in enumerate(items):
            kept = places[row, places[row] >= 0]
            begin = int(cache.lengths[item.slot])
            self._states[0, item.row, begin : begin + len(kept)] = hidden[row, kept]
        self._history.commit(items, cache, places, tokens, self._offset)
