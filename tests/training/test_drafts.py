"""Draft heads and MTP modules: what they start as, what they see, that they learn, files, resumption, calibration."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from tests.training.tiny_draft import VOCABULARY, batch, examples, tiny_lm
from training import calibrate, draft
from training.calibrate import accepted
from training.draft import draft_loss, held_out_accuracy
from training.drafting import (
    Drafter,
    base_logits,
    batches,
    drafts,
    futures,
    load_base,
    load_drafter,
    served_probabilities,
)
from training.models.draft_heads import DraftHeads
from training.models.mtp import MTP
from training.sparse_tree import SparseTree
from tts_engine.sampling import SamplingBatch, Scores, sample


def drafters() -> list[Drafter]:
    base = tiny_lm()
    return [DraftHeads.from_base(base, 3), MTP.from_base(base, 2), MTP.from_base(base, 1, reads_next_token=False)]


@pytest.fixture(params=[0, 1, 2], ids=["heads", "mtp", "mtp without next token"])
def drafter(request: pytest.FixtureRequest) -> Drafter:
    torch.manual_seed(1)
    return drafters()[request.param]


def test_heads_start_as_the_base() -> None:
    base = tiny_lm()
    hidden = base.hidden(batch().tokens)[0]
    logits = base_logits(
        base, DraftHeads.from_base(base, 3)(hidden, torch.randn(*hidden.shape[:2], 3, hidden.shape[2]))
    )
    assert logits.shape == (*hidden.shape[:2], 3, VOCABULARY.logit_count)
    torch.testing.assert_close(logits, base_logits(base, hidden)[:, :, None].expand_as(logits))


def test_futures_are_what_comes_later() -> None:
    targets = torch.tensor([[-1, 3, 1, 0, -1], [2, 0, -1, -1, -1]])
    assert futures(targets, 2).tolist() == [[1, 0], [0, -1], [-1, -1], [0, -1], [-1, -1]]


def test_batches_hold_every_example_once_and_the_budget() -> None:
    made = list(batches(examples(), VOCABULARY, 40, "cpu"))
    assert sum(len(part.tokens) for part in made) == 6
    assert max(part.tokens[..., 0].numel() for part in made) <= 40 < sum(part.tokens[..., 0].numel() for part in made)


@torch.no_grad()
def test_head_i_sees_the_tokens_up_to_the_one_it_drafts_behind() -> None:
    torch.manual_seed(1)
    base = tiny_lm()
    hidden, following = torch.randn(2, 32), torch.randn(2, 3, 32)
    changed = following.clone()
    changed[:, 1] += 1
    for reads, sees in ((True, [False, True, True]), (False, [False] * 3)):
        heads = DraftHeads.from_base(base, 3, reads)
        for weight in heads.parameters():
            weight.add_(torch.randn_like(weight) * 0.2)
        moved = (heads(hidden, changed) - heads(hidden, following)).abs().amax((0, 2)) > 1e-6
        assert moved.tolist() == sees


@torch.no_grad()
def test_mtp_module_i_sees_tokens_up_to_i_ahead_and_none_behind_them() -> None:
    """Position t: module 1 may use token t + 1, module 2 token t + 2; without next tokens none after t."""
    torch.manual_seed(1)
    base = tiny_lm()
    hidden, embedded = torch.randn(1, 8, 32), torch.randn(1, 8, 32)
    changed = embedded.clone()
    changed[0, 5] += 1
    for reads in (True, False):
        module = MTP.from_base(base, 2, reads)
        for weight in module.parameters():  # fresh modules give the next token no weight
            weight.add_(torch.randn_like(weight) * 0.2)
        moved = (module(hidden, changed) - module(hidden, embedded)).abs().amax(-1)[0] > 1e-6
        assert moved[:, 0].nonzero()[:, 0].tolist() == (list(range(4, 8)) if reads else [])
        assert moved[:, 1].nonzero()[:, 0].tolist() == (list(range(3, 8)) if reads else [])
    later = hidden.clone()
    later[0, 5] += 1
    assert torch.equal(module(later, embedded)[:, :5], module(hidden, embedded)[:, :5])


def test_only_the_draft_learns_and_it_does(drafter: Drafter) -> None:
    base = tiny_lm()
    before = {name: weight.clone() for name, weight in base.state_dict().items()}
    optimiser = torch.optim.AdamW(drafter.parameters(), 1e-2)
    greedy = (0.0, 0, 1.0)
    untrained = _top(accepted(drafter, base, batch(), 1, greedy))
    for _ in range(60):
        loss, accuracy = draft_loss(drafter, base, batch(), 0.8, 0.8)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert accuracy.shape == (drafter.steps,)
    assert all(torch.equal(weight, before[name]) for name, weight in base.state_dict().items())
    held = held_out_accuracy(drafter.eval(), base, examples(), VOCABULARY, 100, "cpu")
    assert len(held) == 1 + drafter.steps
    # It guesses what the LM says, not what the examples do: that is what it is verified against.
    trained = _top(accepted(drafter, base, batch(), 1, greedy))
    assert (trained > untrained + 0.2).all()


def _top(counted: tuple[np.ndarray, np.ndarray, np.ndarray]) -> np.ndarray:
    return counted[0][:, 0] / counted[2]


def test_the_loss_weighs_position_i_by_decay_to_the_i() -> None:
    base, both = tiny_lm(), DraftHeads.from_base(tiny_lm(), 2)
    first = DraftHeads.from_base(base, 1)
    one = draft_loss(first, base, batch(), 1.0, 0.8)[0]
    second = draft_loss(both, base, batch(), 1.0, 0.8)[0] - one
    torch.testing.assert_close(draft_loss(both, base, batch(), 0.5, 0.8)[0], 0.5 * one + 0.25 * second)


def test_files_round_trip(drafter: Drafter, tmp_path: Path) -> None:
    drafter.save_pretrained(tmp_path)
    loaded = load_drafter(tmp_path)
    assert type(loaded) is type(drafter)
    assert loaded.config == drafter.config
    for name, weight in drafter.state_dict().items():
        torch.testing.assert_close(loaded.state_dict()[name], weight.half().float(), atol=0, rtol=0)
    other = MTP if isinstance(drafter, DraftHeads) else DraftHeads
    with pytest.raises(ValueError, match="train them with"):
        other.from_pretrained(tmp_path)


@pytest.mark.parametrize(
    ("temperature", "top_k", "top_p"), [(0.0, 0, 1.0), (0.7, 5, 0.9), (1.3, 0, 0.8), (1.0, 0, 1.0)]
)
def test_served_probabilities_are_those_the_engine_samples_with(temperature: float, top_k: int, top_p: float) -> None:
    logits = np.random.default_rng(0).normal(size=17).astype(np.float32) * 2
    probabilities = served_probabilities(torch.from_numpy(logits)[None], temperature, top_k, top_p)[0].numpy()
    draws = 20_000
    batch_of = SamplingBatch(
        np.full(draws, temperature), np.full(draws, top_k), np.full(draws, top_p), np.zeros(draws, np.uint64)
    )
    tokens = sample(Scores.of(np.repeat(logits[None], draws, 0)), batch_of, (np.arange(draws) + 0.5) / draws)
    np.testing.assert_allclose(np.bincount(tokens, minlength=17) / draws, probabilities, atol=2e-4)


def test_acceptance_is_counted_where_the_base_stands_at_the_drafted_token() -> None:
    """Against a slow loop over utterances alone, position by position."""
    torch.manual_seed(1)
    base = tiny_lm()
    heads = DraftHeads.from_base(base, 3)
    with torch.no_grad():
        for weight in heads.parameters():
            weight.add_(torch.randn_like(weight) * 0.2)
    sampling = (0.8, 5, 0.9)
    sums, tolerant, counts = accepted(heads, base, batch(), 4, sampling, 3)
    wanted, wanted_of_three, places = np.zeros((3, 4)), np.zeros((3, 4)), np.zeros(3, np.int64)
    for example in examples():
        single = next(batches([example], VOCABULARY, 1000, "cpu"))
        with torch.no_grad():
            hidden = base.hidden(single.tokens)[0][0]
            embedded = F.pad(base.model.embed_tokens(single.tokens).sum(2)[0], (0, 0, 0, 3))
        start, frames = len(example.prompt) - 1, len(example.codes)
        for t in range(start, start + frames + 1):
            for head in range(3):
                if t + head + 1 > start + frames:
                    continue
                state = heads(hidden[t], embedded[t + 1 : t + 4])[head]
                best = base_logits(base, state).topk(4).indices
                truth = served_probabilities(base_logits(base, hidden[t + head + 1])[None], *sampling)[0]
                wanted[head] += truth[best].detach().numpy()
                wanted_of_three[head] += np.minimum(1, 3 * truth[best].detach().numpy())
                places[head] += 1
    np.testing.assert_array_equal(counts, places)
    np.testing.assert_allclose(sums, wanted, atol=1e-3)
    np.testing.assert_allclose(tolerant, wanted_of_three, atol=2e-3)


def test_greedy_acceptance_of_untrained_heads_is_the_share_of_repeats() -> None:
    """Untrained heads propose what the base says now; that is accepted where the base says it again."""
    base = tiny_lm()
    sums, _, counts = accepted(DraftHeads.from_base(base, 1), base, batch(), 1, (0.0, 0, 1.0))
    repeats = 0
    for example in examples():
        single = next(batches([example], VOCABULARY, 1000, "cpu"))
        said = base_logits(base, drafts(DraftHeads.from_base(base, 1), base, single)[0]).argmax(-1)
        repeats += int((said[1:] == said[:-1]).sum())
    assert (sums[0, 0], counts[0]) == (repeats, sum(len(e.codes) for e in examples()))


@pytest.fixture
def voice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A base on disk; the corpus replaced by the tiny utterances."""
    tiny_lm().save_pretrained(tmp_path / "lm")
    (tmp_path / "lm" / "phonemes.json").write_text(json.dumps(list(VOCABULARY.phonemes)))
    for module in (draft, calibrate):
        monkeypatch.setattr(module, "load_examples", lambda *_: examples())
    return tmp_path


