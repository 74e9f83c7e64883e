"""Noise from what a first denoising leaves, corrected for degrees of freedom and iterated.

With the noise assumed, windows are solved; what they leave of band v has the expected variance
s_v² (1 − a_u)(1 − b_v), with a and b the shares of pixel and band that the fit took away. The ratio
of observed to expected corrects s_v, and the windows are solved again until nothing changes. The
same residuals, against the signal they were left by, show how the variance grows with the signal.

Elements that are missing hold the fit of the round before and count neither as observed nor as
expected; so do those that lie too far from the fit to be noise. Clipped ones hold what they were
expected to be (`sigmacube.noise.clipping.censored`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from sigmacube.core.lowrank.solvers.base import PatchSolution
from sigmacube.core.lowrank.solvers.svd import SvdSolver
from sigmacube.core.parallel import ParallelMap
from sigmacube.core.rank import near_edge_inflation, noise_edge, residual_share
from sigmacube.core.whitening import Noise
from sigmacube.noise.clipping import Bounds, censored
from sigmacube.noise.sample import NoiseSample
from sigmacube.noise.signal_noise import SignalNoise

__all__ = ["ResidualNoise", "fewer_components", "residual_noise"]

MAX_ROUNDS, SETTLED = 6, 0.01
# The same where guesses must settle, too, and rounds of a first look, where they need not.
MAX_GUESSES, SETTLED_GUESSES, LOOK = 20, 0.002, 3
# Squares are clipped at this many standard deviations: bad pixels and what windows could not fit
# make tails that are not the noise's. CLIPPED is E[min(z², OUTLIER²)] of a standard normal.
OUTLIER = 4.0
CLIPPED = 0.99988
# Elements beyond so many standard deviations are set aside where many are far out; KEPT is E[z²] of
# a standard normal within them. A pixel with more than ALONE of its bands out is signal.
ASIDE, KEPT, ALONE = 3.5, 0.99389, 0.25
# Values so many noise std out are no noise: one Gaussian residual in two million. From which share
# of them on they are set aside.
WILD, MANY = 5.0, 3e-4
# A clipped value whose estimate lies so many standard deviations inside the bound is an impulse.
FAR_INSIDE = 4.0
# Share of a band or pixel that must be there to say what the fit takes of it.
LEAST_KEPT = 0.05
# A band or pixel of which a fit leaves less than this share says nothing of the noise.
SMALLEST_SHARE = 0.1
# The part of a band's variance that does not depend on the signal is never taken below this.
SMALLEST_OFFSET = 0.02
# Noise counts as signal-dependent when its standard deviation varies by this much over the scene.
NOTICEABLE = 0.04
# Windows that decide whether a correlation between bands is the noise's.
JUDGED_WINDOWS = 6


class ResidualNoise(NamedTuple):
    """Noise that is consistent with what windows solved with it leave."""

    model: np.ndarray | SignalNoise
    """(bands,) standard deviations, or a model where the variance grows with the signal."""
    tails: np.ndarray
    """(bands,) variance of what was set aside as too far out, over that of the noise."""
    wild_share: float
    """Share of values further than `WILD` noise std out."""
    sample: NoiseSample
    """The sample; gaps, and what was set aside, hold fit and noise."""
    state: _State | None
    """Where to go on; None where everything has settled."""


@dataclass(frozen=True, eq=False)
class _Window:
    """One window, as (pixels, bands)."""

    raw: np.ndarray
    """What was measured."""
    there: np.ndarray
    """True for elements that were measured."""
    values: np.ndarray
    """What goes into the fit: measured values, and guesses where they do not count."""
    kept: np.ndarray | None
    """True for elements whose measured value goes into the fit; None where all do."""


@dataclass(frozen=True, eq=False)
class _State:
    """Where the rounds have come to."""

    windows: Sequence[_Window]
    model: SignalNoise
    aside: bool


@dataclass(frozen=True, eq=False)
class _Moments:
    """What one window says about the noise; sums over its pixels, per band."""

    observed: np.ndarray
    expected: np.ndarray
    line: np.ndarray
    """(5, bands) normal equations of variance against signal: Σw, Σwx, Σwx², Σwy, Σwxy."""
    tails: np.ndarray
    """Squares of what was set aside in pixels that are sound otherwise."""
    count: np.ndarray
    """Elements that were measured."""
    wild: float
    """Share of elements that are far out."""


def residual_noise(
    sample: NoiseSample,
    std: np.ndarray,
    run: ParallelMap,
    *,
    correlation: np.ndarray | None = None,
    signal_dependent: bool = True,
    aside: bool = False,
    bounds: Bounds | None = None,
    rough: bool = False,
    state: _State | None = None,
) -> ResidualNoise:
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
    aside
        Whether to set values aside that are too far out, however few they are.
    bounds
        What values were clipped to, if they were.
    rough
        Whether guesses need not settle.
    state
        Where to go on instead of starting from ``std``.
    """
    guesses = aside or bounds is not None or sample.kept is not None or state is not None
    fresh = state is None
    if state is None:
        start = SignalNoise(np.zeros_like(std), std**2, sample.spectra.mean(axis=0), correlation)
        state = _State(_windows(sample, guesses), start, aside)
    windows, model, aside = state.windows, state.model, state.aside
    for number in range(MAX_GUESSES):
        noise = Noise.create(model.value, sample.n_bands)
        step = _Step(model, noise, aside, bounds, fresh=fresh and number == 0)
        windows, parts = zip(*run(step, windows), strict=True)
        ratio, wild = _ratio(parts), float(np.mean([part.wild for part in parts]))
        std = step.noise.std * np.clip(ratio, 0.25, 4.0)
        line = np.sum([part.line for part in parts], axis=0)
        model = _with_line(model, std, line, signal_dependent)
        settled = False
        if not aside and wild > MANY:  # these go before anything is settled
            aside, guesses = True, True
        else:
            least = SETTLED_GUESSES if guesses else SETTLED
            settled = bool(np.median(np.abs(ratio - 1)) < least)
        look = MAX_ROUNDS if aside else LOOK  # what is far out must be settled first
        if settled or number + 1 >= ((look if rough else MAX_GUESSES) if guesses else MAX_ROUNDS):
            break
    tails, count = (np.sum([getattr(p, n) for p in parts], axis=0) for n in ("tails", "count"))
    return ResidualNoise(
        model if _varies(model, sample) else std,
        tails / np.maximum(count, 1) / std**2,
        wild,
        _completed(sample, windows, std) if guesses else sample,
        _State(windows, model, aside) if guesses and not settled else None,
    )


