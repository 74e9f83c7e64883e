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
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from sigmacube.core.lowrank.solvers.low_rank import components, resolves
from sigmacube.core.lowrank.solvers.svd import SvdSolver
from sigmacube.core.parallel import ParallelMap
from sigmacube.core.rank import (
    leading_eigenpairs,
    near_edge_inflation,
    noise_edge,
    residual_share,
)
from sigmacube.core.whitening import Noise
from sigmacube.noise.clipping import Bounds, censored
from sigmacube.noise.sample import NoiseSample, precision
from sigmacube.noise.signal_noise import LARGEST_FACTOR, SignalNoise

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
# Signal whose variance is less than this share of its square is constant, to single precision.
CONSTANT = 1e-5
# Noise whose variance differs less than so much between elements of a window is as good as one.
ALIKE = 0.1
# Noise counts as signal-dependent when its standard deviation varies by this much over the scene.
NOTICEABLE = 0.05
# Windows that decide whether a correlation between bands is the noise's.
JUDGED_WINDOWS = 6
# Squared singular values from this share of the squared edge on are followed from round to round,
# in so many steps of subspace iteration, where there are that many.
FOLLOWED, STEPS, FEWEST = 0.6, 2, 8
# Axes, beyond those of the signal of all windows, that a window starts from for what it has alone.
MORE = 24


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
    """One window, as (pixels, bands), over the noise that the rounds start from."""

    raw: np.ndarray
    """What was measured."""
    there: np.ndarray
    """True for elements that were measured."""
    values: np.ndarray
    """What goes into the fit: measured values, and guesses where they do not count."""
    kept: np.ndarray | None
    """True for elements whose measured value goes into the fit; None where all do."""
    clipped: tuple[np.ndarray, ...]
    """Pixels and bands of elements that were measured and lie on a bound."""
    axes: np.ndarray | None = None
    """Principal axes that the next round starts from, of bands or pixels, whichever are fewer."""


@dataclass(frozen=True, eq=False)
class _State:
    """Where the rounds have come to."""

    unit: np.ndarray
    """(bands,) what they started from; all else is over it."""
    windows: Sequence[_Window]
    model: SignalNoise
    aside: bool


@dataclass(frozen=True, eq=False)
class _Moments:
    """What one window says about the noise, in its units; sums over its pixels, per band."""

    observed: np.ndarray
    expected: np.ndarray
    line: np.ndarray
    """(5, bands) normal equations of variance against signal x beyond the reference: Σw, Σwx, Σwx²,
    Σwy, Σwxy."""
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
        state = _start(sample, std, correlation, aside, guesses, bounds)
    unit, windows, model, aside = state.unit, state.windows, state.model, state.aside
    limits = None if bounds is None else (bounds.low / unit, bounds.high / unit)
    for number in range(MAX_GUESSES):
        step = _Step(model, aside, limits, fresh=fresh and number == 0)
        windows, model, ratio, wild, tails = step.on(windows, run, signal_dependent)
        settled = False
        if not aside and wild > MANY:  # these go before anything is settled
            aside, guesses = True, True
        else:
            least = SETTLED_GUESSES if guesses else SETTLED
            settled = bool(np.median(np.abs(ratio - 1)) < least)
        look = MAX_ROUNDS if aside else LOOK  # what is far out must be settled first
        if settled or number + 1 >= ((look if rough else MAX_GUESSES) if guesses else MAX_ROUNDS):
            break
    found = _in_units(model, unit)
    return ResidualNoise(
        _on_average(found, sample) if _varies(found, sample) else _std(model) * unit,
        tails,
        wild,
        _completed(sample, windows, unit, _std(model)) if guesses and rough else sample,
        _State(unit, windows, model, aside) if guesses and not settled else None,
    )


def _std(model: SignalNoise) -> np.ndarray:
    return np.sqrt(np.diag(value)) if (value := model.value).ndim == 2 else value


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


