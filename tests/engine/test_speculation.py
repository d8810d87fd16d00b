"""Speculation in the engine: what must equal plain decoding equals it, for every proposer, rule, batch and position."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.engine.collect import Listener, drain, say
from tests.engine.tiny_voice import CODEBOOK, HIDDEN, ToyText
from tts_engine.config import EngineConfig
from tts_engine.engine import Engine
from tts_engine.errors import InvalidRequest, VoiceError
from tts_engine.item import Item
from tts_engine.prompt import CHANNELS
from tts_engine.proposers.heads import DraftHeads
from tts_engine.proposers.proposer import Proposal
from tts_engine.sampling import SamplingBatch
from tts_engine.speculative import PROPOSERS, RULES, Groups, Tree
from tts_engine.voice import Voice

TEXTS = ["short", "a somewhat longer line", "two. sentences here", "the quick brown fox"]
PAIRS = [(proposer, rule) for proposer, rule in product(PROPOSERS, RULES) if (proposer, rule) != ("medusa", "group")]
CLOSE = 1e-4  # of the vocoder: chunks of another size round differently


class Tokens:
    """Watches an engine and writes down every item's tokens."""

    def __init__(self, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
        self.of: dict[int, list[int]] = {}
        take = Item.take

        def watched(item: Item, token: int) -> None:
            self.of.setdefault(item.settings.seed, []).append(token)
            take(item, token)

        monkeypatch.setattr(Item, "take", watched)

    def pop(self) -> dict[int, list[int]]:
        made, self.of = self.of, {}
        return made


@pytest.fixture
def tokens(drafting: Engine, monkeypatch: pytest.MonkeyPatch) -> Tokens:
    return Tokens(drafting, monkeypatch)


def speak(engine: Engine, together: bool = True, **params: Any) -> list[Listener]:
    listeners = []
    for seed, text in enumerate(TEXTS):
        listeners.append(say(engine, text, seed=seed, max_seconds=2, **params))
        if not together:
            drain(engine)
    drain(engine)
    assert all(listener.last.error is None for listener in listeners)
    return listeners


@pytest.mark.parametrize(("proposer", "rule"), PAIRS)
def test_greedy_speculation_is_greedy_decoding(drafting: Engine, tokens: Tokens, proposer: str, rule: str) -> None:
    speak(drafting, temperature=0)
    plain = tokens.pop()
    settings: dict[str, Any] = {"bias": 0.0} if rule == "bias" else {}  # any bias accepts what the target would not say
    if rule == "group":
        pytest.skip("group acceptance may say another token of the group, greedy or not")
    speak(drafting, temperature=0, speculation=proposer, acceptance=rule, **settings)
    assert tokens.pop() == plain


@pytest.mark.parametrize("nodes", [0, 1, 3, 5, 8])
@pytest.mark.parametrize("params", [{}, {"top_k": 20, "top_p": 0.9}])
def test_exact_trees_say_what_plain_decoding_says(
    drafting: Engine, tokens: Tokens, nodes: int, params: dict[str, Any]
) -> None:
    """With deterministic proposals the target's own draw decides: same seed, same tokens, same sound."""
    plain_sound = speak(drafting, **params)
    plain = tokens.pop()
    sound = speak(drafting, speculation="medusa", acceptance="exact", nodes=nodes, **params)
    assert tokens.pop() == plain
    for one, other in zip(sound, plain_sound, strict=True):
        assert [len(chunk.pcm) for chunk in one.chunks if len(chunk.pcm)] == [
            len(chunk.pcm) for chunk in other.chunks if len(chunk.pcm)
        ]
        np.testing.assert_allclose(one.audio, other.audio, atol=CLOSE)


@pytest.mark.parametrize(("proposer", "rule"), PAIRS)
def test_company_changes_nothing(drafting: Engine, tokens: Tokens, proposer: str, rule: str) -> None:
    params: dict[str, Any] = {"speculation": proposer, "acceptance": rule, "top_k": 20, "nodes": 3}
    alone = [listener.audio for listener in speak(drafting, together=False, **params)]
    single = tokens.pop()
    batched = [listener.audio for listener in speak(drafting, **params)]
    assert tokens.pop() == single
    for one, other in zip(batched, alone, strict=True):
        np.testing.assert_allclose(one, other, atol=CLOSE)


def test_every_item_has_its_own_proposer_rule_and_settings(drafting: Engine, tokens: Tokens) -> None:
    """All pairs in one pool, seven at a time, with other settings each: every one says what it says alone."""
    kinds: list[dict[str, Any]] = [{}]
    for at, (proposer, rule) in enumerate(PAIRS):
        own = {"nodes": 1 + at % 4, "temperature": 0.5 + 0.1 * at, "top_k": 5 * at, "tolerance": 1 + at % 4}
        kinds.append({"speculation": proposer, "acceptance": rule, **own})
    for begin in range(0, len(kinds), 7):
        some = kinds[begin : begin + 7]
        for together in (False, True):
            for seed, params in enumerate(some):
                say(drafting, TEXTS[seed % 4], seed=seed, max_seconds=1, **params)
                if not together:
                    drain(drafting)
            drain(drafting)
            if not together:
                single = tokens.pop()
        assert tokens.pop() == single


@pytest.mark.parametrize("acceptance", ["exact", "tolerance"])
@pytest.mark.parametrize("nodes", [1, 4, 8])
def test_a_tree_is_drafted_for_what_stands_on_it(drafting: Engine, nodes: int, acceptance: str) -> None:
    """Every node against its own path drafted alone, head by head: the token, the chance, and what was left out."""
    heads = drafting.decode.speculation.proposers["medusa"]
    assert isinstance(heads, DraftHeads)
    samples = {"exact": 1, "tolerance": 3}[acceptance]
    rows = np.random.default_rng(0).normal(size=(3, 1, 1, HIDDEN)).astype(np.float32)
    settings = SimpleNamespace(acceptance=acceptance, tolerance=3, verify_top_k=8)
    items: Any = [SimpleNamespace(row=row, last_token=row + 1, settings=settings) for row in (2, 0, 5)]
    heads.prefilled(items, 0, np.zeros((3, 1, CHANNELS), np.int64), rows[:, 0])
    proposal = heads.propose(items, 0, 3, [nodes] * 3, None)  # type: ignore[arg-type]
    assert proposal.tokens.shape == proposal.parents.shape == (3, nodes)
    for row, item in enumerate(items):

        def children(path: list[int], row: int = row, item: Any = item) -> dict[int, float]:
            """Chance of every candidate behind a path of tokens."""
            state = rows[row]
            for depth, token in enumerate([item.last_token, *path], start=1):
                ids = np.zeros((1, 1, CHANNELS), np.int64)
                ids[..., 0] = drafting.voice.vocabulary.logit_offset + token
                made = heads.sessions[f"head_{depth}"].run({"hidden": state, "tokens": ids})
                state = made["next_hidden"]
            shares = np.exp(made["top_logits"][0, 0].astype(float))
            chances = 1 - (1 - shares / shares.sum()) ** samples
            return dict(zip(made["top_ids"][0, 0, :3].tolist(), chances[:3], strict=True))  # as many as calibrated

        paths: list[list[int]] = [[]]  # of the root, then of the nodes
        chances = [1.0]
        left_out: list[float] = []
        for token, parent in zip(proposal.tokens[row], proposal.parents[row], strict=True):
            chances.append(chances[parent + 1] * children(paths[parent + 1])[token])
            paths.append([*paths[parent + 1], int(token)])
        for inner in {-1, *proposal.parents[row].tolist()}:
            for token, chance in children(paths[inner + 1]).items():
                if [*paths[inner + 1], token] not in paths:
                    left_out.append(chances[inner + 1] * chance)
        assert len(set(map(tuple, paths))) == 1 + nodes
        assert chances == sorted(chances, reverse=True)
        assert max(left_out) <= chances[-1]


class Oracle:
    """A proposer that knows what plain decoding will say, and lies at one place of its tree."""

    name = "medusa"
    needs_all_hidden = False

    def __init__(self, truth: dict[int, list[int]], parents: list[int], right: set[int]) -> None:
        """right: nodes that propose the truth of their depth; the others propose something else."""
        self.truth, self.parents, self.right = truth, np.array(parents), right
        self.sessions: dict = {}
        self.most = len(parents)
        self.chances = np.full(self.most, 0.5)
        self.heard: list[np.ndarray] = []

    def prefilled(self, *_: object) -> None: ...

    def propose(self, items: list[Item], start: int, count: int, nodes: list[int], settings: SamplingBatch) -> Proposal:
        depths = Tree.of(self.parents).depths[1:]
        tokens = np.empty((len(items), max(nodes)), np.int64)
        for row, item in enumerate(items):
            said = self.truth[item.settings.seed]
            for node in range(max(nodes)):
                at = item.frames + int(depths[node]) - 1  # one sentence: frames are the tokens taken
                token = said[at] if at < len(said) else 1
                tokens[row, node] = token if node in self.right else 1 + (token + node) % CODEBOOK
        return Proposal(tokens, self.parents[: max(nodes)])

    def stepped(self, items: list[Item], places: np.ndarray, hidden: np.ndarray, tokens: np.ndarray) -> None:
        self.heard.append((places >= 0).sum(axis=1))


TREE = [-1, -1, 0, 1, 1, 3, 4, 4, 7]


@pytest.mark.parametrize("wrong", range(len(TREE)))
@pytest.mark.parametrize("branch", [[0, 2], [1, 3, 5], [1, 4, 6], [1, 4, 7, 8]])
def test_forced_rejection_at_every_node_of_every_branch(
    drafting: Engine, tokens: Tokens, branch: list[int], wrong: int
) -> None:
    """One branch is right up to a node; all that is accepted is right, and the cache goes on as if nothing were."""
    params = {"seed": 5, "max_seconds": 2}
    say(drafting, "a sentence", **params)
    drain(drafting)
    truth = tokens.pop()
    oracle = Oracle(truth, TREE, set(branch) - {wrong})
    drafting.decode.speculation.proposers["medusa"] = oracle
    listener = say(drafting, "a sentence", speculation="medusa", nodes=len(TREE), **params)
    drain(drafting)
    assert tokens.pop() == truth
    timings = listener.last.timings
    assert timings is not None
    reach = branch.index(wrong) if wrong in branch else len(branch)
    # All verifications but those at the end of the sentence accept the branch up to the lie.
    lengths = timings.acceptance_lengths
    assert lengths[reach] == max(lengths)
    assert timings.total_draft_tokens == len(TREE) * sum(lengths)
    assert timings.total_accepted_draft_tokens == sum(at * count for at, count in enumerate(lengths))


def test_the_cache_after_acceptance_is_that_of_a_plain_run(drafting: Engine, tokens: Tokens) -> None:
    params = {"seed": 5, "max_seconds": 2}
    say(drafting, "a sentence", **params)
    for _ in range(12):
        drafting.step()
    cache = drafting.model.cache
    length = int(cache.lengths[0])
    plain = cache.memory[: drafting.model.tensors.stop, 0, :, :length].copy()
    drain(drafting)
    truth = tokens.pop()
    drafting.decode.speculation.proposers["medusa"] = Oracle(truth, TREE, {1, 4, 7})
    say(drafting, "a sentence", speculation="medusa", nodes=len(TREE), **params)
    for _ in range(12):
        drafting.step()
        if cache.lengths[0] >= length:
            break
    assert drafting.pool.items[0].accepted_draft_tokens > 0
    np.testing.assert_allclose(cache.memory[: drafting.model.tensors.stop, 0, :, :length], plain, atol=1e-5)
    drain(drafting)


@pytest.mark.parametrize("plain_first", [True, False])
def test_a_tree_beside_an_item_that_wants_none(drafting: Engine, tokens: Tokens, plain_first: bool) -> None:
    """The tree is its proposer's, whoever has the first slot."""
    text, seeds = "a sentence", (5, 6)
    for seed in seeds:
        say(drafting, text, seed=seed, max_seconds=2)
    drain(drafting)
    truth = tokens.pop()
    speculation, seen = drafting.decode.speculation, []
    speculation.proposers["medusa"] = Oracle(truth, TREE, {1, 4, 7})
    forward = speculation._forward

    def watched(start: int, ids: np.ndarray, depths: np.ndarray, visible: np.ndarray) -> Any:
        if depths.ndim == 2:
            seen.append((depths[int(plain_first)], visible[int(plain_first)]))
        return forward(start, ids, depths, visible)

    speculation._forward = watched
    wishes: list[dict[str, Any]] = [{}, {"speculation": "medusa", "nodes": len(TREE)}]
    for seed, wish in zip(seeds, wishes if plain_first else wishes[::-1], strict=True):
        say(drafting, text, seed=seed, max_seconds=2, **wish)
    drain(drafting)
    tree = Tree.of(np.array(TREE))
    assert seen
    for depths, visible in seen:
        np.testing.assert_array_equal(depths, tree.depths)
        np.testing.assert_array_equal(visible, tree.visible)
    assert tokens.pop() == truth


@pytest.mark.parametrize("proposer", ["draft", "mtp"])
def test_drafts_catch_up_after_plain_steps(drafting: Engine, proposer: str) -> None:
    """What a draft says after steps without it is what it says when it was there all along."""
    said: list[list[np.ndarray]] = []
    for plain_steps in (0, 5):
        handle = say(drafting, "catching up", seed=9, temperature=0, max_seconds=2, speculation=proposer, nodes=2)
        speculation, made = drafting.decode.speculation, []
        speculation.nodes = lambda items: [0]  # type: ignore[method-assign]
        for step in range(9):
            if plain_steps == 0 and step:
                item = drafting.pool.items[0]
                settings = SamplingBatch.from_settings([item.settings])
                proposal = speculation.proposers[proposer].propose([item], item.slot, 1, [2], settings)
                made.append(proposal.tokens)
            drafting.step()
        item = drafting.pool.items[0]
        drafting.model.cache.reserve(int(drafting.model.cache.lengths[0]) + 4)
        proposal = speculation.proposers[proposer].propose(
            [item], item.slot, 1, [2], SamplingBatch.from_settings([item.settings])
        )
        said.append([proposal.tokens])
        handle.handle.cancel()
        del speculation.nodes
        drain(drafting)
    np.testing.assert_array_equal(said[0][0], said[1][0])


def test_a_good_draft_model_is_accepted_and_its_chain_is_drawn_from_its_own_distribution(drafting: Engine) -> None:
    listener = say(
        drafting, "a rather long sentence to speak", seed=3, top_k=20, speculation="draft", nodes=4, max_seconds=4
    )
    drain(drafting)
    timings = listener.last.timings
    assert timings is not None
    assert timings.acceptance_rate > 0.4
    assert timings.decode_steps < timings.frames
    assert (timings.speculation, timings.acceptance) == ("draft", "exact")


def test_settings_that_do_not_fit_are_refused(drafting: Engine, engine: Engine) -> None:
    for wrong, message in (
        ({"speculation": "crystal ball"}, "must be one of none, medusa, mtp, draft"),
        ({"speculation": "draft", "acceptance": "hope"}, "acceptance must be"),
        ({"speculation": "medusa", "acceptance": "group"}, "cannot verify the tree"),
        ({"speculation": "draft", "acceptance": "group", "theta": 0.5}, "theta must be one of 0.6"),
        ({"tolerance": 9}, "between 1 and 4"),
        ({"speculation": 3}, "must be a name"),
    ):
        with pytest.raises(InvalidRequest, match=message):
            say(drafting, "text", **wrong)
    with pytest.raises(InvalidRequest, match="one of none with this voice"):
        say(engine, "text", speculation="draft")
    drain(drafting)


def test_a_proposer_may_have_wider_groups_than_the_others(drafting_voice: Voice) -> None:
    """Its θ is the default; a request's goes before; one that the voice has no groups for is refused at load."""
    path = drafting_voice.groups[0.6]
    mtp = {**drafting_voice.drafts["mtp"], "theta": 0.6}
    voice = replace(drafting_voice, groups={0.6: path, 0.9: path}, drafts={**drafting_voice.drafts, "mtp": mtp})
    engine = Engine(voice, EngineConfig(capacity=2, threads=1), ToyText())
    speculation, seen = engine.decode.speculation, []

    class Noted(dict):
        def __getitem__(self, theta: float) -> Groups:
            seen.append(theta)
            return super().__getitem__(theta)

    speculation._groups = Noted(speculation._groups)
    for proposer, theta, used in (("mtp", {}, 0.6), ("draft", {}, 0.9), ("draft", {"theta": 0.6}, 0.6)):
        seen.clear()
        say(engine, "text", speculation=proposer, acceptance="group", nodes=2, max_seconds=0.5, **theta)
        drain(engine)
        assert set(seen) == {used}
    wrong = replace(voice, drafts={**voice.drafts, "mtp": {**mtp, "theta": 0.7}})
    with pytest.raises(VoiceError, match=r"no groups for the θ = 0.7 of its mtp"):
        Engine(wrong, EngineConfig(capacity=2, threads=1), ToyText())


def test_groups_among_a_few_tokens_are_the_groups() -> None:
    rng = np.random.default_rng(0)
    groups = Groups.build(rng.standard_normal((60, 3)), 0.7, alone=(0,))
    known = np.unique(np.append(rng.choice(60, 12, replace=False), [0, 60]))  # 60: stands for no token
    few = groups.among(known)
    p = np.zeros((5, 60))
    p[:, known[:-1]] = rng.dirichlet(np.ones(len(known) - 1), 5)
    local = np.append(p[:, known[:-1]], np.zeros((5, 1)), axis=1)
    token = known[rng.integers(0, len(known) - 1, 5)]
    u = rng.random(5)
    there, here = groups.label(token, u), few.label(np.searchsorted(known, token), u)
    np.testing.assert_allclose(groups.mass(p, there), few.mass(local, here))
    np.testing.assert_array_equal(groups.counts[known[:-1]], few.counts[:-1])


def test_where_drafting_does_not_pay_nothing_is_spent_and_who_missed_steps_waits(drafting: Engine) -> None:
    """Without a wish for nodes: off while it does not pay, on again from the next sentence on once it does."""
    speculation, told = drafting.decode.speculation, []
    stepped = speculation.proposers["draft"].stepped

    def watched(*given: Any) -> None:
        told.append(given)
        stepped(*given)

    speculation.proposers["draft"].stepped = watched  # type: ignore[assignment, method-assign]
    pays = 0
    speculation._pays = lambda item, together: pays  # type: ignore[method-assign]
    listener = say(drafting, "one. two", seed=20, top_k=20, max_seconds=4, speculation="draft")
    for _ in range(6):
        drafting.step()
    item = drafting.pool.items[0]
    assert not told
    assert item.draft_tokens == 0
    pays = 2
    while item.sentence_index == 0 and drafting.step():
        assert item.draft_tokens == 0
    drain(drafting)
    assert listener.last.timings is not None
    assert listener.last.timings.total_draft_tokens > 0
    assert told
