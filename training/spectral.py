"""How far one wave's spectrum is from another's, whatever their timing: log-mel frames after dynamic time warping."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from training.recogniser import SAMPLE_RATE

WINDOW, HOP, BANDS = 640, 320, 40  # 40 and 20 ms
FFT = 1024


def log_mel(wave: NDArray[np.floating]) -> NDArray[np.float64]:
    """Wave [samples] at 16 kHz → decibels [frames, BANDS], floored 60 dB below the loudest."""
    count = max(1, 1 + (len(wave) - WINDOW) // HOP)
    padded = np.pad(np.asarray(wave, np.float64), (0, max(0, WINDOW - len(wave))))
    frames = np.lib.stride_tricks.sliding_window_view(padded, WINDOW)[::HOP][:count] * np.hanning(WINDOW)
    power = np.abs(np.fft.rfft(frames, FFT)) ** 2
    decibels = 10 * np.log10(power @ _filters().T + 1e-12)
    return np.maximum(decibels, decibels.max() - 60)


def distance(one: NDArray[np.floating], other: NDArray[np.floating]) -> float:
    """Mean absolute difference in dB a band along the cheapest warping path; each wave's own mean level is left out."""
    a, b = (mel - mel.mean() for mel in (log_mel(one), log_mel(other)))
    cost = np.abs(a[:, None] - b[None]).mean(axis=2)
    total = np.full((len(a) + 1, len(b) + 1), np.inf)
    steps = np.zeros_like(total)
    total[0, 0] = 0
    for i in range(1, len(a) + 1):
        above, left = total[i - 1], total[i]
        for j in range(1, len(b) + 1):
            options = (above[j - 1], above[j], left[j - 1])
            best = min(range(3), key=options.__getitem__)
            left[j] = options[best] + cost[i - 1, j - 1]
            steps[i, j] = 1 + (steps[i - 1, j - 1], steps[i - 1, j], steps[i, j - 1])[best]
    return float(total[-1, -1] / steps[-1, -1])


def _filters() -> NDArray[np.float64]:
    """Triangles on the mel scale (O'Shaughnessy), [BANDS, FFT / 2 + 1]."""
    mel = np.linspace(0, 2595 * np.log10(1 + SAMPLE_RATE / 2 / 700), BANDS + 2)
    edges = 700 * (10 ** (mel / 2595) - 1)
    frequency = np.arange(FFT // 2 + 1) * SAMPLE_RATE / FFT
    up = (frequency - edges[:-2, None]) / np.diff(edges)[:-1, None]
    down = (edges[2:, None] - frequency) / np.diff(edges)[1:, None]
    return np.maximum(0, np.minimum(up, down))
