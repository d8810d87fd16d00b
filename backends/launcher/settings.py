"""Engine settings over those of config.pbtxt, for one run of the server."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from backends.launcher.distribution import LauncherError

PARAMETER = 'parameters {{ key: "{0}" value {{ string_value: "{1}" }} }}\n'


def parse_settings(pairs: list[str]) -> dict[str, str]:
    """["serving=batched"] → {"serving": "batched"}; LauncherError for what is not NAME=VALUE."""
    for pair in pairs:
        if not re.fullmatch(r"\w+=[\w.+-]+", pair):
            raise LauncherError(f"--set takes NAME=VALUE, like capacity=64, not {pair!r}")
    return dict(pair.split("=") for pair in pairs)


def with_settings(model: Path, settings: Mapping[str, str], repository: Path) -> Path:
    """A repository in the empty folder `repository` with `model`'s files and these settings; returns it."""
    text = (model / "config.pbtxt").read_text(encoding="utf-8")
    for name, value in settings.items():
        text = re.sub(rf'(?m)^parameters \{{ key: "{name}" .*\n', "", text) + PARAMETER.format(name, value)
    copy = repository / model.name
    copy.mkdir(parents=True)
    (copy / "config.pbtxt").write_text(text, encoding="utf-8")
    (copy / "1").symlink_to((model / "1").resolve())
    return repository
