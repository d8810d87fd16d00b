"""Gates that fail the export: each graph against its torch module, and against itself in pieces and in company."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import onnxruntime
import torch
from numpy.typing import NDArray

from export.gate import Gate, milliseconds
from export.runtime import LMRunner, blocks, greedy
from training.models.bert import ProsodyBert
from training.models.codec import CodecDecoder
from training.models.llama import SpeechLM

LOGIT_BAR = 1e-3
PCM_BAR = 5e-3  # of full scale 1: the pitch's phase adds up rounding over the whole stream, which clicks show most
ERROR_DB_BAR = -50.0  # energy of the error below the signal's, which a wrong state or window never reaches
MIN_FRAMES = 2  # the engine's narrowest run of the vocoder: one frame alone takes other arithmetic
SPECTRAL_DB_BAR = 2.0  # of a served form against fp32; the voice's int8 blocks are about 1 dB off
GREEDY_TOKENS = 200
SPEED_BATCHES = (1, 8, 16)
SPEED_CONTEXT = 256
FRAME_MS = 20.0
Prompts = Sequence[NDArray[np.int64]]


@torch.no_grad()
def torch_greedy(model: SpeechLM, prompt: NDArray[np.int64], steps: int) -> NDArray[np.int64]:
    """Most probable codes int64 [steps], the whole sequence recomputed for every one; prompt int64 [L, C]."""
    offset = model.config.logit_offset
    tokens = torch.from_numpy(prompt)[None]
    codes = []
    for _ in range(steps):
        hidden = model.hidden(tokens)[0][0, -1]
        codes.append(int((model.lm_head.weight[offset + 1 :] @ hidden).argmax()))
        following = torch.zeros(1, 1, tokens.shape[2], dtype=torch.long)
        following[..., 0] = offset + 1 + codes[-1]
        tokens = torch.cat([tokens, following], 1)
    return np.array(codes)


def spoken(prompt: NDArray[np.int64], codes: NDArray[np.int64], logit_offset: int) -> NDArray[np.int64]:
    """Prompt [L, C] with its codes [n] behind it, as the model reads them: int64 [1, L + n, C]."""
    audio = np.zeros((len(codes), prompt.shape[1]), np.int64)
    audio[:, 0] = codes + logit_offset + 1
    return np.concatenate([prompt, audio])[None]


def lm_gates(
    session: onnxruntime.InferenceSession, model: SpeechLM, prompt: NDArray[np.int64], steps: int = GREEDY_TOKENS
) -> tuple[list[Gate], NDArray[np.int64]]:
    """The fp32 graph against torch on one prompt int64 [L, C]; also torch's greedy codes int64 [steps]."""
    offset = model.config.logit_offset
    codes = torch_greedy(model, prompt, steps)
    tokens = spoken(prompt, codes, offset)
    with torch.no_grad():
        hidden = model.hidden(torch.from_numpy(tokens))[0]
        logits = (hidden @ model.lm_head.weight[offset:].T).numpy()
    positions = blocks(tokens.shape[1])
    whole, states = LMRunner(session, 1, positions).forward(tokens)
    cached = greedy(LMRunner(session, 1, positions), prompt[None], steps, offset)[0]
    half = tokens.shape[1] // 2
    apart = [LMRunner(session, 1, positions, in_place=in_place) for in_place in (True, False)]
    runs = [[runner.forward(part)[0] for part in (tokens[:, :half], tokens[:, half:])] for runner in apart]
    difference = max(float(np.abs(a - b).max()) for a, b in zip(*runs, strict=True))
    difference = max(difference, float(np.abs(apart[0].cache - apart[1].cache).max()))
    return [
        Gate("lm fp32", "max |Δ logit|, teacher forced", float(np.abs(whole - logits).max()), LOGIT_BAR),
        Gate("lm fp32", "max |Δ hidden|, teacher forced", float(np.abs(states - hidden.numpy()).max()), LOGIT_BAR),
        Gate("lm fp32", f"greedy tokens of {steps} that differ", float((cached != codes).sum()), 0),
        Gate("lm fp32", "max |Δ| in-place - separate cache", difference, 0),
    ], codes


