"""The demo voice's codec: encoder → one FSQ quantiser → causal decoder with an iSTFT head.

The decoder follows Vocos (backbone, then an inverse-STFT head) but shapes an excitation, as its
source-filter teacher does: at every 10 ms frame it predicts a pitch, a harmonic filter and a noise
filter; a pulse train and noise pass through them in the STFT domain. It learns in minutes what a
free-phase head needs a GAN for. All state is explicit, so streaming equals one-shot decoding.

Frame j (hop 160) covers output samples [160 j, 160 j + 640): after a token every sample of its 320
is final, no flush is needed. The encoder is not causal and learns the lookahead this asks for.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from training.models import files
from training.models.fsq import FSQ

State = dict[str, Tensor]
HOP, FFT = 160, 640
BINS = FFT // 2 + 1
OVERLAP = FFT - HOP
NOISE_FRAMES = 499
F0_MEAN, F0_MIN, F0_MAX = 100.0, 50.0, 400.0


@dataclass(frozen=True)
class CodecConfig:
    sample_rate: int = 16_000
    frame_samples: int = 2 * HOP
    levels: tuple[int, ...] = (8, 8, 8, 8)
    encoder_dim: int = 256
    encoder_layers: int = 5
    decoder_dim: int = 320
    decoder_layers: int = 6
    fine_dim: int = 256
    fine_layers: int = 2
    kernel: int = 7


class ConvNeXt(nn.Module):
    """Depthwise conv over time, then a pointwise MLP; [B, T, C] in and out."""

    def __init__(self, dim: int, kernel: int, causal: bool, expansion: int = 3) -> None:
        super().__init__()
        self.context = kernel - 1
        self.causal = causal
        self.depthwise = nn.Conv1d(dim, dim, kernel, groups=dim)
        self.norm = nn.LayerNorm(dim)
        self.up = nn.Linear(dim, expansion * dim)
        self.down = nn.Linear(expansion * dim, dim)
        self.scale = nn.Parameter(torch.full((dim,), 0.3))

    def forward(self, x: Tensor, cache: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """`cache` [B, kernel-1, C] precedes x in time; returns (y, cat(cache, x) [B, kernel-1 + T, C])."""
        if cache is not None:
            h = torch.cat([cache, x], 1)
        elif self.causal:
            h = nn.functional.pad(x, (0, 0, self.context, 0))
        else:
            h = nn.functional.pad(x, (0, 0, self.context // 2, self.context - self.context // 2))
        # As a convolution over an image of one row: ONNX Runtime has a fast kernel for that, and none in one dimension.
        kernel = self.depthwise.weight[:, :, None]
        image = h.transpose(1, 2)[:, :, None]
        y = nn.functional.conv2d(image, kernel, self.depthwise.bias, groups=h.shape[2]).squeeze(2)
        y = self.norm(y.transpose(1, 2))
        return x + self.scale * self.down(nn.functional.gelu(self.up(y))), h


def _tail(x: Tensor, start: Tensor, width: int) -> Tensor:
    """Per row b, x[b, start[b] : start[b] + width]; x [B, T] or [B, T, C], start int64 [B]."""
    rows = torch.arange(x.shape[0], device=x.device)[:, None]
    return x[rows, start[:, None] + torch.arange(width, device=x.device)]


def _dft() -> dict[str, Tensor]:
    """Windowed DFT and inverse of 640 samples, by symmetry: an even signal has cosines alone, an odd one sines.

    cosines, inverse_cosines [321, 321] (of samples 0 … 320); sines, inverse_sines [319, 319] (of 1 … 319, whose bins 0
    and 320 are 0). Hann both ways, whose sum of squares is 1.5. Half the products of the whole matrices.
    """
    n, k = np.arange(BINS), np.arange(BINS)
    window = 0.5 - 0.5 * np.cos(2 * np.pi * n / FFT)
    angle = 2 * np.pi * np.outer(n, k) / FFT
    weight = np.where((k == 0) | (k == FFT // 2), 1.0, 2.0)[:, None] / FFT
    cosines, sines = np.cos(angle), -np.sin(angle)
    matrices = {
        "cosines": cosines * window[:, None],
        "sines": (sines * window[:, None])[1:-1, 1:-1],
        "inverse_cosines": cosines.T * weight * window / 1.5,
        "inverse_sines": (sines.T * weight * window / 1.5)[1:-1, 1:-1],
    }
    return {name: torch.from_numpy(matrix).float() for name, matrix in matrices.items()}


class CodecDecoder(nn.Module):
    """codes → pcm; `forward` is the streaming and the exported form."""

    grid: Tensor
    cosines: Tensor
    sines: Tensor
    inverse_cosines: Tensor
    inverse_sines: Tensor
    noise: Tensor
    ramp: Tensor

    def __init__(self, config: CodecConfig) -> None:
        super().__init__()
        self.config = c = config
        self.embed = nn.Linear(len(c.levels), c.decoder_dim)
        self.blocks = nn.ModuleList(ConvNeXt(c.decoder_dim, c.kernel, True) for _ in range(c.decoder_layers))
        self.split = nn.Linear(c.decoder_dim, 2 * c.fine_dim)
        self.fine = nn.ModuleList(ConvNeXt(c.fine_dim, c.kernel, True) for _ in range(c.fine_layers))
        self.norm = nn.LayerNorm(c.fine_dim)
        self.head = nn.Linear(c.fine_dim, 2 * BINS + 1)
        with torch.no_grad():
            self.head.weight *= 0.3
            self.head.bias[:BINS] = -2.0
            self.head.bias[BINS:] = -4.0
            self.head.bias[-1] = 0.0
        self.register_buffer("grid", FSQ(c.levels).grid, persistent=False)
        for name, matrix in _dft().items():
            self.register_buffer(name, matrix, persistent=False)
        # numpy's generator: the same noise on every torch version; unit variance after the window.
        noise = np.random.Generator(np.random.Philox(7)).standard_normal((NOISE_FRAMES, 2 * BINS))
        self.register_buffer("noise", torch.from_numpy(noise * np.sqrt(FFT / 2)).float(), persistent=False)
        self.register_buffer("ramp", torch.arange(1, HOP + 1) / HOP, persistent=False)

    def initial_state(self, batch: int) -> State:
        """Zeros, shapes [batch, …]: a fresh stream."""
        c = self.config
        shapes = {
            "cache": (c.decoder_layers, c.kernel - 1, c.decoder_dim),
            "fine_cache": (c.fine_layers, c.kernel - 1, c.fine_dim),
            "phase": (1,), "f0": (1,), "noise": (1,), "pulses": (OVERLAP,), "overlap": (OVERLAP,),
        }  # fmt: skip
        return {name: torch.zeros(batch, *shape) for name, shape in shapes.items()}

    def features(self, values: Tensor, lengths: Tensor, state: State) -> tuple[Tensor, State]:
        """values [B, n, dims] → head output [B, 2n, 2·321 + 1] and the next caches."""
        x = self.embed(values)
        caches = []
        for i, block in enumerate(self.blocks):
            x, context = block(x, state["cache"][:, i])
            caches.append(_tail(context, lengths, self.config.kernel - 1))
        x = self.split(x).reshape(x.shape[0], -1, self.config.fine_dim)
        fine_caches = []
        for i, block in enumerate(self.fine):
            x, context = block(x, state["fine_cache"][:, i])
            fine_caches.append(_tail(context, 2 * lengths, self.config.kernel - 1))
        return self.head(self.norm(x)), {"cache": torch.stack(caches, 1), "fine_cache": torch.stack(fine_caches, 1)}

    def pulses(self, f0: Tensor, frames: Tensor, state: State) -> tuple[Tensor, State]:
        """Band-limited pulse train (all harmonics, amplitude 1) of f0 [B, N] Hz → [B, 480 + 160 N] with its past.

        Phase runs in cycles, accumulated in float64 a frame at a time, so that chunking does not drift.
        """
        previous = torch.cat([torch.where(state["f0"] > 0, state["f0"], f0[:, :1]), f0[:, :-1]], 1)
        step = (previous + f0).double() / 2 * (HOP / self.config.sample_rate)
        ends = torch.cumsum(torch.cat([state["phase"].double(), step], 1), 1)
        ends = (ends - torch.floor(ends)).float()
        p, f = previous[..., None], f0[..., None]
        phase = ends[:, :-1, None] + (p * self.ramp + (f - p) * self.ramp**2 / 2) * (HOP / self.config.sample_rate)
        phase = phase - torch.floor(phase)
        harmonics = torch.floor(7600.0 / f)
        half = torch.sin(torch.pi * phase)
        safe = torch.where(half < 1e-4, torch.ones_like(half), half)
        ratio = torch.sin(2 * torch.pi * (harmonics + 0.5) * phase) / (2 * safe) - 0.5
        new = torch.where(half < 1e-4, harmonics.expand_as(ratio), ratio).flatten(1)
        track = torch.cat([state["pulses"], new], 1)
        return track, {
            "phase": _tail(ends, frames, 1),
            "f0": _tail(torch.cat([state["f0"], f0], 1), frames, 1),
            "pulses": _tail(track.unflatten(1, (-1, HOP)), frames, OVERLAP // HOP).flatten(1),
        }

    def synthesise(self, head: Tensor, f0: Tensor, frames: Tensor, state: State) -> tuple[Tensor, State]:
        """Filter pulses and noise a frame at a time and overlap-add. head [B, N, 2·321 + 1] → pcm [B, 160 N]."""
        batch, count = head.shape[0], head.shape[1]
        track, next_state = self.pulses(f0, frames, state)
        # Frames overlap by four hops exactly: build them from hop-sized pieces (cheap, and ONNX-friendly).
        hops = track.reshape(batch, count + 3, HOP)
        windows = torch.cat([hops[:, i : i + count] for i in range(FFT // HOP)], 2)
        position = state["noise"].long() + torch.arange(count, device=head.device)
        voiced, unvoiced = torch.exp(head[..., :BINS].clamp(max=4)), torch.exp(head[..., BINS : 2 * BINS].clamp(max=4))
        noise = self.noise[position % NOISE_FRAMES]
        real, imaginary = self._spectrum(windows)
        real = real * (voiced * 0.05) + noise[..., :BINS] * unvoiced
        within = slice(1, BINS - 1)  # bins 0 and 320 have no imaginary part
        imaginary = imaginary * (voiced[..., within] * 0.05) + noise[..., BINS:][..., within] * unvoiced[..., within]
        valid = torch.arange(count, device=head.device) < frames[:, None]  # padding must not leak into the overlap
        pieces = (self._signal(real, imaginary) * valid[..., None]).reshape(batch, count, FFT // HOP, HOP)
        out = torch.zeros(batch, count + 3, HOP, device=head.device, dtype=pieces.dtype)
        for i in range(FFT // HOP):
            out = out + nn.functional.pad(pieces[:, :, i], (0, 0, i, 3 - i))
        mixed = torch.cat([out[:, :3] + state["overlap"].reshape(batch, 3, HOP), out[:, 3:]], 1)
        next_state["overlap"] = _tail(mixed, frames, OVERLAP // HOP).flatten(1)
        next_state["noise"] = (state["noise"] + frames[:, None]) % NOISE_FRAMES
        return mixed[:, :count].flatten(1), next_state

    def _spectrum(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Windowed DFT of x [..., 640]: real part [..., 321], imaginary part [..., 319] of bins 1 … 319."""
        # Sample 0 has weight 0 in the window: the even half takes samples 0 … 320 as they are.
        early, late = x[..., 1 : BINS - 1], x[..., BINS:].flip(-1)
        even = torch.cat([x[..., :1], early + late, x[..., BINS - 1 : BINS]], -1)
        return even @ self.cosines, (early - late) @ self.sines

    def _signal(self, real: Tensor, imaginary: Tensor) -> Tensor:
        """The inverse of `_spectrum`, windowed: [..., 640]."""
        even, odd = real @ self.inverse_cosines, imaginary @ self.inverse_sines
        inner = even[..., 1 : BINS - 1]
        return torch.cat([even[..., :1], inner + odd, even[..., BINS - 1 :], (inner - odd).flip(-1)], -1)

    @staticmethod
    def pitch(head: Tensor) -> Tensor:
        """Predicted f0 in Hz [B, N]."""
        return (F0_MEAN * torch.exp(head[..., -1])).clamp(F0_MIN, F0_MAX)

    def forward(self, codes: Tensor, lengths: Tensor, state: State) -> tuple[Tensor, State]:
        """codes int64 [B, n], lengths int64 [B] (valid codes a row), state → pcm float32 [B, 320 n], next state."""
        head, caches = self.features(self.grid[codes], lengths, state)
        pcm, rest = self.synthesise(head, self.pitch(head), 2 * lengths, state)
        return pcm, caches | rest

    @classmethod
    def from_pretrained(cls, directory: str | Path) -> CodecDecoder:
        return Codec.from_pretrained(directory).decoder