def fewer_components(
    sample: NoiseSample, std: np.ndarray, correlation: np.ndarray, run: ParallelMap
) -> bool:
    """Tell whether windows need fewer components with a correlation between bands than without.

    Noise that is correlated between bands rises above the edge of white noise, so the right
    correlation takes components away. One that was taken from the signal adds some: it lets the
    directions that the signal does not use stand out.
    """
    every = max(1, len(sample.blocks) // JUDGED_WINDOWS)
    windows = list(zip(sample.blocks, sample.valid, strict=True))[::every]
    counts = []
    for value in (std, correlation * np.outer(std, std)):
        noise = Noise.create(value, sample.n_bands)
        ranks = run(lambda w: SvdSolver()(noise.whiten(w[0][w[1]])).rank, windows)  # noqa: B023
        counts.append(sum(ranks))
    return counts[1] < counts[0]


def _windows(sample: NoiseSample, guesses: bool) -> Sequence[_Window]:
    """Return the windows of a sample, ready for the first round."""
    windows = []
    for number, (block, valid) in enumerate(zip(sample.blocks, sample.valid, strict=True)):
        values = block[valid]
        kept, raw = np.ones(values.shape, dtype=bool), values
        if sample.kept is not None and sample.raw is not None:
            kept, raw = sample.kept[number][valid], sample.raw[number][valid]
        windows.append(_Window(raw, np.isfinite(raw), values, kept if guesses else None))
    return windows


def _ratio(parts: Sequence[_Moments]) -> np.ndarray:
    """Return the observed over the expected standard deviation of bands."""
    observed = np.sum([part.observed for part in parts], axis=0)
    expected = np.sum([part.expected for part in parts], axis=0)
    ratio = np.sqrt(observed / np.maximum(expected, 1e-300))
    ratio[expected <= 0] = 1.0
    return ratio


def _completed(sample: NoiseSample, windows: Sequence[_Window], std: np.ndarray) -> NoiseSample:
    """Return the sample with noise added to guesses; drawn the same every time."""
    rng, blocks = np.random.default_rng(0), []
    for block, valid, window in zip(sample.blocks, sample.valid, windows, strict=True):
        out, kept = block.copy(), window.kept
        noise = std * rng.standard_normal(window.values.shape)
        out[valid] = window.values + (0 if kept is None else np.where(kept, 0.0, noise))
        blocks.append(out)
    return replace(sample, blocks=blocks)


@dataclass(frozen=True, eq=False)
class _Step:
    """One round: a window is solved, and what it leaves compared with what the noise would."""

    model: SignalNoise
    noise: Noise
    aside: bool
    bounds: Bounds | None
    fresh: bool
    """Whether guesses still hold noise, as they come with a sample."""

    def __call__(self, window: _Window) -> tuple[_Window, _Moments]:
        noise = self.noise
        scale = self.model.pixel_scale(window.values)[:, None]
        scaled = window.values / scale
        white = noise.whiten(scaled)
        # With guesses in the place of noise singular values are smaller; so must the edge be.
        kept, level = window.kept, 1.0
        if kept is not None and not self.fresh:
            level = np.sqrt(max(float(kept.mean()), 1e-3))
        solution = SvdSolver()(white if level == 1 else white / level)
        scores = solution.left * (solution.singular_values * level)
        rows = noise.unwhiten(solution.right.T)  # components in the units of the data
        residual = scaled - scores @ rows
        fit = window.values - residual * scale
        share = self._share(solution, rows, window)
        if window.kept is None:
            square, kept, values = np.square(residual), None, window.values
        else:
            square, kept, values = self._judged(window, fit, scale, share)
            # A component that is noise would live on its own guesses, were they not smaller.
            # The more is guessed, the more so.
            power = 2 * max(1.0, 2 * float(kept.mean()))
            shrunk = (scores * _shrinkage(solution, white.shape, power)) @ rows
            values = np.where(kept, values, shrunk * scale)
        moments = self._moments(window, square, share, kept, fit, scale)
        kept = window.there if kept is None and self.aside else kept
        return replace(window, values=values, kept=kept), moments

    def _share(self, solution: PatchSolution, rows: np.ndarray, window: _Window) -> np.ndarray:
        """Return the share of the noise that the fit leaves of every element; zero for little."""
        inflation = near_edge_inflation(solution.singular_values, *window.values.shape)
        taken = rows / self.noise.std
        freedom, left = (
            residual_share(np.square(part), inflation) for part in (solution.left.T, taken)
        )
        freedom, left = freedom[:, None], left[None]
        if window.kept is not None:  # what fewer elements tell takes more of each
            freedom = 1 - (1 - freedom) / np.maximum(window.kept.mean(axis=0), LEAST_KEPT)
            kept = window.kept.mean(axis=1, keepdims=True)
            left = 1 - (1 - left) / np.maximum(kept, LEAST_KEPT)
        freedom, left = (np.where(part > SMALLEST_SHARE, part, 0.0) for part in (freedom, left))
        return np.asarray(freedom * left)

    def _judged(
        self, window: _Window, fit: np.ndarray, scale: np.ndarray, share: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return squares of what is left, which elements count, and their values to fit next."""
        std = self.noise.std * scale
        values, kept = np.where(window.there, window.raw, fit), window.there
        square = np.square((values - fit) / scale)
        if self.bounds is not None:
            at = np.nonzero(self.bounds.at(values) & kept)
            low, high = self.bounds.low[at[1]], self.bounds.high[at[1]]
            mean, unit = fit[at], std[at]
            values[at], spread = censored(values[at], mean, unit, (low, high))
            square[at] = share[at] * (np.square(values[at] - mean) + spread) / scale[at[0], 0] ** 2
            kept = kept.copy()
            kept[at] = np.minimum(mean - low, high - mean) <= FAR_INSIDE * unit
        if self.aside:
            kept = kept & (square <= ASIDE**2 * np.where(share > 0, share, 1) * self.noise.std**2)
        return square, kept, values

    def _moments(
        self, window: _Window, square: np.ndarray, share: np.ndarray, kept: np.ndarray | None,
        fit: np.ndarray, scale: np.ndarray,
    ) -> _Moments:  # fmt: skip
        """Compare squares with what is expected of them."""
        tells = share > 0
        expected, there = share * self.noise.std**2, window.there & tells
        wild = np.count_nonzero((square > WILD**2 * expected) & there) / max(there.sum(), 1)
        weight = (tells if kept is None else kept & tells).astype(np.float64)
        constant = CLIPPED if kept is None or not self.aside else KEPT
        near = np.minimum(square, OUTLIER**2 * expected)
        out = there & (weight == 0)
        out &= np.count_nonzero(out, axis=1)[:, None] < ALONE * out.shape[1]
        variance = near / (constant * np.where(tells, share, 1))
        return _Moments(
            (weight * near).sum(axis=0),
            constant * (weight * expected).sum(axis=0),
            _normal_equations(fit, variance, scale[:, 0] ** 2, weight),
            np.where(out, square, 0.0).sum(axis=0),
            there.sum(axis=0),
            float(wild),
        )


def _shrinkage(solution: PatchSolution, shape: tuple[int, int], power: float) -> np.ndarray:
    """Return (components,) factors that are small near the noise edge."""
    return np.maximum(1 - (noise_edge(*shape) / solution.singular_values) ** power, 0.0)


def _normal_equations(
    signal: np.ndarray, variance: np.ndarray, power: np.ndarray, weight: np.ndarray
) -> np.ndarray:
    """Return Σw, Σwx, Σwx², Σwy, Σwxy per band for y = variance · power, weights 1 / power²."""
    w = weight * power[:, None] ** -2.0
    wy = w * power[:, None] * variance
    wx = w * signal
    return np.stack([
        w.sum(axis=0), wx.sum(axis=0), (wx * signal).sum(axis=0), wy.sum(axis=0),
        (wy * signal).sum(axis=0),
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
    t0, s0 = np.where(s0 > 0, t0, std**2), np.where(s0 > 0, s0, 1.0)
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
