"""README and result files agree."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from training.figures import END, START, replaced, table

ROOT = Path(__file__).resolve().parents[2]
QUALITY = {"wer_teacher": 20.5, "wer_codec": 22.0, "wer_tts": 25.25, "sentences": 100, "gone_wrong_tts": 0,
           "bar_codec": 24.5, "bar_tts": 28.5}  # fmt: skip


def test_the_readme_holds_the_figures_of_the_result_files() -> None:
    readme = ROOT / "README.md"
    if not list((ROOT / "results").glob("*.json")):
        pytest.skip("no results yet: run `make evaluate` and `make bench`")
    text = readme.read_text(encoding="utf-8")
    assert text == replaced(text, table(ROOT / "results")), "run `python -m training.figures`"


def test_only_the_text_between_the_markers_changes(tmp_path: Path) -> None:
    (tmp_path / "quality.json").write_text(json.dumps(QUALITY))
    readme = f"# Title\n\n{START}\nold\n{END}\n\nrest\n"
    after = replaced(readme, table(tmp_path))
    assert after.startswith(f"# Title\n\n{START}\n| figure |") and after.endswith(f"{END}\n\nrest\n")
    assert "| 25.2 % | ≤ 28.5 % |" in after and "old" not in after
    assert replaced(after, table(tmp_path)) == after


def test_missing_files_and_markers_are_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="make bench"):
        table(tmp_path)
    with pytest.raises(ValueError, match="figures:start"):
        replaced("# Title\n", "x\n")
