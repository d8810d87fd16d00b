"""Speculation against none: proposer x rule x concurrency, in process, on the shipped voice.

    python -m tests.benchmarks.speculation                # minutes; writes results/speculation.json, JSON line last
    python -m tests.benchmarks.speculation --quick        # fewer texts and pairs
    python -m tests.benchmarks.speculation --voice DIR    # another voice directory with drafts
    python -m tests.benchmarks.by_size                    # adds LMs of other sizes, whose rows are kept

Every line is measured in turns with the same texts without speculation, seconds apart. At concurrency 1 a fixed number
of nodes is tried beside the adaptive one ("auto"); the others are adaptive. Word error rates come from
`python -m training.speculation`, where it has been run.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from training.score import load_sentences
from tts_engine.chunk import AudioChunk, Timings
from tts_engine.config import EngineConfig
from tts_engine.engine import Engine
from tts_engine.request import SamplingParams, SpeechRequest
from tts_engine.speculative import PROPOSERS, RULES, check_pair
from tts_engine.voice import Voice

LEVELS = (1, 4, 16, 32)
NODES: dict[str, tuple[int, ...]] = {"none": (), "medusa": (4, 8, 64), "draft": (2, 4), "mtp": (2,)}
SETTINGS: dict[str, dict[str, float]] = {
    "exact": {},
    "tolerance": {"tolerance": 3},
    "bias": {"bias": 0.02},
    "top_k": {"verify_top_k": 8},
    "group": {},
}
BARS = (("exact", None, 1.3), ("tolerance", "medusa", 2.0), ("group", None, 1.6), ("top_k", "mtp", 1.6))
ADAPTIVE_BAR, LENGTH_BAR = 0.98, 3.5


@dataclass
class Run:
    """Texts spoken to their end: tokens, seconds in all and in decode, and what speculation did."""

    tokens: int = 0
    seconds: float = 0.0
    decode_seconds: float = 0.0
    parts: dict[str, float] = field(default_factory=lambda: dict.fromkeys(("draft", "verify", "accept"), 0.0))
    lengths: np.ndarray = field(default_factory=lambda: np.zeros(40, dtype=np.int64))

    def add(self, other: Run) -> None:
        self.tokens += other.tokens
        self.seconds += other.seconds
        self.decode_seconds += other.decode_seconds
        self.lengths = self.lengths + other.lengths
        for name, value in other.parts.items():
            self.parts[name] += value

    @property
    def acceptance_length(self) -> float:
        """Tokens a verification brought, on average."""
        count = int(self.lengths.sum())
        return float((self.lengths * (1 + np.arange(len(self.lengths)))).sum() / count) if count else 1.0

    @property
    def by_position(self) -> list[float]:
        """Share of verifications that accepted at least 1, 2, … draft tokens."""
        reached = self.lengths[::-1].cumsum()[::-1]
        return [round(float(share), 3) for share in reached[1:][reached[1:] > 0] / max(1, reached[0])]


def speak(engine: Engine, texts: list[str], concurrency: int, params: dict[str, Any], seed: int = 0) -> Run:
    """A closed loop without threads: `concurrency` texts in flight until none are left, text i with seed + i."""
    waiting: Iterator[tuple[int, str]] = iter(enumerate(texts, seed))
    ended: list[Timings] = []
    live = 0

    def submit() -> bool:
        nonlocal live
        seed, text = next(waiting, (-1, ""))
        if seed < 0:
            return False

        def on_chunk(chunk: AudioChunk) -> None:
            nonlocal live
            if chunk.final:
                if chunk.error or chunk.timings is None:
                    raise RuntimeError(chunk.error)
                ended.append(chunk.timings)
                live -= 1

        engine.submit(SpeechRequest(text, SamplingParams.from_mapping({**params, "seed": seed})), on_chunk)
        live += 1
        return True

    run, clock, decode = Run(), engine.decode.speculation.seconds, engine.decode.run
    before = vars(clock).copy()

    def timed(items: list) -> None:
        began = time.perf_counter()
        decode(items)
        run.decode_seconds += time.perf_counter() - began

    engine.decode.run = timed  # type: ignore[method-assign]
    began = time.perf_counter()
    try:
        while live < concurrency and submit():
            pass
        while live:
            engine.step()
            while live < concurrency and submit():
                pass
    finally:
        engine.decode.run = decode  # type: ignore[method-assign]
    run.seconds = time.perf_counter() - began
    run.parts = {name: value - before[name] for name, value in vars(clock).items()}
    for timings in ended:
        run.tokens += timings.frames
        run.lengths[: len(timings.acceptance_lengths)] += np.array(timings.acceptance_lengths, dtype=np.int64)
    return run


def measure(engine: Engine, texts: list[str], concurrency: int, params: dict[str, Any], rounds: int) -> dict[str, Any]:
    """A row: with and without speculation in turns, text by text where only one is spoken at a time."""
    off, on = Run(), Run()
    plain = {"speculation": "none"} | {name: params[name] for name in ("max_seconds",) if name in params}
    turns = [texts] if concurrency > 1 else [[text] for text in texts]
    for _ in range(rounds):
        for seed, some in enumerate(turns):
            off.add(speak(engine, some, concurrency, plain, seed))
            on.add(speak(engine, some, concurrency, params, seed))
    decode = max(on.decode_seconds, 1e-9)
    return {
        "proposer": params["speculation"],
        "rule": params["acceptance"],
        "setting": next(iter(SETTINGS[params["acceptance"]].values()), None),
        "nodes": params.get("nodes", "auto"),
        "concurrency": concurrency,
        "tokens_per_s": round(on.tokens / on.seconds, 1),
        "speedup": round(on.tokens / on.seconds / (off.tokens / off.seconds), 3),
        "decode_speedup": round(on.tokens / on.decode_seconds / (off.tokens / off.decode_seconds), 3),
        "acceptance_length": round(on.acceptance_length, 3),
        "accepted_by_position": on.by_position,
        **{f"{name}_share": round(value / decode, 3) for name, value in on.parts.items()},
    }


def pairs(engine: Engine, quick: bool) -> list[tuple[str, str]]:
    """The voice's proposers x the rules that fit."""
    made = [("none", "exact")]  # against itself: the noise of all the other lines
    for proposer in engine.decode.speculation.proposers:
        for rule in RULES:
            try:
                check_pair(proposer, rule)
            except ValueError:
                continue
            made.append((proposer, rule))
    return [pair for pair in made if pair[1] in ("exact", "top_k")] if quick else made


