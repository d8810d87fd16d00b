"""Every stage of the paper-size run knows the arguments it is given; the run itself takes a whole machine."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from training.paper_size import main, prepare, stages


@pytest.mark.parametrize("quick", [True, False])
def test_every_stage_knows_its_arguments(tmp_path: Path, quick: bool) -> None:
    todo = stages(tmp_path, "cpu", "cpu", 2, quick)
    assert next(iter(todo)) == "lm" and list(todo)[-1] == "bench"
    assert ("own speech" in todo) != quick
    processes = {
        name: subprocess.Popen([sys.executable, "-m", *command, "--help"], stdout=subprocess.PIPE, text=True)
        for name, command in todo.items()
    }
    for name, process in processes.items():
        text, _ = process.communicate(timeout=120)
        assert process.returncode == 0, name
        for option in (part for part in todo[name] if part.startswith("--")):
            assert option in text, f"{name} does not know {option}"


def test_the_new_voice_shares_what_the_demo_voice_has(tmp_path: Path) -> None:
    prepare(tmp_path)
    assert {path.name for path in (tmp_path / "checkpoints").iterdir()} == {"codec", "prosody", "lm"}
    assert not (tmp_path / "checkpoints" / "lm" / "model.safetensors").exists()


def test_an_unknown_stage_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--work", str(tmp_path), "--from", "vocoder"])
    assert "there are: lm" in capsys.readouterr().err
