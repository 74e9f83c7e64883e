"""Noise that neighbouring pixels share, as resampling to a map makes it."""

from __future__ import annotations

import math

import numpy as np
from scipy.ndimage import correlate1d

from sigmacube.api import denoise

from ._report import Check, Found, span
from ._setting import Setting
from ._spatial import Case, covered, draw, draws, errors, found, main_case, table

__all__ = ["coloured", "draw", "run", "table"]

TITLE = "Noise correlated in space"
QUESTION = "Is σ right where the noise of neighbouring pixels is correlated, which nobody told?"

LOW, HIGH = 0.94, 0.96
LAGS = (0.2, 0.39, 0.56)


def run(setting: Setting) -> Found:
    """Measure coverage; low-rank windows, whose σ takes pixels as independent, are the control."""
    case = main_case(setting)
    room = 0.01 if setting.quick else 0.0
    checks, ours = [], []
    for lag in LAGS:
        spatial = [_covered(setting, case, lag, seed) for seed in draws(setting)]
        ours.append(float(np.mean(spatial)))
        name = f"correlation of neighbours {lag:g}"
        checks.append(Check(name, ours[-1], LOW - room, HIGH + room))
        plain = _covered(setting, case, lag, 0, prior=None)
        checks.append(Check(f"{name}: prior=None", plain, LOW - room, HIGH + room,
                            kind="control"))  # fmt: skip
    return found(checks, f"95 % holds {span(ours)}", f"{LOW} to {HIGH}",
                 {"scene": case.name, "draws": len(draws(setting))})  # fmt: skip


def _covered(setting: Setting, case: Case, lag: float, seed: int, **options: None) -> float:
    y = case.truth + coloured(case.truth.shape, lag, seed)
    return covered(errors(denoise(y, 1.0, workers=setting.workers, **options), case))


def coloured(shape: tuple[int, ...], lag: float, seed: int) -> np.ndarray:
    """Return noise of unit variance filtered by [a 1 a] both ways, with a given lag-1 correlation.

    Examples
    --------
    >>> noise = coloured((200, 200, 3), 0.39, 0)
    >>> bool(abs(np.mean(noise[:, 1:] * noise[:, :-1]) - 0.39) < 0.02)
    True
    """
    side = (1 - math.sqrt(1 - 2 * lag**2)) / lag / 2
    kernel = np.array([side, 1, side]) / math.sqrt(1 + 2 * side**2)
    rows, cols, bands = shape
    white = np.random.default_rng([37, seed]).standard_normal((rows + 2, cols + 2, bands))
    for axis in (0, 1):
        white = correlate1d(white, kernel, axis=axis, mode="constant")
    return white[1:-1, 1:-1]
