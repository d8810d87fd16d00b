"""An LM that says the same as another and costs as a larger one: at what size of its target speculation pays.

    python -m training.grow --layers 16 --intermediate 4096 --out data/grown/85M    # checkpoints to export

Further layers add nothing to what passes through them and further feed-forward columns are multiplied by zero, so
that tokens, hidden states and what drafts make of them stay as they are; a runtime computes all of it nevertheless.
`python -m tests.benchmarks.by_size` measures a series of them.
"""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

Weights = dict[str, torch.Tensor]
SILENT = ("o_proj", "down_proj")  # what writes into the residual stream
SCALE = 0.02  # of weights whose results are thrown away; not zero, as arithmetic on zeros may be quicker


def grown(weights: Mapping[str, torch.Tensor], config: Mapping[str, Any], layers: int, intermediate: int) -> Weights:
    """The weights of a `LlamaForCausalLM` with so many layers and feed-forward columns; ValueError for fewer."""
    old, width, hidden = (int(config[name]) for name in ("num_hidden_layers", "intermediate_size", "hidden_size"))
    if layers < old or intermediate < width:
        raise ValueError(f"an LM of {old} layers, {width} wide, cannot grow to {layers} layers, {intermediate} wide")
    generator = torch.Generator().manual_seed(0)
    made = dict(weights)
    kind = next(iter(weights.values())).dtype

    def noise(*shape: int) -> torch.Tensor:
        return (SCALE * torch.randn(*shape, generator=generator)).to(kind)

    more = intermediate - width
    for layer in range(old):
        gate, up, down = (f"model.layers.{layer}.mlp.{name}_proj.weight" for name in ("gate", "up", "down"))
        made[gate] = torch.cat([weights[gate], noise(more, hidden)])
        made[up] = torch.cat([weights[up], torch.zeros(more, hidden, dtype=kind)])  # 0 times anything, exactly
        made[down] = torch.cat([weights[down], torch.zeros(hidden, more, dtype=kind)], dim=1)
    for name in [name for name in made if name.startswith("model.layers.0.")]:
        for layer in range(old, layers):
            if "norm" in name:
                weight = torch.ones_like(made[name])
            elif any(part in name for part in SILENT):
                weight = torch.zeros_like(made[name])
            else:
                weight = noise(*made[name].shape)
            made[name.replace("layers.0.", f"layers.{layer}.")] = weight
    return {name: weight.contiguous() for name, weight in made.items()}


def grow(source: Path, out: Path, layers: int, intermediate: int) -> int:
    """Write checkpoints beside which only lm/ differs; the LM's parameters."""
    shutil.rmtree(out, ignore_errors=True)
    shutil.copytree(source, out)
    config = json.loads((source / "lm" / "config.json").read_text(encoding="utf-8"))
    weights = grown(load_file(source / "lm" / "model.safetensors"), config, layers, intermediate)
    config |= {"num_hidden_layers": layers, "intermediate_size": intermediate}
    (out / "lm" / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    save_file(weights, out / "lm" / "model.safetensors")
    return sum(weight.numel() for weight in weights.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoints", type=Path, default=Path("checkpoints/rms"), help="what grows")
    parser.add_argument("--layers", type=int, required=True)
    parser.add_argument("--intermediate", type=int, required=True, help="feed-forward columns")
    parser.add_argument("--out", type=Path, required=True, help="checkpoints to write")
    args = parser.parse_args()
    try:
        parameters = grow(args.checkpoints, args.out, args.layers, args.intermediate)
    except (OSError, ValueError) as error:
        raise SystemExit(str(error)) from error
    print(f"{parameters / 1e6:.1f} M parameters in {args.out}; export with --checkpoints {args.out}")


if __name__ == "__main__":
    main()
