"""What speculation does to quality: the sweeps of every acceptance rule's setting, and tokens swapped within groups.

    python -m training.speculation                 # all sweeps; writes results/speculation_quality.json and .png
    python -m training.speculation --defaults      # every proposer x rule at its default setting only
    python -m training.speculation --swaps         # the swap stress test only

Every row is written when it is measured; rows of an earlier run with the same voice and sentences stay until they are
measured again. One seed says little: rows of exactly the same distribution lie up to 3 points of word error apart, so
those at a default setting are means over several.
Word error rate on the 100 Harvard sentences, seconds of speech and log-mel distance (after time warping) against the
teacher, and the acceptance length. With `exact`, and with τ = 1, the voice says what it says without speculation.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from training.evaluate import codec_waves, teacher_waves
from training.recogniser import SAMPLE_RATE
from training.score import Row, load_sentences, score, wer
from training.spectral import distance

SEED = 1
NEXT_SEED = 1000  # from one seed of a row to the next
NODES = {"medusa": 8, "draft": 4, "mtp": 2}
SWEEPS: dict[str, tuple[str, tuple[float, ...]]] = {
    "tolerance": ("tolerance", (1, 2, 3, 4)),
    "bias": ("bias", (0.0, 0.02, 0.05, 0.1, 0.2)),
    "top_k": ("verify_top_k", (1, 2, 4, 8, 16)),
    "group": ("theta", ()),  # the voice's
}
SWEPT_WITH = {"tolerance": ("medusa",), "bias": ("draft",), "top_k": ("mtp",), "group": ("draft", "mtp")}


def fingerprint(voice: Path) -> str:
    """Names LM, drafts, groups and settings; not vocoder and frontend, whose graphs differ from export to export."""
    manifest = json.loads((voice / "voice.json").read_text(encoding="utf-8"))
    for graph in ("vocoder", "frontend"):
        manifest["files"].pop(graph, None)
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()[:12]


def spoken(
    engine: Any, texts: Mapping[str, str], params: Mapping[str, Any], seed: int
) -> tuple[dict[str, np.ndarray], float]:
    """Waves of all texts, 16 at a time, and the mean acceptance length."""
    from tts_engine.request import SamplingParams, SpeechRequest

    pieces: dict[str, list[np.ndarray]] = {key: [] for key in texts}
    lengths = np.zeros(64)

    def listener(key: str):  # type: ignore[no-untyped-def]
        def on_chunk(chunk: Any) -> None:
            pieces[key].append(chunk.pcm)
            if chunk.final:
                lengths[: len(chunk.timings.acceptance_lengths)] += chunk.timings.acceptance_lengths

        return on_chunk

    for index, (key, text) in enumerate(texts.items()):
        request = SpeechRequest(text, SamplingParams.from_mapping({**params, "seed": seed + index}))
        engine.submit(request, listener(key))
        while engine.pool.claimed >= engine.config.capacity:
            engine.step()
    while engine.step():
        pass
    count = lengths.sum()
    mean = float((lengths * (1 + np.arange(len(lengths)))).sum() / count) if count else 1.0
    return {key: np.concatenate(parts) for key, parts in pieces.items()}, mean


def settings(engine: Any, defaults_only: bool) -> list[dict[str, Any]]:
    """The rows to measure: off, every pair at its default, and the sweeps."""
    from tts_engine.speculative import RULES, check_pair

    made: list[dict[str, Any]] = [{"proposer": "none", "rule": "exact", "setting": None, "default": True}]
    for proposer in engine.decode.speculation.proposers:
        for rule in RULES:
            try:
                check_pair(proposer, rule)
            except ValueError:
                continue
            made.append(
                {"proposer": proposer, "rule": rule, "setting": default(engine, proposer, rule), "default": True}
            )
    if defaults_only:
        return made
    for rule, (_, values) in SWEEPS.items():
        for proposer in SWEPT_WITH[rule]:
            if proposer not in engine.decode.speculation.proposers:
                continue
            for value in values or tuple(sorted(engine.voice.groups)):
                if value != default(engine, proposer, rule):
                    made.append({"proposer": proposer, "rule": rule, "setting": value, "default": False})
    return made


def default(engine: Any, proposer: str, rule: str) -> float | None:
    """The setting that a request gets which asks for none."""
    if rule == "group":
        return float(engine.voice.default_theta(proposer))
    value: float | None = engine.voice.defaults.get(SWEEPS[rule][0]) if rule in SWEEPS else None
    return value


def quality(rows: list[Row], waves: Mapping[str, np.ndarray], teacher: Mapping[str, np.ndarray]) -> dict[str, float]:
    seconds = sum(len(wave) for wave in waves.values()) / sum(len(wave) for wave in teacher.values())
    return {
        "wer": round(wer(rows), 2),
        "duration_ratio": round(seconds, 4),
        "mel_distance_db": round(float(np.mean([distance(waves[key], teacher[key]) for key in waves])), 3),
    }


def measured(
    engine: Any, texts: Mapping[str, str], teacher: Mapping[str, np.ndarray], row: Mapping[str, Any], seeds: int
) -> dict[str, Any]:
    """Acceptance length and quality of a row of `settings`, means over so many seeds; `wer_by_seed` one by one."""
    params: dict[str, Any] = {"speculation": row["proposer"], "acceptance": row["rule"]}
    if row["proposer"] != "none":
        params["nodes"] = NODES[row["proposer"]]
    if row["setting"] is not None:
        params[SWEEPS[row["rule"]][0]] = row["setting"]
    every = []
    for number in range(seeds):
        waves, length = spoken(engine, texts, params, SEED + number * NEXT_SEED)
        rows = score(waves, f"{row['proposer']} {row['rule']}")
        every.append({"acceptance_length": length} | quality(rows, waves, teacher))
    means = {name: round(float(np.mean([one[name] for one in every])), 4) for name in every[0]}
    return means | {"wer_by_seed": [one["wer"] for one in every]}


def swapped(codec: Path, voice: Any, teacher: Mapping[str, np.ndarray]) -> list[dict[str, Any]]:
    """The teacher's codes, each exchanged for a random member of one of its groups, through the decoder (PCG, 4.4)."""
    import torch

    from training.models.codec import Codec
    from tts_engine.speculative import Groups

    model, random, made = Codec.from_pretrained(codec), np.random.default_rng(0), []
    for theta, path in sorted(voice.groups.items()):
        groups = Groups.load(path)
        waves = {}
        for key, wave in tqdm(teacher.items(), desc=f"swaps, θ = {theta:g}", leave=False):
            codes = model.encode(torch.from_numpy(wave.copy())[None])
            labels = groups.label(1 + codes[0].numpy(), random.random(codes.shape[1]))
            sizes = np.diff(groups.starts)[labels]
            picked = groups.members[groups.starts[labels] + (random.random(len(labels)) * sizes).astype(int)]
            waves[key] = model.decode(torch.from_numpy(picked.astype(np.int64) - 1)[None])[0].numpy()[: len(wave)]
        size = float(np.diff(groups.starts).mean())
        row = {"theta": theta, "mean_group_size": round(size, 1)} | quality(score(waves, "swapped"), waves, teacher)
        print(f"swapped within groups of θ = {theta:g} (mean size {size:.1f}): WER {row['wer']:.2f} %, "
              f"{row['mel_distance_db']:.2f} dB", flush=True)  # fmt: skip
        made.append(row)
    return made