def _start(
    sample: NoiseSample, std: np.ndarray, correlation: np.ndarray | None, aside: bool,
    guesses: bool, bounds: Bounds | None,
) -> _State:  # fmt: skip
    """Return windows over the noise to start from, ready for the first round."""
    parts = list(zip(sample.by_window, sample.valid, strict=True))
    reference = np.sum([spectra.sum(axis=0) for spectra, _ in parts], axis=0) / sample.n_pixels
    model = SignalNoise(np.zeros(len(std)), np.ones(len(std)), reference / std, correlation)
    windows, inverse, none = [], 1 / std, np.zeros(0, dtype=np.intp)
    at: tuple[np.ndarray, ...]
    dtype, axes = precision(sample.by_window, std), _common_axes(sample, std)
    for number, (spectra, valid) in enumerate(parts):
        values = np.multiply(spectra, inverse, dtype=dtype, casting="same_kind")
        kept, raw, measured = None, values, spectra
        if sample.kept is not None and sample.raw is not None:
            kept, measured = sample.kept[number][valid], sample.raw[number][valid]
            raw = np.multiply(measured, inverse, dtype=dtype, casting="same_kind")
        there, at = np.isfinite(measured), (none, none)
        if bounds is not None:
            at = np.nonzero(bounds.at(measured) & there)
        if kept is None and guesses:
            kept = np.ones(values.shape, dtype=bool)
        mine = axes if len(values) >= len(std) and correlation is None else None
        windows.append(_Window(raw, there, values, kept, at, mine))
    return _State(std, windows, model, aside)


def _common_axes(sample: NoiseSample, std: np.ndarray) -> np.ndarray | None:
    """Return the principal axes (bands, m) of all windows, over the noise; None for too few."""
    products = sample.products()
    if products.number < len(std):
        return None
    values, vectors = np.linalg.eigh(products.total / np.outer(std, std))
    seen = int(np.count_nonzero(values > noise_edge(products.number, len(std)) ** 2))
    return vectors[:, ::-1][:, : seen + MORE]


def _in_units(model: SignalNoise, unit: np.ndarray) -> SignalNoise:
    """Return a model over some noise in the units of the data."""
    return SignalNoise(
        model.gain * unit, model.offset * unit**2, np.asarray(model.reference) * unit,
        model.correlation,
    )  # fmt: skip


def _ratio(parts: Sequence[_Moments]) -> np.ndarray:
    """Return the observed over the expected standard deviation of bands."""
    observed = np.sum([part.observed for part in parts], axis=0)
    expected = np.sum([part.expected for part in parts], axis=0)
    ratio = np.sqrt(observed / np.maximum(expected, 1e-300))
    ratio[expected <= 0] = 1.0
    return ratio


def _completed(
    sample: NoiseSample, windows: Sequence[_Window], unit: np.ndarray, std: np.ndarray
) -> NoiseSample:
    """Return the sample with noise added to guesses; drawn the same every time."""
    rng, blocks = np.random.default_rng(0), []
    for block, valid, window in zip(sample.blocks, sample.valid, windows, strict=True):
        out, values = block.copy(), window.values.astype(np.float64)
        if window.kept is not None:
            pixel, band = np.nonzero(~window.kept)
            values[pixel, band] += std[band] * rng.standard_normal(len(band))
        out[valid] = values * unit
        blocks.append(out)
    return replace(sample, blocks=blocks)


@dataclass(frozen=True, eq=False)
class _Fit:
    """Components of a window, in units of the noise that was assumed."""

    left: np.ndarray
    """U (pixels, rank)."""
    singular_values: np.ndarray
    """(rank,) over the level of the noise in the window."""
    scores: np.ndarray
    """U d (pixels, rank)."""
    taken: np.ndarray
    """(rank, bands) what the components are over the noise of the bands."""


class _Round(NamedTuple):
    """What a round comes to."""

    windows: Sequence[_Window]
    model: SignalNoise
    ratio: np.ndarray
    """(bands,) standard deviations over those of the round before."""
    wild: float
    """Share of elements that are far out."""
    tails: np.ndarray
    """(bands,) variance of what was set aside, over that of the noise."""


