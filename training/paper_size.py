"""The speculation table for an LM of the papers' size: 12 layers of 1,024, 16 heads, 4,096 wide feed-forward, 220 M.

    python -m training.paper_size                              # on a GPU where torch sees one, hours; resumes
    python -m training.paper_size --steps 2 --quick            # a try of every stage on a CPU, some minutes
    python -m training.paper_size --from export                # what is trained, exported and measured again

Trains the LM on the teacher's speech, lets it speak, trains its draft heads, draft model and MTP modules on that,
calibrates them, exports a voice, and runs the speculation benchmark on it. Codec, prosody BERT and text are the demo
voice's. Graphs run on the GPU where `onnxruntime-gpu` is installed in place of `onnxruntime`; keys and values then
lie in host memory and cross the bus at every step, which this table includes.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

DEMO, DEMO_CODES = Path("checkpoints/rms"), Path("data/lm")
LM_FILES = ("phonemes.json", "generation_config.json")  # what the trainer and the sampler read
STEPS = 20_000
HEADS, LAYERS, MODULES = 6, (0, 6), 2


def stages(work: Path, device: str, provider: str, steps: int, quick: bool) -> dict[str, list[str]]:
    """Module and arguments of each stage, in order; every one resumes or does its work again."""
    checkpoints, codes = work / "checkpoints", work / "lm"
    lm, speech, voice = checkpoints / "lm", work / "own.npz", work / "voice" / "1"
    drafts = max(1, steps // 5)
    budget = "1000" if quick else "32000"
    of = ["--lm", str(lm), "--device", device]
    learn = [*of, "--codes", str(codes), "--budget", budget, *([] if quick else ["--speech", str(speech)])]
    trained = {
        "heads": ["training.draft", "--kind", "heads", "--heads", str(HEADS), "--noise", "0"],
        "mtp": ["training.draft", "--kind", "mtp", "--modules", str(MODULES), "--noise", "0"],
        "draft": ["training.draft_model", "--layers", *map(str, LAYERS)],
    }
    names = {"heads": f"heads-{HEADS}", "mtp": f"mtp-{MODULES}", "draft": f"draft-{len(LAYERS)}"}
    made = {
        "lm": ["training.lm", "--size", "paper", "--work", str(codes), "--out", str(lm), "--steps", str(steps),
               "--budget", budget, "--device", device],
    }  # fmt: skip
    if not quick:  # an LM of a few steps does not end its sentences
        made["own speech"] = ["training.own_speech", *of, "--out", str(speech), "--count", "14000", "--batch", "256"]
    for name, command in trained.items():
        place = ["--work", str(work / names[name]), "--out", str(checkpoints / names[name]), "--steps", str(drafts)]
        made[name] = [*command, *learn, *place]
    for name in ("heads", "mtp"):
        made[f"calibrate {name}"] = ["training.calibrate", "--draft", str(checkpoints / names[name]), *learn]
        made[f"calibrate {name}"] += ["--texts", "4"] if quick else []
    variant = "int8" if provider == "cpu" else "fp32"  # the int8 graphs' operators are the CPU's
    made["export"] = [
        "export", "--checkpoints", str(checkpoints), "--out", str(voice), "--name", "paper", "--variant", variant
    ]  # fmt: skip
    short = ["--quick", "--rounds", "1", "--levels", "1", "4", "--seconds", "0.4"]
    made["bench"] = ["tests.benchmarks.speculation", "--voice", str(voice), "--out", str(work / "results")]
    made["bench"] += ["--provider", provider, *(short if quick else [])]
    return made


def prepare(work: Path) -> None:
    """The parts of the demo voice that the new one shares."""
    for part in ("codec", "prosody"):
        shutil.copytree(DEMO / part, work / "checkpoints" / part, dirs_exist_ok=True)
    (work / "checkpoints" / "lm").mkdir(parents=True, exist_ok=True)
    for name in LM_FILES:
        shutil.copy(DEMO / "lm" / name, work / "checkpoints" / "lm" / name)
    (work / "lm").mkdir(exist_ok=True)
    for codes in DEMO_CODES.glob("codes-*.npz"):  # the corpus through the same codec, named by it
        shutil.copy(codes, work / "lm" / codes.name)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, default=Path("data/paper"), help="everything is made here")
    parser.add_argument("--steps", type=int, default=STEPS, help="of the LM; drafts take a fifth of it")
    parser.add_argument("--device", default="auto", help="of training: cpu, cuda, or cuda where there is one (auto)")
    parser.add_argument("--provider", choices=("auto", "cpu", "cuda"), default="auto", help="of the exported graphs")
    parser.add_argument("--quick", action="store_true", help="small batches, no own speech, short benchmark")
    parser.add_argument("--from", dest="start", default="lm", help="first stage to run")
    args = parser.parse_args(arguments)
    device, provider = args.device, args.provider
    if device == "auto":
        import torch

        device = "cuda" if torch.cuda.is_available() else "cpu"
    if provider == "auto":
        import onnxruntime

        provider = "cuda" if "CUDAExecutionProvider" in onnxruntime.get_available_providers() else "cpu"
    todo = stages(args.work, device, provider, args.steps, args.quick)
    if args.start not in todo:
        parser.error(f"no stage {args.start!r}; there are: {', '.join(todo)}")
    prepare(args.work)
    for name in list(todo)[list(todo).index(args.start) :]:
        print(f"— {name}: python -m {' '.join(todo[name])}", flush=True)
        done = subprocess.run([sys.executable, "-m", *todo[name]])
        if done.returncode:
            print(f"stage {name!r} failed; when it is repaired, go on with --from {name!r}", file=sys.stderr)
            return done.returncode
    return 0


if __name__ == "__main__":
    sys.exit(main())