def print_row(row: dict[str, Any]) -> None:
    shares = "".join(f"{100 * row[f'{name}_share']:8.0f}" for name in ("draft", "verify", "accept"))
    print(
        f"{row['proposer']:8}{row['rule']:11}{row['setting'] if row['setting'] is not None else '':>6}"
        f"{row['nodes']:>6}{row['concurrency']:>6}{row['tokens_per_s']:>10.0f}{row['speedup']:>9.2f}"
        f"{row['decode_speedup']:>9.2f}{row['acceptance_length']:>9.2f}{shares}"
        f"{row['wer'] if row.get('wer') is not None else '':>8}",
        flush=True,
    )


def print_bar(name: str, value: float, bound: float) -> None:
    print(f"{name:40}{value:8.2f}   bar ≥ {bound:<5} {'ok' if value >= bound else 'MISSED'}")


def drafting(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows of one text alone in which anything was drafted; where depth adapts, often nothing is."""
    return [row for row in rows if row["concurrency"] == 1 and row["acceptance_length"] > 1]


def best_of(rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """By rule, the fastest row of one text alone in which anything was drafted; `parameters` in it: of a larger LM."""
    return {row["rule"]: row for row in sorted(drafting(rows), key=lambda row: row["speedup"])}


def print_bars(rows: list[dict[str, Any]]) -> None:
    """The issue's bars against the best of the rows."""
    alone = drafting(rows)
    for rule, proposer, bound in BARS:
        some = [row["speedup"] for row in alone if row["rule"] == rule and proposer in (None, row["proposer"])]
        if some:
            print_bar(f"{proposer or 'any proposer'} x {rule}, alone", max(some), bound)
    trees = [row["acceptance_length"] for row in alone if (row["proposer"], row["rule"]) == ("medusa", "tolerance")]
    if trees:
        print_bar("acceptance length, tree with τ = 3", max(trees), LENGTH_BAR)
    for level in LEVELS:
        some = [
            row["speedup"]
            for row in rows
            if row["concurrency"] == level and row["proposer"] != "none" and row["nodes"] == "auto"
        ]
        if some:
            (noise,) = (row["speedup"] for row in rows if row["concurrency"] == level and row["proposer"] == "none")
            print_bar(f"adaptive depth at {level}, median of pairs", float(np.median(some)), ADAPTIVE_BAR)
            print(f"    {min(some):.2f} to {max(some):.2f}; no speculation against itself {noise:.2f}")


def word_error_rates(out: Path) -> dict[tuple[str, str], float]:
    """By proposer and rule at its default setting, from an earlier `python -m training.speculation`."""
    path = out / "speculation_quality.json"
    if not path.exists():
        return {}
    return {
        (row["proposer"], row["rule"]): row["wer"] for row in json.loads(path.read_text())["rows"] if row["default"]
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer texts, exact and top_k only")
    parser.add_argument("--voice", type=Path, default=Path("model_repository/tts/1"), help="served voice directory")
    parser.add_argument("--rounds", type=int, default=2, help="turns with and without speculation a row")
    parser.add_argument("--out", type=Path, default=Path("results"))
    parser.add_argument("--levels", type=int, nargs="+", default=LEVELS, help="texts at once; rows of others stay")
    parser.add_argument("--seconds", type=float, help="longest audio of a text (default: as long as it is)")
    parser.add_argument("--provider", choices=("cpu", "cuda"), default="cpu", help="where graphs run")
    args = parser.parse_args()
    engine = Engine(Voice.load(args.voice), EngineConfig(capacity=max(args.levels), provider=args.provider))
    chosen = pairs(engine, args.quick)
    if len(chosen) == 1:
        parser.error(f"the voice in {args.voice} has no drafts ({', '.join(PROPOSERS)}); train and export some")
    texts = list(load_sentences(8 if args.quick else 16).values())
    wer = word_error_rates(args.out)
    limit = {"max_seconds": args.seconds} if args.seconds else {}
    speak(engine, texts[:4], 4, {"speculation": "none", **limit})
    print("proposer rule      setting nodes conc. tokens/s  speedup   decode   length  draft% verify% accept%   WER %")
    rows = []
    jobs = [
        (level, proposer, rule, nodes)
        for level in args.levels
        for proposer, rule in chosen
        for nodes in ((0, *NODES[proposer]) if level == 1 else (0,))
    ]
    for level, proposer, rule, nodes in tqdm(jobs, desc="speculation", leave=False):
        params: dict[str, Any] = {"speculation": proposer, "acceptance": rule, **SETTINGS[rule]} | (
            limit | ({"nodes": nodes} if nodes else {})
        )
        rounds = 1 if nodes else args.rounds
        row = measure(engine, texts * max(1, 3 * level // len(texts)), level, params, rounds)
        row["wer"] = wer.get((proposer, rule))
        rows.append(row)
        print_row(row)
    print_bars(rows)
    path = args.out / "speculation.json"
    if path.exists():  # LMs of other sizes, and what was not measured now
        known = json.loads(path.read_text(encoding="utf-8"))["rows"]
        rows += [row for row in known if "parameters" in row or row["concurrency"] not in args.levels]
    result = {"cores": os.cpu_count(), "quick": args.quick, "rows": rows, "best": best_of(rows)}
    args.out.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
