"""Error of the spatial estimator against that of low-rank windows."""

from __future__ import annotations

import math

import numpy as np
from scipy.ndimage import uniform_filter

from sigmacube.api import denoise

from ._report import Check, Found
from ._setting import Setting
from ._spatial import cases, draw, found, observed, solved, table

__all__ = ["draw", "run", "table"]

TITLE = "Quality of the spatial estimator"
QUESTION = "By how much is it nearer to the truth than low-rank windows, on scenes of every kind?"

# Decibels by which the error must be below that of `prior=None`.
GAINS = (4.5, 9.5, 1.5, 4.5)
QUICK_GAINS = (2.0, 6.0, 0.5, 2.0)


def run(setting: Setting) -> Found:
    """Compare errors on the same observations; means of 5 × 5 pixels are the control."""
    checks, gains = [], []
    for case, least in zip(cases(setting), QUICK_GAINS if setting.quick else GAINS, strict=True):
        y = observed(case, 0)
        plain = denoise(y, 1.0, prior=None, uncertainty=False, workers=setting.workers).estimate
        base = _rmse(plain - case.truth)
        own = _rmse(solved(setting, case, 0).estimate - case.truth)
        mean = _rmse(uniform_filter(y, (5, 5, 1)) - case.truth)
        gains.append(_decibels(base / own))
        name = f"{case.name}: gain in dB (RMSE {own:.4f} of the noise)"
        checks.append(Check(name, gains[-1], least, 99.0))
        checks.append(Check(f"{case.name}: 5 × 5 means", _decibels(base / mean), least, 99.0,
                            kind="control"))  # fmt: skip
    return found(checks, f"{min(gains):.1f} to {max(gains):.1f} dB", "set per scene",
                 {"noise": "told"})  # fmt: skip


def _rmse(error: np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.square(error))))


def _decibels(ratio: float) -> float:
    return 20 * math.log10(ratio)
