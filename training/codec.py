"""Train the codec on the teacher's speech.

    python -m training.codec                              # half an hour; resumes from data/codec/last.pt
    python -m training.codec --device cuda --batch 64

Losses: log-mel and multi-resolution STFT magnitudes of the decoded wave, and the teacher's own pitch.
The pitch of the teacher drives the pulses while training, the predicted one at inference.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F
from tqdm import tqdm

from training.data import HELD_OUT, Utterance, crop, load_corpus
from training.models.codec import F0_MEAN, FFT, HOP, Codec, mel_filters
from training.progress import LossCurve, load_checkpoint, save_checkpoint

RESOLUTIONS = ((256, 64), (640, 160), (1280, 320))


class SpectralLoss(torch.nn.Module):
    """Mean L1 of log-mel spectra (80, 40 bands) and log magnitudes over three resolutions."""

    def __init__(self) -> None:
        super().__init__()
        for size, _ in RESOLUTIONS:
            self.register_buffer(f"mel{size}", mel_filters(40 if size == 256 else 80, size, 16_000))
            self.register_buffer(f"window{size}", torch.hann_window(size))

    def forward(self, predicted: Tensor, target: Tensor) -> Tensor:
        total = predicted.new_zeros(())
        for size, hop in RESOLUTIONS:
            a, b = (
                torch.stft(x, size, hop, window=getattr(self, f"window{size}"), return_complex=True).abs() + 1e-5
                for x in (predicted, target)
            )
            mel = getattr(self, f"mel{size}")
            total = total + 2 * F.l1_loss(torch.log(mel @ a + 1e-3), torch.log(mel @ b + 1e-3))
            total = total + 0.3 * F.l1_loss(torch.log(a + 1e-3), torch.log(b + 1e-3))
        return total / len(RESOLUTIONS)


def step_loss(codec: Codec, spectral: SpectralLoss, wave: Tensor, f0: Tensor, bf16: bool) -> tuple[Tensor, Tensor]:
    """wave [B, samples], f0 [B, samples / 80 + 16] → (spectral loss, pitch loss)."""
    batch, tokens = wave.shape[0], wave.shape[1] // (2 * HOP)
    lengths = torch.full((batch,), tokens, device=wave.device)
    state = {k: v.to(wave.device) for k, v in codec.decoder.initial_state(batch).items()}
    with torch.autocast(wave.device.type, torch.bfloat16, enabled=bf16):
        values, _ = codec.quantiser(codec.latents(wave).float())
        head, _ = codec.decoder.features(values, lengths, state)
    head = head.float()
    # Frame j of the decoder ends at sample 160 j + 640: that is where its pitch is read.
    target = f0[:, FFT // 80 :: 2][:, : 2 * tokens]
    state["phase"] = torch.rand(batch, 1, device=wave.device)
    state["noise"] = torch.randint(0, 400, (batch, 1), device=wave.device).float()
    pcm, _ = codec.decoder.synthesise(head, target, 2 * lengths, state)
    pitch = F.l1_loss(head[..., -1], torch.log(target / F0_MEAN))
    return spectral(pcm[:, FFT:], wave[:, FFT:]), pitch


def batches(corpus: list[Utterance], batch: int, samples: int, seed: int) -> tuple[Tensor, Tensor]:
    random = np.random.default_rng(seed)
    pairs = [crop(corpus[i], samples, random) for i in random.integers(0, len(corpus), batch)]
    return torch.from_numpy(np.stack([p[0] for p in pairs])), torch.from_numpy(np.stack([p[1] for p in pairs]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, default=Path("data/corpus"))
    parser.add_argument("--work", type=Path, default=Path("data/codec"), help="checkpoint to resume from, loss curve")
    parser.add_argument("--out", type=Path, default=Path("checkpoints/rms/codec"))
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=0.8, help="length of a training crop")
    parser.add_argument("--rate", type=float, default=1.5e-3, help="peak learning rate")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=0, help="CPU threads (default: all)")
    parser.add_argument("--minutes", type=float, default=0, help="end the schedule by this time instead of by steps")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    if args.threads:
        torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    corpus = load_corpus(args.corpus)[HELD_OUT:]
    codec, spectral = Codec().to(args.device).train(), SpectralLoss().to(args.device)
    optimiser = torch.optim.AdamW(codec.parameters(), args.rate, betas=(0.8, 0.98), weight_decay=0.01)
    args.work.mkdir(parents=True, exist_ok=True)
    done = load_checkpoint(args.work / "last.pt", codec, optimiser)
    curve = LossCurve(args.work / "loss.csv", args.work / "loss.png", resume=done > 0)
    samples = round(args.seconds * 16_000) // (2 * HOP) * 2 * HOP
    began = time.monotonic()
    progress = tqdm(initial=done, total=args.steps, desc="codec", unit="step", mininterval=5)
    for step in range(done, args.steps):
        share = (step / args.steps) if not args.minutes else (time.monotonic() - began) / 60 / args.minutes
        if share >= 1:
            break
        for group in optimiser.param_groups:
            group["lr"] = args.rate * min(1.0, (step + 1) / 100) * (0.02 + 0.98 * 0.5 * (1 + np.cos(np.pi * share)))
        torch.manual_seed(args.seed * 1_000_003 + step)  # a resumed run is the unbroken one
        wave, f0 = batches(corpus, args.batch, samples, args.seed * 1_000_003 + step)
        spectrum, pitch = step_loss(codec, spectral, wave.to(args.device), f0.to(args.device), bf16=True)
        optimiser.zero_grad(set_to_none=True)
        (spectrum + pitch).backward()
        torch.nn.utils.clip_grad_norm_(codec.parameters(), 1.0)
        optimiser.step()
        curve.add(step, spectral=spectrum.item(), pitch=pitch.item())
        progress.update()
        progress.set_postfix(spectral=f"{curve.mean('spectral'):.3f}", pitch=f"{curve.mean('pitch'):.3f}")
        if (step + 1) % 250 == 0:
            save_checkpoint(args.work / "last.pt", codec, optimiser, step + 1)
            codec.save_pretrained(args.work)
            curve.draw()
    codec.save_pretrained(args.out)
    curve.draw(args.out / "loss.png")


if __name__ == "__main__":
    main()