class Codec(nn.Module):
    """Encoder, quantiser, decoder. `encode` wave → codes; `decode` codes → pcm."""

    mel: Tensor

    def __init__(self, config: CodecConfig | None = None) -> None:
        super().__init__()
        self.config = c = config or CodecConfig()
        self.register_buffer("mel", mel_filters(80, FFT, c.sample_rate), persistent=False)
        self.entry = nn.Linear(2 * (80 + 64), c.encoder_dim)
        self.blocks = nn.ModuleList(ConvNeXt(c.encoder_dim, c.kernel, False) for _ in range(c.encoder_layers))
        self.norm = nn.LayerNorm(c.encoder_dim)
        self.project = nn.Linear(c.encoder_dim, len(c.levels))
        self.quantiser = FSQ(c.levels)
        self.decoder = CodecDecoder(c)

    def latents(self, wave: Tensor) -> Tensor:
        """wave [B, 320 n] → latents [B, n, dims], before rounding."""
        count = wave.shape[1] // HOP

        def magnitude(size: int) -> Tensor:
            window = torch.hann_window(size, device=wave.device)
            padded = nn.functional.pad(wave, (size // 2, size // 2))
            return torch.stft(padded, size, HOP, window=window, center=False, return_complex=True).abs()[..., :count]

        mel = torch.log(self.mel @ magnitude(FFT) + 1e-3)
        low = torch.log(magnitude(1024)[:, :64] + 1e-2)  # harmonics of the pitch, which 80 mel bands blur
        x = torch.cat([mel, low], 1).transpose(1, 2).reshape(wave.shape[0], count // 2, -1)
        x = self.entry(0.3 * x)
        for block in self.blocks:
            x, _ = block(x)
        return self.project(self.norm(x))

    @torch.no_grad()
    def encode(self, wave: Tensor) -> Tensor:
        """wave float32 [B, samples] → codes int64 [B, ceil(samples / 320)]."""
        pad = -wave.shape[1] % self.config.frame_samples
        return self.quantiser(self.latents(nn.functional.pad(wave, (0, pad))))[1]

    @torch.no_grad()
    def decode(self, codes: Tensor) -> Tensor:
        """codes int64 [B, n] → pcm float32 [B, 320 n]."""
        lengths = torch.full((codes.shape[0],), codes.shape[1], dtype=torch.long, device=codes.device)
        return self.decoder(codes, lengths, self.decoder.initial_state(codes.shape[0]))[0]

    def save_pretrained(self, directory: str | Path) -> None:
        """fp16 `model.safetensors` and `config.json`."""
        files.save(directory, self, asdict(self.config))

    @classmethod
    def from_pretrained(cls, directory: str | Path) -> Codec:
        fields, tensors = files.load(directory)
        codec = cls(CodecConfig(**{**fields, "levels": tuple(fields["levels"])}))
        codec.load_state_dict(tensors)
        return codec.eval()


def mel_filters(bands: int, fft: int, sample_rate: int) -> Tensor:
    """Triangular HTK mel filters [bands, fft // 2 + 1]."""
    edges = 700 * (10 ** (np.linspace(0, 2595 * np.log10(1 + sample_rate / 2 / 700), bands + 2) / 2595) - 1)
    bins = np.arange(fft // 2 + 1) * sample_rate / fft
    rising = (bins - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
    falling = (edges[2:, None] - bins) / (edges[2:] - edges[1:-1])[:, None]
    return torch.from_numpy(np.maximum(0, np.minimum(rising, falling))).float()
