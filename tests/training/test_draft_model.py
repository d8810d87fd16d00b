"""The draft model: layers of the LM, taught its distribution; its file is a Llama and its acceptance is measured."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.training.tiny_draft import VOCABULARY, batch, examples, tiny_lm
from training import draft_model
from training.draft_model import acceptance, distillation, layer_subset
from training.drafting import base_logits, served_probabilities
from training.models.llama import SpeechLM

SAMPLING = (0.8, 6, 0.9)


def test_all_layers_are_the_lm_and_fewer_are_some_of_it() -> None:
    base, tokens = tiny_lm(), batch().tokens
    torch.testing.assert_close(layer_subset(base, [0, 1])(tokens), base(tokens))
    one = layer_subset(base, [1])
    for name, weight in one.model.layers[0].state_dict().items():
        torch.testing.assert_close(weight, base.model.layers[1].state_dict()[name])
    with pytest.raises(ValueError, match="between 0 and 1"):
        layer_subset(base, [2])


def test_acceptance_is_the_overlap_that_exact_sampling_accepts() -> None:
    """Against drawing from the draft and accepting by min(1, p / q), place by place."""
    base, draft = tiny_lm(), layer_subset(tiny_lm(), [0])
    told = acceptance(draft, base, examples(), VOCABULARY, SAMPLING, 100, "cpu")
    made = batch()
    place = made.targets >= 0
    with torch.no_grad():
        p, q = (
            served_probabilities(base_logits(model, model.hidden(made.tokens)[0][place]), *SAMPLING).double()
            for model in (base, draft)
        )
    random = np.random.default_rng(0)
    accepted = []
    for row in range(len(p)):
        drawn = random.choice(p.shape[1], 400, p=(q[row] / q[row].sum()).numpy())
        accepted.append((random.random(400) < (p[row, drawn] / q[row, drawn]).numpy()).mean())
    assert abs(np.mean(accepted) - told) < 0.02
    assert acceptance(base, base, examples(), VOCABULARY, SAMPLING, 100, "cpu") == pytest.approx(1, abs=1e-4)


def test_it_learns_what_the_lm_says_and_the_lm_stays() -> None:
    base = tiny_lm()
    draft = layer_subset(base, [0]).requires_grad_(True)
    before = {name: weight.clone() for name, weight in base.state_dict().items()}
    optimiser = torch.optim.AdamW(draft.parameters(), 1e-2)
    seen = []
    for _ in range(120):
        loss, overlap = distillation(draft, base, batch(), 1.0)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        seen.append(float(overlap))
    assert np.mean(seen[-5:]) > np.mean(seen[:5]) + 0.1
    assert all(torch.equal(weight, before[name]) for name, weight in base.state_dict().items())


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    tiny_lm().save_pretrained(tmp_path / "lm")
    (tmp_path / "lm" / "phonemes.json").write_text(json.dumps(list(VOCABULARY.phonemes)))
    monkeypatch.setattr(draft_model, "load_examples", lambda *_: examples())
    work = ["--lm", str(tmp_path / "lm"), "--work", str(tmp_path / "work"), "--budget", "60", "--threads", "1"]
    draft_model.main([*work, "--layers", "1", "--steps", "3"])
    assert "accepts" in capsys.readouterr().out
    assert SpeechLM.from_pretrained(tmp_path / "draft-1").config.num_hidden_layers == 1
    record = json.loads((tmp_path / "draft-1" / "acceptance.json").read_text())
    assert 0 < record["acceptance"][0] <= 1