def variant_gates(
    name: str,
    session: onnxruntime.InferenceSession,
    exact: onnxruntime.InferenceSession,
    prompts: Prompts,
    codes: NDArray[np.int64],
    logit_offset: int,
) -> list[Gate]:
    """A served form of the LM against the fp32 graph `exact`, on its own, and its speed."""
    tokens = spoken(prompts[0], codes, logit_offset)
    positions = blocks(tokens.shape[1])
    wanted, _ = LMRunner(exact, 1, positions).forward(tokens)
    logits, _ = LMRunner(session, 1, positions).forward(tokens)
    start = len(prompts[0]) - 1
    same = logits[0, start:].argmax(-1) == wanted[0, start:].argmax(-1)
    graph = f"lm {name}"
    gates = [
        Gate(graph, "rms Δ logit", float(np.sqrt(np.mean((logits - wanted) ** 2)))),
        Gate(graph, "greedy agreement, share of tokens", float(same.mean())),
        Gate(graph, "max |Δ| alone - in company", company_difference(session, prompts, codes, logit_offset), 0),
    ]
    for batch in SPEED_BATCHES:
        ms = decode_milliseconds(session, batch, tokens)
        gates.append(Gate(graph, f"decode, n = 1, B = {batch}", batch, ms=ms, rtf=ms / FRAME_MS / batch))
    return gates


def company_difference(
    session: onnxruntime.InferenceSession,
    prompts: Prompts,
    codes: NDArray[np.int64],
    logit_offset: int,
    steps: int = 8,
) -> float:
    """Largest difference of any row's logits between alone and in one ragged batch with a longer cache; 0 is bitwise.

    Prompts (int64 [L_i, C] of different lengths) are prefilled together, right padded, then decoded `steps` times.
    """
    lengths = np.array([len(prompt) for prompt in prompts])
    together = np.zeros((len(prompts), lengths.max(), prompts[0].shape[1]), np.int64)
    for row, prompt in enumerate(prompts):
        together[row, : len(prompt)] = prompt
    audio = spoken(prompts[0][:0], codes[:steps], logit_offset)
    positions = blocks(int(lengths.max()) + steps)
    batch = LMRunner(session, len(prompts), positions + 64)
    prefilled, _ = batch.forward(together, lengths)
    decoded = [batch.forward(np.repeat(audio[:, i : i + 1], len(prompts), 0))[0] for i in range(audio.shape[1])]
    worst = 0.0
    for row, prompt in enumerate(prompts):
        alone = LMRunner(session, 1, blocks(len(prompt) + steps))
        own, _ = alone.forward(prompt[None])
        worst = max(worst, float(np.abs(own[0] - prefilled[row, : len(prompt)]).max()))
        for step, company in enumerate(decoded):
            own, _ = alone.forward(audio[:, step : step + 1])
            worst = max(worst, float(np.abs(own[0] - company[row]).max()))
    return worst


def decode_milliseconds(session: onnxruntime.InferenceSession, batch: int, tokens: NDArray[np.int64]) -> float:
    """Time of one decoding step of `batch` rows with 255 positions of context."""
    runner = LMRunner(session, batch, SPEED_CONTEXT)
    token = np.repeat(tokens[:, -1:], batch, 0)

    def step() -> None:
        runner.lengths[:] = SPEED_CONTEXT - 1
        runner.forward(token)

    return milliseconds(step)


