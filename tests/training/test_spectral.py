"""The spectral distance: nothing to itself or to itself spoken slower, much to something else."""

from __future__ import annotations

import numpy as np

from training.recogniser import SAMPLE_RATE
from training.spectral import BANDS, distance, log_mel


def sweep(seconds: float, low: float, high: float) -> np.ndarray:
    phase = np.cumsum(np.linspace(low, high, int(seconds * SAMPLE_RATE))) * 2 * np.pi / SAMPLE_RATE
    return 0.3 * np.sin(phase)


def test_a_wave_is_itself_at_any_loudness() -> None:
    wave = sweep(0.5, 200, 3000)
    assert distance(wave, wave) == 0
    assert distance(wave, 0.1 * wave) < 1e-6


def test_timing_matters_less_than_what_is_said() -> None:
    wave = sweep(0.5, 200, 3000)
    assert distance(wave, sweep(0.7, 200, 3000)) < 0.5 * distance(wave, sweep(0.5, 3000, 200))


def test_a_tone_lies_in_its_band() -> None:
    mel = log_mel(sweep(0.3, 1000, 1000))
    assert mel.shape[1] == BANDS
    centre = 700 * (10 ** (np.linspace(0, 2595 * np.log10(1 + 8000 / 700), BANDS + 2) / 2595) - 1)[1:-1]
    assert abs(centre[mel.mean(axis=0).argmax()] - 1000) < 100
    assert len(log_mel(np.zeros(10))) == 1
