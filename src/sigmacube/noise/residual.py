"""Noise from what a first denoising leaves, corrected for degrees of freedom and iterated.

With the noise assumed, windows are solved; what they leave of band v has the expected variance
s_v² (1 − a_u)(1 − b_v), with a and b the shares of pixel and band that the fit took away. The ratio
of observed to expected corrects s_v, and the windows are solved again until nothing changes. The
same residuals, against the signal they were left by, show how the variance grows with the signal.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sigmacube.core.lowrank.solvers.svd import SvdSolver
from sigmacube.core.parallel import ParallelMap
from sigmacube.core.rank import near_edge_inflation, residual_share
from sigmacube.core.whitening import Noise
from sigmacube.noise.sample import NoiseSample
from sigmacube.noise.signal_noise import SignalNoise

__all__ = ["fewer_components", "residual_noise", "wild_share"]

MAX_ROUNDS = 6
SETTLED = 0.01
# Squares are clipped at this many standard deviations: impulses, bad pixels and what windows could
# not fit make tails that are not the noise's. CLIPPED is E[min(z², OUTLIER²)] of a standard normal.
OUTLIER = 4.0
CLIPPED = 0.99988
# A band or pixel of which a fit leaves less than this share says nothing of the noise.
SMALLEST_SHARE = 0.1
# The part of a band's variance that does not depend on the signal is never taken below this.
SMALLEST_OFFSET = 0.02
# Noise counts as signal-dependent when its standard deviation varies by this much over the scene.
NOTICEABLE = 0.04
# Windows that decide whether a correlation between bands is the noise's.
JUDGED_WINDOWS = 6
# Values so many noise std out are no noise: one Gaussian residual in two million.
WILD = 5.0


@dataclass(frozen=True, eq=False)
class _Moments:
    """What one window says about the noise; sums over its pixels, per band."""

    observed: np.ndarray
    expected: np.ndarray
    line: np.ndarray
    """(5, bands) normal equations of variance against signal: Σw, Σwx, Σwx², Σwy, Σwxy."""


def residual_noise(
    sample: NoiseSample,
    std: np.ndarray,
    run: ParallelMap,
    *,
    correlation: np.ndarray | None = None,
    signal_dependent: bool = True,
) -> np.ndarray | SignalNoise:
    """Return the noise that is consistent with the residual of windows solved with it.

    Parameters
    ----------
    sample
        Windows of the scene.
    std
        (bands,) standard deviations to start from; rather too large than too small, because
        noise taken for signal never comes back.
    run
        Parallel map over windows.
    correlation
        (bands, bands) correlation of the noise between bands, held fixed.
    signal_dependent
        Whether the variance may grow with the signal.

    Returns
    -------
    ndarray or SignalNoise
        (bands,) standard deviations, or a model where the variance grows with the signal.
    """
    windows = list(zip(sample.blocks, sample.valid, strict=True))
    mean = np.mean([block[valid].mean(axis=0) for block, valid in windows], axis=0)
    model = SignalNoise(np.zeros_like(std), std**2, mean, correlation)
    for _ in range(MAX_ROUNDS):
        current = model
        noise = Noise.create(current.value, sample.n_bands)
        parts = run(lambda w: _window_moments(w[0], w[1], current, noise), windows)  # noqa: B023
        observed = sum(part.observed for part in parts)
        expected = sum(part.expected for part in parts)
        ratio = np.sqrt(observed / np.maximum(expected, 1e-300))
        ratio[expected <= 0] = 1.0
        std = noise.std * np.clip(ratio, 0.25, 4.0)
        model = _with_line(current, std, sum(part.line for part in parts), signal_dependent)
        if np.median(np.abs(ratio - 1)) < SETTLED:
            break
    return model if _varies(model, sample) else std


def fewer_components(
    sample: NoiseSample, std: np.ndarray, correlation: np.ndarray, run: ParallelMap
) -> bool:
    """Tell whether windows need fewer components with a correlation between bands than without.

    Noise that is correlated between bands rises above the edge of white noise, so the right
    correlation takes components away. One that was taken from the signal adds some: it lets the
    directions that the signal does not use stand out.
    """
    windows = _judged(sample)
    counts = []
    for value in (std, correlation * np.outer(std, std)):
        noise = Noise.create(value, sample.n_bands)
        ranks = run(lambda w: SvdSolver()(noise.whiten(w[0][w[1]])).rank, windows)  # noqa: B023
        counts.append(sum(ranks))
    return counts[1] < counts[0]


def wild_share(sample: NoiseSample, value: np.ndarray, run: ParallelMap) -> float:
    """Return the share of values that a few windows leave further than `WILD` noise std out."""
    noise = Noise.create(value, sample.n_bands)

    def share(window: tuple[np.ndarray, np.ndarray]) -> float:
        white = noise.whiten(window[0][window[1]])
        fit = SvdSolver()(white)
        left = noise.unwhiten(white - (white @ fit.right) @ fit.right.T) / noise.std
        return float(np.mean(np.abs(left) > WILD))

    return float(np.mean(run(share, _judged(sample))))


def _judged(sample: NoiseSample) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return a few windows, as values and validity."""
    every = max(1, len(sample.blocks) // JUDGED_WINDOWS)
    return list(zip(sample.blocks, sample.valid, strict=True))[::every]


def _window_moments(
    block: np.ndarray, valid: np.ndarray, model: SignalNoise, noise: Noise
) -> _Moments:
    """Solve one window and compare what it leaves with what the noise would."""
    spectra = block[valid]
    scale = model.pixel_scale(spectra)[:, None]
    white = noise.whiten(spectra / scale)
    solution = SvdSolver()(white)
    residual = noise.unwhiten(white - (white @ solution.right) @ solution.right.T)
    inflation = near_edge_inflation(solution.singular_values, *white.shape)
    taken = noise.unwhiten(solution.right.T) / noise.std
    freedom, left = (
        np.maximum(residual_share(np.square(part), inflation), SMALLEST_SHARE)
        for part in (solution.left.T, taken)
    )
    expected = freedom[:, None] * (left * noise.std**2)
    square = np.minimum(np.square(residual), OUTLIER**2 * expected)
    variance = square * (noise.std**2 / CLIPPED / expected)
    return _Moments(
        square.sum(axis=0),
        CLIPPED * freedom.sum() * left * noise.std**2,
        _normal_equations(spectra - residual * scale, variance, scale[:, 0] ** 2),
    )


def _normal_equations(signal: np.ndarray, variance: np.ndarray, power: np.ndarray) -> np.ndarray:
    """Return Σw, Σwx, Σwx², Σwy, Σwxy per band for y = variance · power, weights 1 / power²."""
    w, n_bands = power**-2.0, signal.shape[1]
    product = variance * signal
    return np.stack([
        np.full(n_bands, w.sum()),
        w @ signal,
        w @ np.square(signal),
        (w * power) @ variance,
        (w * power) @ product,
    ])  # fmt: skip


def _with_line(
    model: SignalNoise, std: np.ndarray, sums: np.ndarray, signal_dependent: bool
) -> SignalNoise:
    """Return the model with new standard deviations at its reference, and the line fitted anew."""
    reference = np.asarray(model.reference)
    if not signal_dependent:
        return SignalNoise(np.zeros_like(std), std**2, reference, model.correlation)
    s0, s1, s2, t0, t1 = sums
    determinant = s0 * s2 - s1**2
    with np.errstate(divide="ignore", invalid="ignore"):
        gain = np.where(determinant > 1e-12 * s0 * s2, (s0 * t1 - s1 * t0) / determinant, 0.0)
    least = SMALLEST_OFFSET * std**2
    # A line through the least offset where the fitted one would start below it.
    through = np.maximum(t1 - least * s1, 0) / np.maximum(s2, 1e-300)
    offset = np.divide(t0 - gain * s1, s0)
    gain = np.where(offset < least, through, np.maximum(gain, 0))
    offset = np.maximum(np.divide(t0 - gain * s1, s0), least)
    at_reference = gain * np.maximum(reference, 0) + offset
    share = std**2 / at_reference
    return SignalNoise(gain * share, offset * share, reference, model.correlation)


def _varies(model: SignalNoise, sample: NoiseSample) -> bool:
    """Tell whether the noise depends on the signal enough to matter."""
    return float(np.std(model.pixel_scale(sample.spectra))) > NOTICEABLE