def vocoder_gates(session: onnxruntime.InferenceSession, decoder: CodecDecoder, codes: NDArray[np.int64]) -> list[Gate]:
    """The fp32 graph against torch, then on its own; codes int64 [n]."""
    with torch.no_grad():
        lengths = torch.tensor([len(codes)])
        wanted = decoder(torch.from_numpy(codes[None]), lengths, decoder.initial_state(1))[0].numpy()
    run = _vocoder(session, decoder)
    whole = run(codes[None], [len(codes)], {})["pcm"]
    ms = milliseconds(lambda: run(codes[None], [len(codes)], {}))
    audio_ms = len(codes) * FRAME_MS
    return [
        Gate("vocoder fp32", "max |Δ pcm|", float(np.abs(whole - wanted).max()), PCM_BAR, ms, ms / audio_ms),
        Gate("vocoder fp32", "error, dB below signal", _decibels(whole - wanted, wanted), ERROR_DB_BAR),
        *_stream_gates("vocoder fp32", run, codes, decoder.config.frame_samples),
    ]


def vocoder_variant_gates(
    name: str,
    session: onnxruntime.InferenceSession,
    exact: onnxruntime.InferenceSession,
    decoder: CodecDecoder,
    codes: NDArray[np.int64],
) -> list[Gate]:
    """A served form of the vocoder against the fp32 graph `exact`, and on its own.

    Spectra are compared, not waves: a pitch that differs in the fourth digit moves the pulses, which nobody hears.
    """
    run = _vocoder(session, decoder)
    whole = run(codes[None], [len(codes)], {})["pcm"][0]
    wanted = _vocoder(exact, decoder)(codes[None], [len(codes)], {})["pcm"][0]
    ms = milliseconds(lambda: run(codes[None], [len(codes)], {}))
    distance = _spectral_distance(whole, wanted)
    graph = f"vocoder {name}"
    return [
        Gate(graph, "log spectral distance, dB", distance, SPECTRAL_DB_BAR, ms, ms / (len(codes) * FRAME_MS)),
        *_stream_gates(graph, run, codes, decoder.config.frame_samples),
    ]


Arrays = dict[str, NDArray[np.float32]]
VocoderRun = Callable[[NDArray[np.int64], Sequence[int], Arrays], Arrays]


def _vocoder(session: onnxruntime.InferenceSession, decoder: CodecDecoder) -> VocoderRun:
    """A run on codes int64 [B, n], lengths and state (empty: fresh) -> outputs by name."""
    names = [value.name for value in session.get_outputs()]

    def run(rows: NDArray[np.int64], lengths: Sequence[int], state: Arrays) -> Arrays:
        if not state:
            state = {f"state.{name}": value.numpy() for name, value in decoder.initial_state(len(rows)).items()}
        feeds = {"codes": rows, "lengths": np.array(lengths, np.int64), **state}
        return dict(zip(names, session.run(None, feeds), strict=True))

    return run