@dataclass(frozen=True, eq=False)
class _Step:
    """One round: a window is solved, and what it leaves compared with what the noise would."""

    model: SignalNoise
    aside: bool
    limits: tuple[np.ndarray, np.ndarray] | None
    """Lower and upper bounds of the bands, if there are any."""
    fresh: bool
    """Whether guesses still hold noise, as they come with a sample."""
    noise: Noise = field(init=False)

    def __post_init__(self) -> None:
        bands = len(np.asarray(self.model.reference))
        object.__setattr__(self, "noise", Noise.create(self.model.value, bands))

    def on(self, windows: Sequence[_Window], run: ParallelMap, signal_dependent: bool) -> _Round:
        """Return what some windows come to."""
        windows, parts = zip(*run(self, windows), strict=True)
        ratio, last = _ratio(parts), self.noise.std
        line = np.sum([part.line for part in parts], axis=0)
        std = last * np.clip(ratio, 0.25, 4.0)
        tails, count = (np.sum([getattr(p, n) for p in parts], axis=0) for n in ("tails", "count"))
        return _Round(
            windows,
            _with_line(self.model, last, std, line, signal_dependent),
            ratio,
            float(np.mean([part.wild for part in parts])),
            tails / np.maximum(count, 1) * np.square(last / std),
        )

    def __call__(self, window: _Window) -> tuple[_Window, _Moments]:
        dtype = window.values.dtype
        scale = self.model.pixel_scale(window.values)[:, None]
        over_noise, over_scale = (1 / self.noise.std).astype(dtype), (1 / scale).astype(dtype)

        def in_noise(values: np.ndarray) -> np.ndarray:
            values = values * over_noise
            values *= over_scale
            return values

        given = in_noise(window.values)
        fitted, axes = self._solved(given, window)
        fit = fitted.scores @ fitted.taken
        share, spread = self._share(fitted, window), self._spread(fit, scale)
        if spread is not None:
            share *= spread
        if window.kept is None:
            square, kept, values = np.square(given - fit), None, window.values
        else:
            raw = given if window.values is window.raw else in_noise(window.raw)
            square, kept, values = self._judged(window, raw, fit, scale, share)
            # A component that is noise would live on its own guesses, were they not smaller.
            # The more is guessed, the more so.
            power = 2 * max(1.0, 2 * float(kept.mean()))
            shrunk = fitted.scores * _shrinkage(fitted, given.shape, power).astype(dtype)
            values = self._guessed(window, values, kept, shrunk @ fitted.taken, scale)
        moments = self._moments(window, square, (share, spread), kept, fit, scale)
        kept = window.there if kept is None and self.aside else kept
        return replace(window, values=values, kept=kept, axes=axes), moments

    def _solved(self, values: np.ndarray, window: _Window) -> tuple[_Fit, np.ndarray | None]:
        """Return the components of a window (pixels, bands), and axes for the next round."""
        noise, dtype = self.noise, values.dtype
        mixing = None if noise.is_diagonal else noise.factor / noise.std[:, None]
        white = values
        if mixing is not None:
            white = values @ (noise.inverse_factor * noise.std).T.astype(dtype)
        # With guesses in the place of noise singular values are smaller; so must the edge be.
        level = 1.0
        if window.kept is not None and not self.fresh:
            level = float(np.sqrt(max(float(window.kept.mean()), 1e-3)))
        floor, tall = level * noise_edge(*white.shape), white.shape[0] >= white.shape[1]
        d, vectors, axes = _above(white if tall else white.T, floor, window.axes)
        vectors = vectors.astype(dtype)
        other = (white if tall else white.T) @ (vectors / d.astype(dtype))
        left, right = (other, vectors) if tall else (vectors, other)
        taken = right.T if mixing is None else right.T @ mixing.T.astype(dtype)
        return _Fit(left, d / level, left * d.astype(dtype), taken), axes

    def _share(self, fitted: _Fit, window: _Window) -> np.ndarray:
        """Return the share of the noise that the fit leaves of every element; zero for little."""
        inflation = near_edge_inflation(fitted.singular_values, *window.values.shape)
        freedom, left = (
            residual_share(np.square(part, dtype=np.float64), inflation)
            for part in (fitted.left.T, fitted.taken)
        )
        if window.kept is not None:  # what fewer elements tell takes more of each
            kept, dtype = window.kept, window.values.dtype
            by_band, by_pixel = (
                1 / np.maximum(np.count_nonzero(kept, axis=i) / kept.shape[i], LEAST_KEPT)
                for i in (0, 1)
            )
            return _product(
                1 - np.multiply.outer((1 - freedom).astype(dtype), by_band.astype(dtype)),
                1 - np.multiply.outer(by_pixel.astype(dtype), (1 - left).astype(dtype)),
            )
        return _product(freedom[:, None], left[None]).astype(window.values.dtype)

    def _spread(self, fit: np.ndarray, scale: np.ndarray) -> np.ndarray | None:
        """Return the variance of elements over that of one factor per pixel; None if all are one.

        Where bands of a pixel differ in brightness, what is far out of the one is not of the other.
        """
        slope = np.asarray(self.model.gain) / self.noise.std
        if not np.any(slope * np.ptp(fit, axis=0) > ALIKE):
            return None
        beyond = fit * scale.astype(fit.dtype)
        beyond -= (np.asarray(self.model.reference) / self.noise.std).astype(fit.dtype)
        beyond *= slope.astype(fit.dtype)
        beyond += 1
        beyond /= np.square(scale).astype(fit.dtype)
        return np.clip(beyond, 1 / LARGEST_FACTOR, LARGEST_FACTOR, out=beyond)

    def _judged(
        self, window: _Window, raw: np.ndarray, fit: np.ndarray, scale: np.ndarray,
        share: np.ndarray,
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:  # fmt: skip
        """Return squares of what is left, which elements count, and what clipped ones were."""
        square, kept, at = np.square(raw - fit), window.there, window.clipped
        if not kept.all():
            square[~kept] = 0
        clipped = np.zeros(0)
        if self.limits is not None and len(at[0]):
            unit = self.noise.std[at[1]] * scale[at[0], 0]
            mean = fit[at].astype(np.float64)
            low, high = (limit[at[1]] / unit for limit in self.limits)
            # In single precision a value may miss its own bound by rounding.
            bound = np.where(raw[at] - low < high - raw[at], low, high)
            clipped, spread = censored(bound, mean, 1.0, (low, high))
            square[at] = share[at] * (np.square(clipped - mean) + spread)
            kept = kept.copy()
            kept[at] = np.minimum(mean - low, high - mean) <= FAR_INSIDE
            clipped *= unit
        if self.aside:
            kept = kept & (square <= ASIDE**2 * np.where(share > 0, share, 1))
        return square, kept, clipped

    def _guessed(
        self, window: _Window, clipped: np.ndarray, kept: np.ndarray, guess: np.ndarray,
        scale: np.ndarray,
    ) -> np.ndarray:  # fmt: skip
        """Return the values to fit next: measured, what clipped ones were, and guesses."""
        values = window.raw.copy()
        if len(clipped):
            values[window.clipped] = clipped
        pixel, band = np.nonzero(~kept)
        values[pixel, band] = guess[pixel, band] * scale[pixel, 0] * self.noise.std[band]
        return values

    def _moments(
        self, window: _Window, square: np.ndarray, shares: tuple[np.ndarray, np.ndarray | None],
        kept: np.ndarray | None, fit: np.ndarray, scale: np.ndarray,
    ) -> _Moments:  # fmt: skip
        """Compare squares with what is expected of them."""
        share, spread = shares
        tells, there = share > 0, window.there
        seen = there & tells
        wild = np.count_nonzero((square > WILD**2 * share) & seen) / max(int(seen.sum()), 1)
        counts = tells if kept is None else kept & tells
        weight = counts.astype(square.dtype)
        constant = CLIPPED if kept is None or not self.aside else KEPT
        near = np.minimum(square, OUTLIER**2 * share)
        near *= weight
        tails, out = np.zeros(share.shape[1]), there & ~counts
        if out.any():
            out &= np.count_nonzero(out, axis=1)[:, None] < ALONE * out.shape[1]
            tails = np.where(out, square, 0.0).sum(axis=0)
        observed = near.sum(axis=0).astype(np.float64)
        near /= constant * np.where(tells, share, 1)
        if spread is not None:
            near *= spread
        beyond = fit * scale.astype(fit.dtype)
        beyond -= (np.asarray(self.model.reference) / self.noise.std).astype(fit.dtype)
        return _Moments(
            observed,
            constant * (weight * share).sum(axis=0).astype(np.float64),
            _normal_equations(beyond, near, scale[:, 0] ** 2, weight),
            tails,
            np.count_nonzero(there, axis=0),
            float(wild),
        )


def _product(freedom: np.ndarray, left: np.ndarray) -> np.ndarray:
    """Return the product of two shares (pixels, bands), zero where one of them is little."""
    share = np.asarray(freedom * left)
    for part in (freedom, left):
        if part.min(initial=1.0) <= SMALLEST_SHARE:
            share = np.where(part > SMALLEST_SHARE, share, 0)
    return share


def _above(
    patch: np.ndarray, floor: float, axes: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Return singular values above a floor, falling, right vectors, and axes to go on from.

    From the axes of almost the same patch (n, m) some products are enough.
    """
    double = patch.astype(np.float64, copy=False)
    gram = double.T @ double
    if not resolves(float(np.trace(gram)), patch.shape):
        return *components(double, floor=floor), None
    if axes is None or axes.shape[1] < FEWEST:
        values, axes = leading_eigenpairs(gram, floor=FOLLOWED * floor**2)
    else:
        for _ in range(STEPS):
            axes = np.linalg.qr(gram @ axes)[0]
        values, turn = np.linalg.eigh(axes.T @ (gram @ axes))
        followed = max(int(np.count_nonzero(values > FOLLOWED * floor**2)), FEWEST)
        values, axes = values[::-1][:followed], axes @ turn[:, ::-1][:, :followed]
    above = values > floor**2
    return np.sqrt(values[above]), axes[:, above], axes


def _shrinkage(fitted: _Fit, shape: tuple[int, int], power: float) -> np.ndarray:
    """Return (components,) factors that are small near the noise edge."""
    return np.maximum(1 - (noise_edge(*shape) / fitted.singular_values) ** power, 0.0)


def _normal_equations(
    signal: np.ndarray, variance: np.ndarray, power: np.ndarray, weight: np.ndarray
) -> np.ndarray:
    """Return Σw, Σwx, Σwx², Σwy, Σwxy per band for y = variance · power, weights 1 / power².

    ``variance`` is zero where the weight is.
    """
    w, wp = (part.astype(signal.dtype) for part in (power**-2.0, power**-1.0))
    seen = weight * signal
    sums = w @ weight, w @ seen, w @ (seen * signal), wp @ variance, wp @ (variance * signal)
    return np.stack(sums).astype(np.float64)


def _with_line(
    model: SignalNoise, last: np.ndarray, std: np.ndarray, sums: np.ndarray, signal_dependent: bool
) -> SignalNoise:
    """Return the model with new standard deviations at its reference, and the line fitted anew.

    ``sums`` are in units of the noise ``last``, with the signal beyond the reference.
    """
    reference = np.asarray(model.reference)
    if not signal_dependent:
        return SignalNoise(np.zeros_like(std), std**2, reference, model.correlation)
    s0, s1, s2, t0, t1 = sums * np.stack([last**power for power in (0, 1, 2, 2, 3)])
    determinant = s0 * s2 - s1**2
    with np.errstate(divide="ignore", invalid="ignore"):
        gain = np.where(determinant > CONSTANT * s0 * s2, (s0 * t1 - s1 * t0) / determinant, 0.0)
    s2, t1 = s2 + 2 * reference * s1 + reference**2 * s0, t1 + reference * t0
    s1 = s1 + reference * s0
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


def _on_average(model: SignalNoise, sample: NoiseSample) -> SignalNoise:
    """Return the model with bands scaled so that one factor per pixel holds on average.

    What is over that factor has unit variance in every band then, whatever it has in single pixels.
    """
    inverse = 1 / np.square(model.pixel_scale(sample.spectra))
    gain, offset = np.asarray(model.gain), np.asarray(model.offset)
    mean = gain * (inverse @ sample.spectra) / len(inverse) + offset * inverse.mean()
    share = np.maximum(mean, SMALLEST_OFFSET * np.square(_std(model))) / np.square(_std(model))
    return replace(model, gain=gain * share, offset=offset * share)


def _varies(model: SignalNoise, sample: NoiseSample) -> bool:
    """Tell whether the noise depends on the signal enough to matter, in any elements."""
    gain, offset = np.asarray(model.gain), np.asarray(model.offset)
    level = _std(model)
    stds = [np.sqrt(gain * np.maximum(spectra, 0) + offset) / level for spectra in sample.by_window]
    return float(np.std(np.concatenate(stds))) > NOTICEABLE
