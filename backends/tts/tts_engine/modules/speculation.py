"""Speculation: propose, verify in one forward pass, accept; several tokens a step for every item at once.

Each item has its own draft, its own accepted length, its own sampling and acceptance settings.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from numpy.typing import NDArray

from tts_engine.errors import InvalidRequest, VoiceError
from tts_engine.item import Item, Stage
from tts_engine.language_model import LanguageModel
from tts_engine.modules.sampler import Sampler, counters
from tts_engine.prompt import CHANNELS
from tts_engine.proposers.proposer import Proposal, Proposer
from tts_engine.request import Settings
from tts_engine.sampling import Kept, SamplingBatch, Scores, uniforms
from tts_engine.speculative import RULES, Accepted, Groups, Tree, check_pair
from tts_engine.speculative.depth import NODES, Depth
from tts_engine.speculative.verification import verify
from tts_engine.voice import Voice

Forward = Callable[..., tuple[Scores, NDArray[np.float32]]]  # Decode.forward
BATCHES = (1, 4, 16, 32)  # of the cost table
CONTEXT = 120  # positions before the measured ones
REST = 16  # plain steps after drafting was found not to pay, before the question is asked again
NONE = "none"


@dataclass
class SpeculationSeconds:
    """Time spent so far, for benchmarks."""

    draft: float = 0.0
    verify: float = 0.0  # the forward pass
    accept: float = 0.0


class Speculation:
    """What decode does when items want drafts. `depth` chooses how many tokens; 0 leaves the step to plain decode."""

    def __init__(
        self, voice: Voice, model: LanguageModel, sampler: Sampler, proposers: dict[str, Proposer], forward: Forward
    ) -> None:
        """Load the groups and check the voice's default pair; VoiceError says what is wrong."""
        self.proposers = proposers
        self.seconds = SpeculationSeconds()
        self._model = model
        self._sampler = sampler
        self._forward = forward
        self._groups = {theta: Groups.load(path) for theta, path in voice.groups.items()}
        self._theta = {name: voice.default_theta(name) for name in proposers}
        for name, theta in self._theta.items():
            if self._groups and theta not in self._groups:
                raise VoiceError(f"voice {voice.name} has no groups for the θ = {theta:g} of its {name}")
        self._depth: Depth | None = None
        self._rest = 0
        self._undrafted_steps = 0
        try:
            self.check(str(voice.defaults["speculation"]), str(voice.defaults["acceptance"]), 0.0)
        except InvalidRequest as error:
            raise VoiceError(f"the defaults of voice {voice.name} do not fit each other: {error}") from error

    def check(self, speculation: str, acceptance: str, theta: float) -> None:
        """InvalidRequest where the voice has no such proposer, or it cannot be verified by this rule."""
        if speculation == NONE:
            return
        if speculation not in self.proposers:
            known = ", ".join([NONE, *self.proposers])
            raise InvalidRequest(f"parameter speculation must be one of {known} with this voice, not {speculation!r}")
        try:
            check_pair(speculation, acceptance)
        except ValueError as error:
            raise InvalidRequest(str(error)) from error
        if acceptance == "group":
            if not self._groups:
                raise InvalidRequest("this voice has no acoustic groups; choose another acceptance")
            if theta and theta not in self._groups:
                known = ", ".join(f"{known:g}" for known in sorted(self._groups))
                raise InvalidRequest(f"parameter theta must be one of {known} with this voice, not {theta:g}")

    def wanted(self, items: list[Item]) -> bool:
        return bool(self.proposers) and any(item.settings.speculation != NONE for item in items)

    def prefilled(self, items: list[Item], start: int, tokens: NDArray[np.int64], hidden: NDArray[np.float32]) -> None:
        """Prompts of neighbouring slots are in the cache; arguments as in `Proposer.prefilled`."""
        for name, rows in self._by(items, lambda item: item.settings.speculation).items():
            if name != NONE:
                last = hidden if self.proposers[name].needs_all_hidden else hidden[:, -1:]
                mine = [items[row] for row in rows]
                self.proposers[name].prefilled(mine, start, tokens[rows], last[rows])

    def begins(self, items: list[Item], together: int) -> bool:
        """Whether sentences that begin now will be drafted for, with so many decoding; else nothing is spent on it."""
        speculating = [item for item in items if item.settings.speculation != NONE]
        if not self.proposers or not speculating:
            return False
        if not any(item.settings.nodes for item in speculating) and not self._pays(speculating[0], together):
            return False
        self._rest = 0
        for item in speculating:
            item.undrafted_steps = self._undrafted_steps
        return True

    def needs_all_hidden(self, items: list[Item]) -> bool:
        """Whether a proposer of these items reads the hidden states of whole prompts."""
        wanted = {item.settings.speculation for item in items} - {NONE}
        return any(self.proposers[name].needs_all_hidden for name in wanted)

    def stepped(self, items: list[Item], hidden: NDArray[np.float32], tokens: NDArray[np.int64]) -> None:
        """A plain step drew `tokens` int64 [B] from hidden states float32 [B, 1, H]: nothing was drafted."""
        self._tell(items, np.zeros((len(items), 1), dtype=np.int64), hidden, tokens[:, None])

    def nodes(self, items: list[Item]) -> list[int] | None:
        """Nodes of each item for this step: what it insists on, else what pays; None where nothing is drafted.

        Proposers are not told of steps of the second kind, so that they cost nothing; who has missed one is drafted for
        again from its next sentence on.
        """
        forced = any(item.settings.nodes for item in items)
        if self._rest and not forced:
            self._rest -= 1
            self._undrafted_steps += 1
            return None
        able = [item.settings.speculation != NONE and item.undrafted_steps == self._undrafted_steps for item in items]
        pays = 0
        if any(able):
            pays = self._pays(items[able.index(True)], len(items))
        if not pays and not forced:
            self._rest = REST
            self._undrafted_steps += 1
            return None
        return [
            min(item.settings.nodes or pays, self.proposers[item.settings.speculation].most) if can else 0
            for item, can in zip(items, able, strict=True)
        ]

    def _pays(self, item: Item, together: int) -> int:
        if self._depth is None:
            return 4
        return self._depth.choose(together, item.settings.speculation, item.settings.acceptance)

    def took(self, items: list[Item], nodes: int, seconds: float) -> None:
        """A whole decode step took `seconds`; steps of several proposers tell nothing about one."""
        names = {item.settings.speculation for item in items} - {NONE}
        if self._depth is not None and nodes in NODES and len(names) == 1:
            self._depth.took(len(items), names.pop(), nodes, seconds)

    def run(self, items: list[Item], wanted: list[int]) -> None:
        """One speculative step for items in neighbouring slots; tokens, cache and proposers are up to date after it.

        wanted: nodes of each item, not all 0.
        """
        began = time.perf_counter()
        start, cache, nodes = items[0].slot, self._model.cache, max(wanted)
        cache.reserve(int(cache.lengths[: cache.count].max()) + 1 + nodes)
        tokens = np.zeros((len(items), 1 + nodes), dtype=np.int64)
        tokens[:, 0] = [item.last_token for item in items]
        parents = np.tile(np.arange(-1, nodes - 1), (len(items), 1))
        proposals: dict[str, tuple[list[int], Proposal]] = {}
        for name, rows in self._by(items, lambda item: item.settings.speculation).items():
            if not any(wanted[row] for row in rows):
                continue
            proposer, mine = self.proposers[name], [items[row] for row in rows]
            settings = self._sampler.settings(items) if len(mine) == len(items) else _settings(mine)
            proposal = proposer.propose(mine, start, len(items), [wanted[row] for row in rows], settings)
            own = proposal.tokens.shape[1]
            tokens[rows, 1 : 1 + own] = proposal.tokens
            parents[rows, :own] = proposal.parents
            proposals[name] = rows, proposal
        drafted = time.perf_counter()
        tree = Tree.of(parents[0].copy() if (parents == parents[0]).all() else parents)
        scores, hidden = self._forward(start, tokens, tree.depths, tree.visible)
        verified = time.perf_counter()
        kept, finite = self._sampler.keep(items, scores, tree.depths)
        places = np.full((len(items), 1 + tree.depth), -1, dtype=np.int64)
        places[:, 0] = 0
        drawn = np.full((len(items), 1 + tree.depth), -1, dtype=np.int64)
        for rows, rule, draft, picked in self._judged(items, wanted, proposals):
            accepted = self._verify(items, rows, rule, draft, picked, kept, 1 + nodes)
            reach = accepted.nodes.shape[1]
            places[rows, 1 : 1 + reach] = np.where(accepted.nodes >= 0, accepted.nodes + 1, -1)
            drawn[rows, : 1 + reach] = accepted.tokens
            self._count(items, rows, rule, draft, accepted)
        self._commit(items, places, drawn, hidden, finite)
        done = time.perf_counter()
        self.seconds.draft += drafted - began
        self.seconds.verify += verified - drafted
        self.seconds.accept += done - verified

    def _judged(
        self, items: list[Item], wanted: list[int], proposals: dict[str, tuple[list[int], Proposal]]
    ) -> list[tuple[list[int], str, Proposal | None, list[int]]]:
        """(rows, rule, proposal, the rows' places in it) for all that are verified alike: rule, θ, number of nodes."""
        drafted = {row for rows, _ in proposals.values() for row in rows}
        plain = [row for row in range(len(items)) if row not in drafted]
        judged: list[tuple[list[int], str, Proposal | None, list[int]]] = []
        if plain:
            judged.append((plain, "exact", None, plain))
        for rows, proposal in proposals.values():
            alike: dict[tuple[str, float, int], list[int]] = {}
            for place, row in enumerate(rows):
                settings = items[row].settings
                alike.setdefault((settings.acceptance, settings.theta, wanted[row]), []).append(place)
            for (rule, _, nodes), picked in alike.items():
                judged.append(([rows[place] for place in picked], rule, proposal.first(nodes), picked))
        return judged

    def _verify(
        self, items: list[Item], rows: list[int], rule: str, proposal: Proposal | None, picked: list[int], kept: Kept,
        stride: int,
    ) -> Accepted:  # fmt: skip
        mine = [items[row] for row in rows]
        if proposal is None:
            proposal, picked = Proposal(np.zeros((len(rows), 0), np.int64), np.zeros(0, np.int64)), [*range(len(rows))]
        n = proposal.tokens.shape[1]
        needs = RULES[rule]
        proposed = None
        if proposal.kept is not None and needs.needs == "probs":
            wide = proposal.kept.tokens.shape[1]
            proposed = Kept(
                proposal.kept.tokens.reshape(-1, n, wide)[picked].reshape(-1, wide),
                proposal.kept.probs.reshape(-1, n, wide)[picked].reshape(-1, wide),
            )
        width = kept.tokens.shape[1]
        target = Kept(
            kept.tokens.reshape(-1, stride, width)[rows, : 1 + n].reshape(-1, width),
            kept.probs.reshape(-1, stride, width)[rows, : 1 + n].reshape(-1, width),
        )
        parents = proposal.parents if proposal.parents.ndim == 1 else proposal.parents[picked]
        depth = Tree.of(parents).depth
        keys = self._sampler.settings(items).keys[rows]
        places = counters(mine)[:, None] + np.arange(1 + depth, dtype=np.uint64)
        streams = np.arange(needs.uniforms, dtype=np.uint64)
        numbers = uniforms(keys[:, None, None], places[:, :, None], streams)
        theta = mine[0].settings.theta or self._theta[mine[0].settings.speculation]
        groups = self._groups[theta] if rule == "group" else None
        return verify(rule, proposal.tokens[picked], parents, proposed, target, numbers, _rule_settings(mine), groups)

    def _commit(
        self, items: list[Item], places: NDArray[np.int64], drawn: NDArray[np.int64], hidden: NDArray[np.float32],
        finite: NDArray[np.bool_],
    ) -> None:  # fmt: skip
        self._tell(items, places, hidden, drawn)
        cache = self._model.cache
        counts = (places >= 0).sum(axis=1)
        for row, item in enumerate(items):
            item.decode_steps += 1
            path, length = places[row, : counts[row]], int(cache.lengths[item.slot])
            for token in drawn[row, : counts[row]].tolist():
                if item.stage is Stage.DECODE:
                    item.take(token)
            if (path != np.arange(len(path))).any():
                cache.compact(item.slot, length + path)
            cache.lengths[item.slot] = length + len(path)
        self._sampler.end(items, finite)

    def _tell(
        self, items: list[Item], places: NDArray[np.int64], hidden: NDArray[np.float32], tokens: NDArray[np.int64]
    ) -> None:
        for name, rows in self._by(items, lambda item: item.settings.speculation).items():
            if name != NONE:
                self.proposers[name].stepped([items[row] for row in rows], places[rows], hidden[rows], tokens[rows])

    def _count(
        self, items: list[Item], rows: list[int], rule: str, proposal: Proposal | None, accepted: Accepted
    ) -> None:
        if proposal is None:
            return
        nodes = proposal.tokens.shape[1]
        for row, length in zip(rows, accepted.lengths.tolist(), strict=True):
            items[row].drafted(nodes, length)
        if self._depth is not None and nodes in NODES:
            self._depth.accepted(items[rows[0]].settings.speculation, rule, nodes, float(accepted.lengths.mean()))

    def measure(self, items: list[Item], plain: Callable[[list[Item]], None]) -> None:
        """Fill the cost table with whole steps on `items`, which hold all slots and no sentence to speak.

        plain: a step without drafts.
        """
        cache, begin = self._model.cache, np.full(len(items), CONTEXT)
        batches = sorted({min(batch, len(items)) for batch in BATCHES})
        tokens = np.zeros((len(items), CONTEXT, CHANNELS), dtype=np.int64)
        hidden = np.zeros((len(items), CONTEXT, self._model.hidden_size), dtype=np.float32)
        cache.reserve(CONTEXT + 2 + max(NODES))
        costs = {}
        for name, proposer in self.proposers.items():
            for item in items:
                item.settings = replace(item.settings, speculation=name, acceptance="exact")
            table = costs[name] = np.full((len(batches), len(NODES)), np.inf)
            for (row, batch), (column, nodes) in product(enumerate(batches), enumerate(NODES)):
                if nodes > proposer.most or batch * (1 + nodes) > 8 * max(BATCHES):
                    continue
                mine, taken = items[:batch], []
                for _ in range(3):
                    cache.lengths[: len(items)] = begin
                    proposer.prefilled(mine, 0, tokens[:batch], hidden[:batch])
                    for _ in range(2):  # the first reads the context, where a proposer has a cache
                        started = time.perf_counter()
                        self.run(mine, [nodes] * batch) if nodes else plain(mine)
                        taken.append(time.perf_counter() - started)
                table[row, column] = min(taken[1::2])
        cache.lengths[: len(items)] = 0
        self._depth = Depth(batches, costs, {name: proposer.chances for name, proposer in self.proposers.items()})

    @staticmethod
    def _by(items: list[Item], key: Callable) -> dict:
        """Row numbers by key, in the order of the rows."""
        made: dict = {}
        for row, item in enumerate(items):
            made.setdefault(key(item), []).append(row)
        return made


def _settings(items: list[Item]) -> SamplingBatch:
    return SamplingBatch.from_settings([item.settings for item in items])


def _rule_settings(items: list[Item]) -> dict[str, NDArray]:
    rows: list[Settings] = [item.settings for item in items]
    return {
        "tolerance": np.array([row.tolerance for row in rows]),
        "bias": np.array([row.bias for row in rows]),
        "k": np.array([row.verify_top_k for row in rows]),
        "eos_k": np.array([min(row.verify_eos_top_k, row.verify_top_k) for row in rows]),
    }