def _stream_gates(graph: str, run: VocoderRun, codes: NDArray[np.int64], frame: int) -> list[Gate]:
    """Chunks against one-shot, ragged rows against rows alone, and the time of a first chunk."""
    row = codes[None]
    whole = run(row, [len(codes)], {})["pcm"]
    state: Arrays = {}
    pieces, start = [], 0
    for size in _schedule(len(codes)):
        out = run(row[:, start : start + size], [size], state)
        state = {name.removeprefix("next_"): value for name, value in out.items() if name != "pcm"}
        pieces.append(out["pcm"])
        start += size
    joined = np.concatenate(pieces, 1)
    ragged = sorted({1, len(codes) // 3, len(codes)})
    batch = run(np.repeat(row, len(ragged), 0), ragged, {})
    company = 0.0
    for index, length in enumerate(ragged):
        alone = run(row[:, : max(length, MIN_FRAMES)], [length], {})
        heard = slice(length * frame)
        company = max(company, float(np.abs(batch["pcm"][index, heard] - alone["pcm"][0, heard]).max()))
    first = min(8, len(codes))
    ms = milliseconds(lambda: run(row[:, :first], [first], {}))
    return [
        Gate(graph, "max |Δ pcm| chunks - one-shot", float(np.abs(joined - whole).max()), PCM_BAR),
        Gate(graph, "chunks - one-shot, dB below signal", _decibels(joined - whole, whole), ERROR_DB_BAR),
        Gate(graph, "max |Δ pcm| alone - in company", company, 0),
        Gate(graph, "first chunk, frames", first, None, ms, ms / (first * FRAME_MS)),
    ]


def _spectral_distance(a: NDArray[np.float32], b: NDArray[np.float32]) -> float:
    """Mean |Δ| of two waves' log magnitudes in dB, 32 ms windows, 60 dB of range."""

    def spectrum(wave: NDArray[np.float32]) -> NDArray[np.float64]:
        frames = np.lib.stride_tricks.sliding_window_view(wave, 512)[::160] * np.hanning(512)
        magnitude = np.abs(np.fft.rfft(frames))
        return np.asarray(20 * np.log10(magnitude + 1e-3 * magnitude.max()))

    return float(np.abs(spectrum(a) - spectrum(b)).mean())


def _decibels(error: NDArray[np.float32], signal: NDArray[np.float32]) -> float:
    """Energy of the error relative to the signal's."""
    floor = 1e-20  # a bitwise equal result is -200 dB below full scale, not minus infinity
    energies = [float(np.mean(np.square(x, dtype=np.float64))) + floor for x in (error, signal)]
    return 10 * math.log10(energies[0] / energies[1])


def _schedule(total: int) -> list[int]:
    """Chunk sizes 1, 2, 3, 5, 8, … that add up to `total`."""
    sizes, a, b = [], 1, 2
    while total:
        sizes.append(min(a, total))
        total -= sizes[-1]
        a, b = b, a + b
    return sizes


def frontend_gates(
    session: onnxruntime.InferenceSession, bert: ProsodyBert, input_ids: NDArray[np.int64]
) -> list[Gate]:
    """Against torch on a ragged batch made of input_ids int64 [L] and its first half."""
    rows = np.repeat(input_ids[None], 2, 0)
    mask = np.ones_like(rows)
    mask[1, (len(input_ids) + 1) // 2 :] = 0
    with torch.no_grad():
        wanted = bert(torch.from_numpy(rows), torch.from_numpy(mask)).numpy()
    logits = session.run(None, {"input_ids": rows, "attention_mask": mask})[0]
    difference = float(np.abs(logits - wanted)[mask == 1].max())
    alone = {"input_ids": rows[:1], "attention_mask": mask[:1]}
    ms = milliseconds(lambda: session.run(None, alone))
    return [Gate("frontend", f"max |Δ logit|, {len(input_ids)} wordpieces", difference, LOGIT_BAR, ms)]


def frontend_variant_gates(
    name: str,
    session: onnxruntime.InferenceSession,
    exact: onnxruntime.InferenceSession,
    input_ids: NDArray[np.int64],
) -> list[Gate]:
    """A served form of the frontend against the fp32 graph `exact`, on input_ids int64 [L], and on its own."""
    feeds = {"input_ids": input_ids[None], "attention_mask": np.ones_like(input_ids[None])}
    logits, wanted = (one.run(None, feeds)[0] for one in (session, exact))
    crowd = {key: np.repeat(value, 3, 0) for key, value in feeds.items()}
    company = float(np.abs(session.run(None, crowd)[0] - logits).max())
    ms = milliseconds(lambda: session.run(None, feeds))
    graph = f"frontend {name}"
    return [
        Gate(graph, "rms Δ logit", float(np.sqrt(np.mean((logits - wanted) ** 2))), ms=ms),
        Gate(graph, "labels that change", float((logits.argmax(-1) != wanted.argmax(-1)).sum()), 0),
        Gate(graph, "max |Δ| alone - in company", company, LOGIT_BAR),
    ]