def draw(rows: list[dict[str, Any]], swaps: list[dict[str, Any]], picture: Path) -> None:
    """Error against acceptance length for every sweep, and against θ for the swaps."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    off = next(row for row in rows if row["proposer"] == "none")
    figure, axes = plt.subplots(1, 2, figsize=(11, 4))
    for proposer, rule in ((proposer, rule) for rule, swept in SWEPT_WITH.items() for proposer in swept):
        some = sorted(
            (row for row in rows if (row["proposer"], row["rule"]) == (proposer, rule)),
            key=lambda row: row["acceptance_length"],
        )
        if some:
            axes[0].plot([row["acceptance_length"] for row in some], [row["wer"] for row in some], "o-",
                         label=f"{proposer} x {rule}")  # fmt: skip
            for row in some:
                axes[0].annotate(row["setting"], (row["acceptance_length"], row["wer"]), fontsize=7)
    axes[0].axhline(off["wer"], color="grey", linestyle="--", label="no speculation")
    axes[0].set(xlabel="acceptance length", ylabel="word error rate %")
    axes[1].plot([row["theta"] for row in swaps], [row["wer"] for row in swaps], "o-", label="codes swapped in groups")
    axes[1].set(xlabel="θ", ylabel="word error rate %")
    for axis in axes:
        axis.legend(fontsize=8)
        axis.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(picture, dpi=90)
    plt.close(figure)


def main() -> None:
    from tts_engine.config import EngineConfig
    from tts_engine.engine import Engine
    from tts_engine.voice import Voice

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--voice", type=Path, default=Path("model_repository/tts/1"), help="served voice directory")
    parser.add_argument("--codec", type=Path, default=Path("checkpoints/rms/codec"))
    parser.add_argument("--sentences", type=int, help="how many, evenly spread (default: all 100)")
    parser.add_argument(
        "--seeds", type=int, default=3, help="of rows at default settings (default: 3); sweeps take one"
    )
    parser.add_argument("--defaults", action="store_true", help="every pair at its default setting, no sweeps")
    parser.add_argument("--swaps", action="store_true", help="the swap stress test only; nothing is written")
    parser.add_argument("--out", type=Path, default=Path("results"))
    args = parser.parse_args()
    texts = load_sentences(args.sentences)
    teacher = teacher_waves(texts)
    engine = Engine(Voice.load(args.voice), EngineConfig(capacity=16))
    if args.swaps:
        swapped(args.codec, engine.voice, teacher)
        return
    known = codec_waves(teacher, args.codec)
    base = quality(score(known, "codec"), known, teacher)
    print(f"codec alone: WER {base['wer']:.2f} %, {base['mel_distance_db']:.2f} dB")
    rows = settings(engine, args.defaults)
    args.out.mkdir(parents=True, exist_ok=True)
    path = args.out / "speculation_quality.json"
    result: dict[str, Any] = {"rows": [], "swaps": []}
    same = {"voice": fingerprint(args.voice), "sentences": len(texts), "sample_rate": SAMPLE_RATE}
    if path.exists():  # what is not measured now is kept
        before = json.loads(path.read_text(encoding="utf-8"))
        if {name: before.get(name) for name in same} == same:
            result = before
        else:
            print(f"{path} is of another voice or other sentences; its rows go")
    for old in result["rows"]:  # defaults may have changed since
        old["default"] = old["setting"] == default(engine, old["proposer"], old["rule"])
    result |= {"codec": base, **same}
    print(f"{'proposer':9}{'rule':11}{'setting':>8}{'length':>8}{'WER %':>8}{'duration':>10}{'mel dB':>8}")
    for row in rows:
        row |= measured(engine, texts, teacher, row, args.seeds if row["default"] else 1)
        print(
            f"{row['proposer']:9}{row['rule']:11}{row['setting'] if row['setting'] is not None else '':>8}"
            f"{row['acceptance_length']:8.2f}{row['wer']:8.2f}{row['duration_ratio']:10.3f}{row['mel_distance_db']:8.2f}",
            flush=True,
        )
        result["rows"] = [old for old in result["rows"] if _key(old) != _key(row)] + [row]
        path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    if not args.defaults:
        result["swaps"] = swapped(args.codec, engine.voice, teacher)
        path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    draw(result["rows"], result["swaps"], args.out / "speculation_quality.png")
    print(json.dumps(result))


def _key(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return row["proposer"], row["rule"], row["setting"]


if __name__ == "__main__":
    main()
