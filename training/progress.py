"""What every trainer needs: a loss curve on disk and as a picture, and checkpoints that resume."""

from __future__ import annotations

import csv
from collections import defaultdict, deque
from pathlib import Path

import torch
from torch import nn


class LossCurve:
    """Appends rows to a CSV and draws them; `mean(name)` is over the last 50 steps."""

    def __init__(self, table: Path, picture: Path, resume: bool = False) -> None:
        self.table, self.picture = table, picture
        self._recent: dict[str, deque[float]] = defaultdict(lambda: deque(maxlen=50))
        if not resume:
            table.unlink(missing_ok=True)

    def add(self, step: int, **values: float) -> None:
        fresh = not self.table.exists()
        with self.table.open("a", newline="") as file:
            writer = csv.writer(file)
            if fresh:
                writer.writerow(["step", *values])
            writer.writerow([step, *(f"{value:.5f}" for value in values.values())])
        for name, value in values.items():
            self._recent[name].append(value)

    def mean(self, name: str) -> float:
        values = self._recent[name]
        return sum(values) / max(1, len(values))

    def draw(self, picture: Path | None = None) -> None:
        import matplotlib

        matplotlib.use("Agg")
        import matplotlib.pyplot as plt

        with self.table.open() as file:
            rows = list(csv.DictReader(file))
        names = [name for name in rows[0] if name != "step"]
        figure, axes = plt.subplots(1, len(names), figsize=(5 * len(names), 3.2), squeeze=False)
        for axis, name in zip(axes[0], names, strict=True):
            values = [float(row[name]) for row in rows]
            width = max(1, len(values) // 200)
            smooth = [sum(values[i : i + width]) / len(values[i : i + width]) for i in range(0, len(values), width)]
            axis.plot([int(row["step"]) for row in rows][::width], smooth)
            axis.set(xlabel="step", title=name)
            axis.grid(alpha=0.3)
        figure.tight_layout()
        figure.savefig(picture or self.picture, dpi=90)
        plt.close(figure)


def save_checkpoint(path: Path, model: nn.Module, optimiser: torch.optim.Optimizer, step: int) -> None:
    """Written beside, then renamed: an interrupted save never harms the last good one."""
    partial = path.with_suffix(".partial")
    torch.save({"model": model.state_dict(), "optimiser": optimiser.state_dict(), "step": step}, partial)
    partial.rename(path)


def load_checkpoint(path: Path, model: nn.Module, optimiser: torch.optim.Optimizer) -> int:
    """Step to go on from; 0 without a checkpoint. `weights_only`: a checkpoint is data, not code."""
    if not path.exists():
        return 0
    saved = torch.load(path, weights_only=True, map_location="cpu")
    model.load_state_dict(saved["model"])
    optimiser.load_state_dict(saved["optimiser"])
    return int(saved["step"])
