"""Means, spectra and indices of the spatial estimate, with all correlations."""

from __future__ import annotations

import math

import numpy as np

from sigmacube.result import DenoisedCube

from ._report import Check, Found, span
from ._setting import Setting
from ._spatial import cases, draw, draws, found, solved, table

__all__ = ["draw", "run", "table"]

TITLE = "Aggregates of the spatial estimate"
QUESTION = "Is the σ of means, band means and differences of bands right, with all correlations?"

LOW, HIGH = 0.93, 1.07
PLACES = 130
Weights = dict[tuple[int, int, int], float]


def run(setting: Setting) -> Found:
    """Measure the rms of error over σ at places drawn at random; √count is the control."""
    places = 40 if setting.quick else PLACES
    room = 0.45 if setting.quick else 0.0
    checks, sizes = [], []
    for case in cases(setting)[:3]:
        z: dict[str, list[float]] = {}
        naive: dict[str, list[float]] = {}
        for seed in draws(setting):
            result = solved(setting, case, seed)
            error = result.estimate - case.truth
            rng = np.random.default_rng([41, seed])
            for kind in KINDS:
                each = [_weights(kind, case.truth.shape, rng) for _ in range(places)]
                values = np.array([sum(w * error[at] for at, w in c.items()) for c in each])
                z.setdefault(kind, []).extend(values / _std(result, each))
                naive.setdefault(kind, []).extend(values / _independent(result, each))
        for kind in KINDS:
            sizes.append(_rms(z[kind]))
            name = f"{case.name}: {kind}"
            checks.append(Check(name, sizes[-1], LOW - room, HIGH + room))
            if "pixels" in kind:
                checks.append(Check(f"{name}, errors independent", _rms(naive[kind]), LOW - room,
                                    HIGH + room, kind="control"))  # fmt: skip
    return found(checks, f"rms of error over σ {span(sizes)}", f"{LOW} to {HIGH}",
                 {"places": places, "draws": len(draws(setting))})  # fmt: skip


KINDS = {
    "5 × 5 pixels, 4 bands": (5, 5, 4),
    "15 × 15 pixels, one band": (15, 15, 1),
    "mean of 30 bands": (1, 1, 30),
    "difference of two bands": (1, 1, 0),
}


def _weights(kind: str, shape: tuple[int, ...], rng: np.random.Generator) -> Weights:
    """Draw a place and return the weights of an aggregate there."""
    rows, cols, bands = KINDS[kind]
    i, j, v = (int(rng.integers(n - s)) for n, s in zip(shape, (rows, cols, max(bands, 11)),
                                                         strict=True))  # fmt: skip
    if bands == 0:
        return {(i, j, v): 1.0, (i, j, v + 10): -1.0}
    count = rows * cols * bands
    return {
        (i + a, j + b, v + c): 1 / count
        for a in range(rows) for b in range(cols) for c in range(bands)
    }  # fmt: skip


def _std(result: DenoisedCube, weights: list[Weights]) -> np.ndarray:
    return np.array([result.functional_std(w) for w in weights])


def _independent(result: DenoisedCube, weights: list[Weights]) -> np.ndarray:
    std = np.asarray(result.std)
    return np.array([math.hypot(*(w * std[at] for at, w in each.items())) for each in weights])


def _rms(values: list[float]) -> float:
    return float(np.sqrt(np.mean(np.square(values))))
