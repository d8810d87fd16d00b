"""Quality rows of speculation: means over seeds, and what is kept of an earlier run."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from training import speculation

VOICE = Path(__file__).resolve().parents[2] / "model_repository" / "tts" / "1"


def test_a_default_row_is_a_mean_over_seeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The real voice, recogniser and teacher on two sentences; all but two rows left out."""
    wanted = [("none", "exact"), ("mtp", "top_k")]
    every = speculation.settings

    def few(engine, defaults_only: bool):  # type: ignore[no-untyped-def]
        return [row for row in every(engine, defaults_only) if (row["proposer"], row["rule"]) in wanted]

    monkeypatch.setattr(speculation, "settings", few)
    path = tmp_path / "speculation_quality.json"
    old = {"proposer": "draft", "rule": "bias", "setting": 0.3, "wer": 1.0, "acceptance_length": 2.0}
    command = ["speculation", "--voice", str(VOICE), "--sentences", "2", "--defaults", "--out", str(tmp_path)]
    monkeypatch.setattr("sys.argv", [*command, "--seeds", "2"])
    path.write_text(json.dumps({"rows": [old], "swaps": [], "voice": "another"}))
    speculation.main()
    result = json.loads(path.read_text())
    assert [(row["proposer"], row["rule"]) for row in result["rows"]] == wanted  # not the other voice's
    assert "rows go" in capsys.readouterr().out
    for row in result["rows"]:
        assert len(row["wer_by_seed"]) == 2
        assert row["wer"] == pytest.approx(np.mean(row["wer_by_seed"]), abs=1e-3)
    assert result["rows"][1]["acceptance_length"] > 1.5
    path.write_text(json.dumps(result | {"rows": [old]}))
    monkeypatch.setattr("sys.argv", [*command, "--seeds", "1"])
    speculation.main()
    rows = json.loads(path.read_text())["rows"]
    assert (rows[0]["setting"], rows[0]["default"]) == (0.3, False)  # the same voice's stay
    assert [len(row["wer_by_seed"]) for row in rows[1:]] == [1, 1]
