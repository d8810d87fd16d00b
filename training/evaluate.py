"""Word error rate of the teacher, of the codec's re-synthesis and of full text-to-speech, side by side.

    python -m training.evaluate                                  # all three, 100 Harvard sentences, writes results/
    python -m training.evaluate --systems codec --codec DIR      # one of them, prints only
    python -m training.evaluate --wav-dir DIR                    # DIR/1.1.wav … DIR/10.10.wav, prints only
    python -m training.evaluate --variants                       # every form of each graph: WER and speed

All waves have the corpus's edges (40 ms before the first word, 100 ms behind the last), so that the recogniser hears
the same amount of silence from everyone. `score(waves_by_id)` is the function behind it.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from threading import Semaphore

import numpy as np
from tqdm import tqdm

from training.recogniser import SAMPLE_RATE
from training.score import Row, faults, load_sentences, score, wer

__all__ = ["codec_waves", "score", "speech_waves", "teacher_waves"]

SYSTEMS = ("teacher", "codec", "tts")
BARS = {"codec": 4.0, "tts": 8.0}  # points above the teacher
SEED = 1
CONCURRENT = 16  # what an item sounds like does not depend on its company; speed does
SAMPLING = ("temperature", "top_k", "top_p")


def teacher_waves(texts: Mapping[str, str]) -> dict[str, np.ndarray]:
    """The teacher's waves float32 [samples] with the corpus's edges. TeacherError when flite is not installed."""
    from training.corpus import LEAD_SILENCE, TAIL_SILENCE
    from training.teacher import speak

    waves = {}
    for key, text in tqdm(texts.items(), desc="teacher speaks", unit="sentence", leave=False):
        spoken = speak(text)
        start = max(0.0, spoken.words[0].start - LEAD_SILENCE)
        end = spoken.words[-1].end + TAIL_SILENCE
        waves[key] = spoken.wave[round(start * SAMPLE_RATE) : round(end * SAMPLE_RATE)]
    return waves


def codec_waves(waves: Mapping[str, np.ndarray], checkpoint: Path) -> dict[str, np.ndarray]:
    """Each wave through the codec of `checkpoint`, encoder and back, at its own length."""
    import torch

    from training.models.codec import Codec

    codec = Codec.from_pretrained(checkpoint)
    made = {}
    for key, wave in tqdm(waves.items(), desc="codec re-synthesises", unit="sentence", leave=False):
        pcm = codec.decode(codec.encode(torch.from_numpy(wave.copy())[None]))[0]
        made[key] = pcm[: len(wave)].numpy()
    return made


def speech_waves(
    texts: Mapping[str, str], voice_directory: Path, sampling: Mapping[str, float], variant: str | None = None
) -> tuple[dict[str, np.ndarray], dict[str, str], float]:
    """The texts through the in-process engine, `CONCURRENT` at a time, sentence i with seed `SEED + i`.

    `variant` names a graph in the voice's `variants/`, as "lm_fp32" (None: those served). Returns waves and finish
    reasons by id, and seconds of audio made a second.
    """
    from tts_engine.chunk import AudioChunk
    from tts_engine.config import EngineConfig
    from tts_engine.engine import Engine
    from tts_engine.request import SamplingParams, SpeechRequest
    from tts_engine.voice import Voice

    voice = Voice.load(voice_directory)
    if variant is not None:
        graph = variant_file(voice_directory, variant)
        voice = replace(voice, files={**voice.files, variant.split("_")[0]: graph})
    pieces: dict[str, list[np.ndarray]] = {key: [] for key in texts}
    reasons: dict[str, str] = {}
    room = Semaphore(CONCURRENT)
    with tqdm(total=len(texts), desc=f"engine speaks ({variant or 'served'})", unit="sentence", leave=False) as bar:

        def listener(key: str):  # type: ignore[no-untyped-def]
            def on_chunk(chunk: AudioChunk) -> None:
                pieces[key].append(chunk.pcm)
                if chunk.final:
                    reasons[key] = chunk.finish_reason or "error"
                    bar.update()
                    room.release()

            return on_chunk

        engine = Engine(voice, EngineConfig(capacity=CONCURRENT))
        engine.start()
        try:
            started = time.perf_counter()
            for index, (key, text) in enumerate(texts.items()):
                params = SamplingParams.from_mapping({**sampling, "seed": SEED + index})
                room.acquire()
                engine.submit(SpeechRequest(text, params), listener(key))
            for _ in range(CONCURRENT):
                room.acquire()
            seconds = time.perf_counter() - started
        finally:
            engine.stop()
    waves = {key: np.concatenate(parts) for key, parts in pieces.items()}
    return waves, reasons, sum(map(len, waves.values())) / SAMPLE_RATE / seconds


def variant_file(voice_directory: Path, name: str) -> Path:
    """The graph of variant `name`; SystemExit lists the ones there are."""
    known = variants(voice_directory)
    if name not in known:
        raise SystemExit(f"no variant {name!r} under {voice_directory / 'variants'}; there are: {', '.join(known)}")
    return known[name]


def variants(voice_directory: Path) -> dict[str, Path]:
    """What the export left beside the voice: {"lm_fp32": graph, …}."""
    return {path.stem: path for path in sorted((voice_directory / "variants").glob("*.onnx"))}


def judged(rows: list[Row], teacher: list[Row]) -> list[Row]:
    """The rows with their faults filled in."""
    by_id = {row.id: row for row in teacher}
    return [replace(row, faults=faults(row, by_id[row.id])) for row in rows]


def run(args: argparse.Namespace) -> None:
    from training.report import print_rows, print_summary, print_variants, write_results

    texts = load_sentences(args.sentences)
    sampling = {name: getattr(args, name) for name in SAMPLING if getattr(args, name) is not None}
    if args.wav_dir:
        rows = score(wav_directory(args.wav_dir), args.wav_dir.name)
        print_rows(rows)
        print(f"{args.wav_dir}: word error rate {wer(rows):.2f} % on {len(rows)} sentences")
        return
    if args.variants:
        heard = []
        names: list[str | None] = [None, *variants(args.voice)]  # None: the served graphs
        for variant in names:
            name = variant or "served"
            waves, reasons, speed = speech_waves(texts, args.voice, sampling, variant)
            heard.append((name, wer(score(waves, name, finish_reasons=reasons)), speed))
        print_variants(heard)
        return
    source = teacher_waves(texts)
    systems = {"teacher": score(source, "teacher")}
    systems["teacher"] = judged(systems["teacher"], systems["teacher"])
    if "codec" in args.systems:
        systems["codec"] = judged(score(codec_waves(source, args.codec), "codec"), systems["teacher"])
    if "tts" in args.systems:
        waves, reasons, speed = speech_waves(texts, args.voice, sampling, args.variant)
        systems["tts"] = judged(score(waves, "tts", finish_reasons=reasons), systems["teacher"])
        print(f"engine: {speed:.1f} s of audio a second, {CONCURRENT} sentences at a time")
        if args.save_wavs:
            save_waves(args.save_wavs, waves)
    print_summary(systems, BARS)
    if set(systems) == set(SYSTEMS) and args.sentences is None:
        write_results(args.out, systems, BARS, {"sampling": sampling, "seed": SEED})


def wav_directory(directory: Path) -> dict[str, np.ndarray]:
    """`list.sentence.wav` files as float32 mono; SystemExit when there are none or one is not at 16 kHz."""
    import soundfile

    waves = {}
    for path in sorted(directory.glob("*.wav")):
        wave, rate = soundfile.read(path, dtype="float32", always_2d=True)
        if rate != SAMPLE_RATE:
            raise SystemExit(f"{path} is at {rate} Hz; convert it to {SAMPLE_RATE} Hz")
        waves[path.stem] = wave.mean(axis=1)
    if not waves:
        raise SystemExit(f"no .wav files in {directory}; name them 1.1.wav … 10.10.wav")
    return waves


def save_waves(directory: Path, waves: Mapping[str, np.ndarray]) -> None:
    """Write each wave as `ID.wav`, 16 bit."""
    import soundfile

    directory.mkdir(parents=True, exist_ok=True)
    for key, wave in waves.items():
        soundfile.write(directory / f"{key}.wav", np.clip(wave, -1, 1), SAMPLE_RATE)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=list(SYSTEMS))
    parser.add_argument("--sentences", type=int, help="how many, evenly spread (default: all; fewer write no files)")
    parser.add_argument("--voice", type=Path, default=Path("model_repository/tts/1"), help="served voice directory")
    parser.add_argument("--codec", type=Path, default=Path("checkpoints/rms/codec"), help="codec checkpoint")
    parser.add_argument("--variant", help="a graph of the voice's variants/ instead of the served one, e.g. lm_nbits4")
    parser.add_argument("--variants", action="store_true", help="compare all variants and stop")
    parser.add_argument("--wav-dir", type=Path, help="score the .wav files of this folder and stop")
    parser.add_argument("--save-wavs", type=Path, help="keep the engine's waves in this folder")
    parser.add_argument("--out", type=Path, default=Path("results"))
    parser.add_argument("--temperature", type=float)
    parser.add_argument("--top-k", type=int)
    parser.add_argument("--top-p", type=float)
    run(parser.parse_args())


if __name__ == "__main__":
    main()
