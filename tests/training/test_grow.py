"""A grown LM says, token for token and logit for logit, what the one it grew from says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from tests.export.conftest import write_lm
from training.grow import grow
from training.models.llama import SpeechLM


@pytest.fixture
def small(tmp_path: Path) -> Path:
    write_lm(tmp_path / "small" / "lm")
    (tmp_path / "small" / "codec").mkdir()
    return tmp_path / "small"


def test_more_layers_and_columns_say_the_same(small: Path, tmp_path: Path) -> None:
    parameters = grow(small, tmp_path / "large", 5, 160)
    before, after = (SpeechLM.from_pretrained(tmp_path / name / "lm") for name in ("small", "large"))
    assert parameters == sum(weight.numel() for weight in after.parameters())
    assert len(after.state_dict()) > len(before.state_dict())
    tokens = torch.randint(3, 60, (2, 9, 4), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        torch.testing.assert_close(after(tokens), before(tokens), rtol=0, atol=1e-4)
    assert (tmp_path / "large" / "codec").is_dir()
    config = json.loads((tmp_path / "large" / "lm" / "config.json").read_text())
    assert (config["num_hidden_layers"], config["intermediate_size"]) == (5, 160)


def test_an_lm_does_not_shrink(small: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="2 layers, 96 wide, cannot grow to 1"):
        grow(small, tmp_path / "large", 1, 96)