def commands(voice: Path, *more: str) -> list[str]:
    return ["--lm", str(voice / "lm"), "--budget", "60", "--threads", "1", *more]


def test_from_training_to_trees(voice: Path, capsys: pytest.CaptureFixture[str]) -> None:
    work = ["--kind", "heads", "--heads", "2", "--work", str(voice / "work"), "--noise", "0"]
    draft.main(commands(voice, *work, "--steps", "200"))
    assert "position 2" in capsys.readouterr().out
    calibrate.main(commands(voice, "--draft", str(voice / "heads-2"), "--nodes", "4", "8", "--ranks", "3"))
    small, large = (SparseTree.load(voice / "heads-2" / f"tree_{nodes}.json") for nodes in (4, 8))
    assert large.parents[:4] == small.parents
    record = json.loads((voice / "heads-2" / "acceptance.json").read_text())
    assert np.array(record["acceptance"]).shape == (2, 3)
    frames = sum(len(e.codes) for e in examples())
    assert record["places"] == [frames, frames - len(examples())]
    assert {path.name for path in (voice / "heads-2").iterdir()} >= {"loss.png", "model.safetensors", "config.json"}


def test_interrupted_training_ends_where_unbroken_training_does(voice: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def train(name: str) -> Drafter:
        work = ["--kind", "mtp", "--modules", "1", "--work", str(voice / name), "--out", str(voice / "out" / name)]
        draft.main(commands(voice, *work, "--noise", "0", "--steps", "210"))
        return load_drafter(voice / "out" / name)

    def stop_at_205(*args: Any) -> Any:
        calls.append(args)
        if len(calls) > 205:
            raise KeyboardInterrupt
        return draft_loss(*args)

    unbroken = train("unbroken")
    calls: list[Any] = []
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(draft, "draft_loss", stop_at_205)
        train("stopped")
    resumed = train("stopped")
    for name, weight in unbroken.state_dict().items():
        torch.testing.assert_close(resumed.state_dict()[name], weight, atol=0, rtol=0)


def test_tuning_the_base_saves_a_base_that_serves(voice: Path) -> None:
    work = ["--kind", "heads", "--heads", "1", "--tune-lm", "0.5", "--work", str(voice / "work")]
    draft.main(commands(voice, *work, "--noise", "0", "--steps", "60"))
    before, _ = load_base(voice / "lm")
    tuned, _ = load_base(voice / "heads-1-tuned" / "lm")
    heads = load_drafter(voice / "heads-1-tuned")
    accuracy = [held_out_accuracy(heads, base, examples(), VOCABULARY, 100, "cpu")[0] for base in (before, tuned)]
    assert accuracy[1] > accuracy[0] + 0.3


def test_training_begins_with_another_draft(voice: Path) -> None:
    first = ["--kind", "mtp", "--modules", "1", "--work", str(voice / "work"), "--noise", "0"]
    draft.main(commands(voice, *first, "--steps", "60"))
    start = ["--start", str(voice / "mtp-1"), "--work", str(voice / "more"), "--out", str(voice / "out")]
    draft.main(commands(voice, "--kind", "mtp", *start, "--steps", "0"))
    before, after = (load_drafter(voice / name).state_dict() for name in ("mtp-1", "out"))
    for name, weight in before.items():
        torch.testing.assert_close(after[name], weight, atol=0, rtol=0)
    with pytest.raises(SystemExit):
        draft.main(commands(voice, "--kind", "heads", *start))


def test_missing_files_say_what_to_run(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"training\.draft"):
        load_drafter(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"training\.lm"):
        draft.main(["--kind", "heads", "--lm", str(tmp_path), "--work", str(tmp_path / "work")])
