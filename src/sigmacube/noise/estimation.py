"""Noise of a scene, estimated from the scene itself."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sigmacube.core.card import Card, spread_of
from sigmacube.core.parallel import ParallelMap, parallel
from sigmacube.core.tables import load
from sigmacube.core.validity import mean_spectrum, of_bands, partly_valid, valid_elements
from sigmacube.core.whitening import Noise
from sigmacube.noise import ESTIMATORS
from sigmacube.noise.band_correlation import ALIKE, LAGS, correlation_matrix
from sigmacube.noise.band_screen import BandScreen, screen_bands
from sigmacube.noise.clipping import Bounds
from sigmacube.noise.differences import (
    DifferencesNoise,
    differences_noise,
    second_differences,
)
from sigmacube.noise.growth import refined
from sigmacube.noise.level import noise_share, scene_correlation
from sigmacube.noise.regression import regression_by, regression_noise
from sigmacube.noise.residual import fewer_components, residual_noise
from sigmacube.noise.sample import FEWEST, MORE, NoiseSample
from sigmacube.noise.shared import shared_noise, small_gains
from sigmacube.noise.signal_noise import SignalNoise, value_of

__all__ = ["NoiseEstimate", "estimate_noise", "fit_noise"]

DEFAULT = "differences+residual"
# Correlations between bands below this are left out: a diagonal is simpler and does not differ.
CORRELATED = 0.05
# Bands that repeat another one share all of its noise but this much.
OWN_NOISE = 0.01
# Share of values that must be there to look for noise that bands share: guesses share their errors.
MOSTLY = 0.9
# Share of values on the bounds of their bands from which on noise outside of directions is less.
RARELY = 0.01
# Noise below this share of the values is what rounding leaves.
ROUNDING = 1e-6
# A constant band gets this share of its value, so that windows keep it as it is.
NOMINAL = 1e-3

# Correlation between bands by distance, where there is none.
INDEPENDENT = np.eye(1, LAGS + 1)[0]

Found = tuple[np.ndarray | SignalNoise, DifferencesNoise | None]
"""Noise of the usable bands, and what differences say where they were looked at."""

log = logging.getLogger("sigmacube")


@dataclass(frozen=True, eq=False)
class NoiseEstimate(Card):
    """The noise of a scene and how it was found."""

    model: np.ndarray | SignalNoise
    """(bands,) standard deviations, (bands, bands) covariance, or a signal-dependent model."""
    source: str
    """Name of the estimator, ``"differences+residual"`` for the default."""
    spatial_lag1: float
    """Correlation of the noise between neighbouring pixels; NaN where it was not looked at."""
    by_lag: np.ndarray
    """Correlation of the noise between bands at distances 0, 1, …, `LAGS`; zeros where it is left
    out."""
    screen: BandScreen
    """Bands that stand out, over all bands of the cube; those without data count as constant."""
    wild_share: float = 0.0
    """Share of values far outside the noise."""
    shared: float = 0.0
    """Noise that all bands of a pixel share, in units of their own; zero where none was found."""
    shared_doubtful: bool = False
    """Whether there may be such noise that cannot be told from texture."""

    def _facts(self) -> Mapping[str, str]:
        kind = ("", "per band", "covariance between bands")[self.value.ndim]
        grows = ", grows with the signal" if self.signal_dependent else ""
        return {"σ": spread_of(self.std), "kind": kind + grows, "estimator": self.source}

    @property
    def value(self) -> np.ndarray:
        """Noise at the scene's mean spectrum: (bands,) stds or (bands, bands) covariance."""
        return value_of(self.model)

    @property
    def std(self) -> np.ndarray:
        """(bands,) standard deviation at the scene's mean spectrum."""
        return _std(self.model)

    @property
    def signal_dependent(self) -> bool:
        """Whether the variance grows with the signal."""
        return isinstance(self.model, SignalNoise)

    def independent(self) -> NoiseEstimate:
        """Return the estimate without correlation between bands, for windows that cut them."""
        if self.value.ndim < 2:
            return self
        log.warning("noise is correlated between bands; left out because windows cut the bands")
        model: np.ndarray | SignalNoise = self.std
        if isinstance(self.model, SignalNoise):
            model = replace(self.model, correlation=None)
        return replace(self, model=model)

    def summary(self) -> dict[str, Any]:
        """Return what was found, JSON-like."""
        kind = "covariance" if self.value.ndim == 2 else "per band"
        facts: dict[str, Any] = {"kind": kind, "signal_dependent": self.signal_dependent}
        if self.value.ndim == 2:
            facts["band_correlation"] = [round(float(r), 4) for r in self.by_lag]
        if np.isfinite(self.spatial_lag1):
            facts["spatial_lag1"] = round(self.spatial_lag1, 4)
        clipped = self.screen.clipped_share(self.std)
        coarse = np.median(self.screen.step / self.std)
        for name, value in (("clipped_share", clipped), ("step_over_noise", float(coarse)),
                            ("wild_share", self.wild_share)):  # fmt: skip
            if value > 0:
                facts[name] = round(value, 5)
        if self.shared:
            facts["shared"] = round(self.shared, 3)
        if self.shared_doubtful:
            facts["shared_doubtful"] = True
        for name, where in self.screen.named().items():
            if where.any():
                facts[f"{name}_bands"] = np.flatnonzero(where).tolist()
        return facts

    def describe(self) -> str:
        """Return one line on what was found."""
        kind = "correlated between bands" if self.value.ndim == 2 else "one level per band"
        if self.value.ndim == 2:
            kind += f" (neighbours {self.by_lag[1]:+.2f})"
        if self.signal_dependent:
            kind += ", growing with the signal"
        return f"noise estimated by {self.source}: {kind}, median {np.median(self.std):.3g}"


def estimate_noise(
    values: np.ndarray,
    method: str | None = None,
    *,
    mask: np.ndarray | None = None,
    workers: int | None = None,
) -> np.ndarray:
    """Return the noise of a cube: a standard deviation per band, or a band covariance.

    Parameters
    ----------
    values
        (row, col, band) cube.
    method
        ``"regression"``, ``"differences"``, ``"residual"``, or None for the default combination
        (see `fit_noise`).
    mask
        True where values are valid.
    workers
        Threads; the number of processors by default.

    Examples
    --------
    >>> import numpy as np, sigmacube as sc
    >>> truth = sc.synthetic.scene((60, 50, 40), rng=1).values
    >>> noisy = truth + np.random.default_rng(2).normal(scale=0.01, size=truth.shape)
    >>> std = estimate_noise(noisy)
    >>> std.shape, bool(abs(np.median(std) / 0.01 - 1) < 0.05)
    ((40,), True)
    """
    return fit_noise(values, method, mask=mask, workers=workers).value


def fit_noise(
    values: np.ndarray,
    method: str | None = None,
    *,
    mask: np.ndarray | None = None,
    workers: int | None = None,
    impulses: bool = False,
    many: float = np.inf,
    sample: NoiseSample | None = None,
) -> NoiseEstimate:
    """Estimate the noise of a cube and say how.

    The default takes the correlation between bands from differences of neighbouring pixels, which
    tell noise from signal, and the level per band, with its growth with the signal, from the
    residual of a first denoising, which sees all the noise there is.

    Parameters
    ----------
    values, method, mask, workers
        As for `estimate_noise`.
    impulses
        Whether a solver will set impulses aside, so that they are no noise.
    many
        Share of values far outside the noise from which on it will do so in any case.
    sample
        Windows of the cube, if these have been taken.
    """
    if method is not None and method not in ESTIMATORS:
        names = ", ".join(repr(name) for name in ESTIMATORS)
        raise ValueError(f"Invalid noise {method!r}. An estimator must be one of {names}.")
    bands, valid, missing = partly_valid(values, mask)
    spectra = of_bands(values.reshape(-1, values.shape[2]) if valid.all() else values[valid], bands)
    if missing is not None:
        spectra = np.where(missing[valid], np.nan, spectra)
    with parallel(workers) as run:
        screen = screen_bands(spectra, run)
        part = _estimated(values, mask, bands, screen, method, impulses, run, sample)
    if not impulses and part.wild_share >= many:
        again = fit_noise(values, method, mask=mask, workers=workers, impulses=True)
        return replace(again, wild_share=max(part.wild_share, again.wild_share))
    estimate = _on_all_bands(part, bands, spectra, values.shape[2])
    log.info(estimate.describe())
    return estimate


def _estimated(
    values: np.ndarray, mask: np.ndarray | None, bands: np.ndarray, screen: BandScreen,
    method: str | None, impulses: bool, run: ParallelMap, sample: NoiseSample | None,
) -> NoiseEstimate:  # fmt: skip
    """Return the estimate on the usable ones of the bands with data."""
    _announce(screen, bands)
    if not screen.usable.any():
        raise ValueError(
            "Invalid scene for a noise estimate: every band is constant. Give the noise instead."
        )
    bounds = screen.bounds.select(screen.usable) if screen.bounds.any else None
    usable = bands[screen.usable]
    # Impulses are told by bounds, which nobody knew of when windows were taken before.
    if sample is None or impulses or not np.array_equal(sample.positions, usable):
        sample = NoiseSample.of(values, mask, usable, impulses=impulses, bounds=bounds)
    if method is None:
        every = sample
        few = FEWEST <= len(sample.blocks) < MORE  # with fewer it has all of them
        if few and sample.kept is None and bounds is None and not impulses:
            # The level is asked of more pixels: where the error is 1 % of the noise, so must it be.
            every = NoiseSample.create(values, usable, _valid(values, mask, usable), more=True)
        return _default((sample, every), run, screen, bounds, impulses)
    model, found = load(ESTIMATORS[method])(sample, run)
    part = _found(model, found, method, screen)
    _check_positive(part.std, usable)
    return part


def _found(
    model: np.ndarray | SignalNoise, found: DifferencesNoise | None, source: str, screen: BandScreen
) -> NoiseEstimate:
    if found is None:
        return NoiseEstimate(model, source, np.nan, INDEPENDENT, screen)
    by_lag = np.append(found.bands.by_lag, np.zeros(LAGS))[: LAGS + 1]
    return NoiseEstimate(model, source, found.spatial_lag1, by_lag, screen)


def _valid(values: np.ndarray, mask: np.ndarray | None, bands: np.ndarray) -> np.ndarray:
    """Return (row, col) True for pixels that have any of some bands."""
    return np.asarray(of_bands(valid_elements(values, mask), bands).any(axis=2))


def _default(
    samples: tuple[NoiseSample, NoiseSample], run: ParallelMap, screen: BandScreen,
    bounds: Bounds | None, impulses: bool,
) -> NoiseEstimate:  # fmt: skip
    """Take the correlation of bands from differences, level and growth from the residual.

    Of the first sample; the level in all from the second.
    """
    sample, every = samples
    rough = _rough_noise(sample, run)
    level = residual_noise(sample, rough, run, aside=impulses, bounds=bounds, rough=True)
    whole = level.sample if level.sample.kept is None else replace(
        level.sample, kept=None, raw=None)  # fmt: skip
    # What other bands do not predict of a band has one level where correlation is the same.
    even = rough if whole.blocks is sample.blocks else _rough_noise(whole, run)
    found, correlation = _differences(whole, even, run)
    if correlation is not None:
        start = np.maximum(found.bands.std, _std(level.model))
        level = residual_noise(
            level.sample, start, run, correlation=correlation, aside=impulses, bounds=bounds
        )
    elif level.state is not None:
        level = residual_noise(sample, rough, run, bounds=bounds, state=level.state)
    model = level.model
    if not isinstance(model, SignalNoise):
        model = _covariance(model, correlation)
    _check_positive(_std(model), sample.positions)
    if isinstance(model, SignalNoise) and not impulses and _rarely_clipped(bounds):
        model = refined(whole, model)
    if sample.kept_share > MOSTLY and _rarely_clipped(bounds):
        every = whole if every is sample else every
        found, model = _by_scene(found, model, whole, every, run)
    part = replace(_found(model, found, DEFAULT, screen), wild_share=level.wild_share)
    if sample.kept_share > MOSTLY:
        part = _with_shared(part, whole, run)
    return part if impulses else _with_tails(part, level.tails)


def _std(model: np.ndarray | SignalNoise) -> np.ndarray:
    return np.sqrt(np.diag(v)) if (v := value_of(model)).ndim == 2 else v


def _with_tails(part: NoiseEstimate, tails: np.ndarray) -> NoiseEstimate:
    """Return the estimate with the variance of what is too far out for a Gaussian.

    A solver that sets nothing aside has it in its estimates.
    """
    growth = 1 + tails
    model = part.model
    if isinstance(model, SignalNoise):
        return replace(part, model=replace(model, gain=model.gain * growth,
                                           offset=model.offset * growth))  # fmt: skip
    if model.ndim == 1:
        return replace(part, model=model * np.sqrt(growth))
    return replace(part, model=model + np.diag(tails * np.diag(model)))


def _rarely_clipped(bounds: Bounds | None) -> bool:
    """Tell whether so few values lie on bounds that what is left of the noise is all of it."""
    return bounds is None or float(np.mean(bounds.share_low + bounds.share_high)) < RARELY


def _by_scene(
    found: DifferencesNoise,
    model: np.ndarray | SignalNoise,
    sample: NoiseSample,
    every: NoiseSample,
    run: ParallelMap,
) -> tuple[DifferencesNoise, np.ndarray | SignalNoise]:
    """Return correlation and level of the noise by what the whole scene leaves outside of signal.

    Noise that almost all bands share lies inside, and what is left tells nothing of its level.
    """
    if value_of(model).ndim == 2:
        bands = scene_correlation(sample, model, run)
        if bands is not None:
            found = found._replace(bands=found.bands._replace(by_lag=bands.by_lag))
            correlation = correlation_matrix(bands.by_lag, sample.positions)
            if isinstance(model, SignalNoise):
                model = replace(model, correlation=correlation)
            else:
                model = _covariance(_std(model), correlation)
    if found.bands.by_lag[:2][-1] < ALIKE:
        model = _scaled(model, noise_share(every, model, run))
    return found, model


def _scaled(model: np.ndarray | SignalNoise, factor: float) -> np.ndarray | SignalNoise:
    """Return the noise with its variance multiplied by a factor."""
    if isinstance(model, SignalNoise):
        return replace(model, gain=model.gain * factor, offset=model.offset * factor)
    return model * (factor if model.ndim == 2 else np.sqrt(factor))


def _check_positive(std: np.ndarray, bands: np.ndarray) -> None:
    """Refuse noise that no values show: too few of them, or steps of which most are the same."""
    lacking = ~(np.isfinite(std) & (std > 0))
    if lacking.any():
        raise ValueError(
            f"Invalid scene for a noise estimate: that of band {bands[lacking][0]} comes out as "
            f"{std[lacking][0]:g}. It must be positive. Give the noise instead."
        )


def by_regression(sample: NoiseSample, run: ParallelMap) -> Found:
    """Estimate the noise by what other bands do not predict of a band."""
    return regression_noise(sample.spectra), None


def by_residual(sample: NoiseSample, run: ParallelMap) -> Found:
    """Estimate the noise by what a first denoising removes."""
    found = residual_noise(sample, _rough_noise(sample, run), run, signal_dependent=False)
    return found.model, None


def by_differences(sample: NoiseSample, run: ParallelMap) -> Found:
    """Estimate the noise, with its correlation between bands, by differences of neighbours."""
    found, correlation = _differences(sample, _rough_noise(sample, run), run)
    return _covariance(found.bands.std, correlation), found


def _with_shared(part: NoiseEstimate, sample: NoiseSample, run: ParallelMap) -> NoiseEstimate:
    """Return the estimate with the noise that all bands of a pixel share, where there is some.

    Rounding is no less than it is: a band that is hardly ever off its step would tell all others.
    """
    known = Noise.create(part.value, sample.n_bands)
    least = part.screen.step[part.screen.usable] / np.sqrt(12) / known.std
    if np.any(least > 1):
        grown = np.maximum(least, 1.0)
        known = Noise.create(known.factor @ known.factor.T * np.outer(grown, grown), sample.n_bands)
    shared, doubtful = shared_noise(sample, known, run)
    if shared is None and not isinstance(part.model, SignalNoise):
        shared, large = small_gains(sample, known, run)
        doubtful |= large
    if shared is None:
        return replace(part, shared_doubtful=doubtful)
    total = known.factor @ known.factor.T + shared
    std = np.sqrt(np.diag(total))
    model: np.ndarray | SignalNoise = total
    if isinstance(part.model, SignalNoise):
        growth, correlation = (std / known.std) ** 2, total / np.outer(std, std)
        gain, offset = part.model.gain * growth, part.model.offset * growth
        model = replace(part.model, gain=gain, offset=offset, correlation=correlation)
    share = float(np.median(np.sqrt(np.diag(shared)) / known.std))
    return replace(part, model=model, shared=share, shared_doubtful=doubtful)


def _differences(
    sample: NoiseSample, rough: np.ndarray, run: ParallelMap
) -> tuple[DifferencesNoise, np.ndarray | None]:
    """Return what differences say, and the correlation of bands; None where it is not needed."""
    found = differences_noise(sample, rough, run)
    bands = found.bands
    if bands.clear and np.max(np.abs(bands.by_lag[1:])) >= CORRELATED:
        correlation = correlation_matrix(bands.by_lag, sample.positions)
        if bands.sure or fewer_components(sample, bands.std, correlation, run):
            return found, correlation
    return found._replace(bands=bands._replace(by_lag=INDEPENDENT)), None


def _covariance(std: np.ndarray, correlation: np.ndarray | None) -> np.ndarray:
    return std if correlation is None else correlation * np.outer(std, std)


def _rough_noise(sample: NoiseSample, run: ParallelMap) -> np.ndarray:
    """Return a first standard deviation per band, rather too large than too small."""
    products = sample.products(run)
    total, count = products.total, products.number
    size = np.sqrt(np.diag(total) / count)
    if not np.all(size > 0):  # what differs was taken for impulses
        raise ValueError(
            "Invalid scene for a noise estimate: all values of a band are the same, but for "
            "impulses. Give the noise instead."
        )
    if count >= 2 * sample.n_bands:
        std = regression_by(total, count)
    else:
        pairs = zip(sample.blocks, sample.valid, strict=True)
        changes = np.concatenate([second_differences(*pair) for pair in pairs])
        if not len(changes):
            raise ValueError(
                f"Invalid scene for a noise estimate: {count} valid pixels, and no square "
                "of four neighbours among them. Give the noise instead."
            )
        std = 1.4826 * np.median(np.abs(changes), axis=0)
    if np.median(std / size) < ROUNDING:
        raise ValueError(
            "Invalid scene for a noise estimate: it is noise-free, to the precision of its numbers "
            f"({np.median(std / size):.1g} of the values). Give the noise instead."
        )
    # A band that others determine exactly must not be given infinite weight.
    return np.maximum(std, 1e-3 * np.median(std / size) * size)


def _announce(screen: BandScreen, bands: np.ndarray) -> None:
    """Log what stands out."""
    for name, where in screen.named().items():
        if where.any():
            found = bands[where]
            first = ", ".join(map(str, found[:8])) + (", …" if len(found) > 8 else "")
            log.warning("%d %s band%s: %s", len(found), name, "s" * (len(found) > 1), first)


def _on_all_bands(
    part: NoiseEstimate, bands: np.ndarray, spectra: np.ndarray, n_bands: int
) -> NoiseEstimate:
    """Return the estimate of the usable bands for all bands of the cube.

    Quantisation adds its Δ²/12 at least. A band that repeats another takes over its noise and
    shares it. Bands without a measurement of their own get a nominal level that lets them pass
    through the windows: they are constant, so nothing depends on it.
    """
    screen = part.screen
    mean = mean_spectrum(spectra[None], np.ones((1, len(spectra)), dtype=bool))
    model = part.model
    if isinstance(model, SignalNoise):  # windows had a mean of their own
        model = replace(model, reference=mean[screen.usable])
    spread = _Spread.create(screen, bands, spectra, (mean, _std(model)), n_bands)
    model = spread.model(model)
    twins = np.where(screen.duplicate_of < 0, -1, bands[screen.duplicate_of])
    whole = BandScreen(
        _scatter(screen.constant, bands, n_bands, True),
        _scatter(twins, bands, n_bands, -1),
        _scatter(screen.step, bands, n_bands, 0.0),
        Bounds(
            _scatter(screen.bounds.low, bands, n_bands, -np.inf),
            _scatter(screen.bounds.high, bands, n_bands, np.inf),
            _scatter(screen.bounds.share_low, bands, n_bands, 0.0),
            _scatter(screen.bounds.share_high, bands, n_bands, 0.0),
        ),
    )
    return replace(part, model=model, screen=whole)


def _scatter(array: np.ndarray, bands: np.ndarray, n_bands: int, fill: float) -> np.ndarray:
    out = np.full(n_bands, fill, dtype=array.dtype)
    out[bands] = array
    return out


@dataclass(frozen=True, eq=False)
class _Spread:
    """How the noise of the usable bands is passed on to all bands."""

    origin: np.ndarray
    """(bands,) position among the usable bands that a band takes its noise from; −1 for none."""
    scale: np.ndarray
    """(bands,) factor on the origin's standard deviation."""
    nominal: np.ndarray
    """(bands,) standard deviation where there is no origin."""
    reference: np.ndarray
    """(bands,) mean of every band."""

    @classmethod
    def create(
        cls,
        screen: BandScreen,
        bands: np.ndarray,
        spectra: np.ndarray,
        level: tuple[np.ndarray, np.ndarray],
        n_bands: int,
    ) -> _Spread:
        """Find the origin of every band's noise.

        ``spectra`` are the valid ones of the bands with data; ``level`` is their mean, and the
        usable bands' noise there.
        """
        mean, std = level
        usable = np.flatnonzero(screen.usable)
        place = np.full(len(bands), -1)
        place[usable] = np.arange(len(usable))
        twin = screen.duplicate_of >= 0
        root = np.where(twin, screen.duplicate_of, np.arange(len(bands)))
        ratio = np.ones(len(bands))
        if twin.any():
            own, first = (np.nanstd(spectra[:, b], axis=0) for b in (twin, root[twin]))
            ratio[twin] = own / first
        floor = screen.step[usable] / np.sqrt(12)
        quantised = np.ones(len(bands))
        quantised[usable] = np.maximum(1.0, floor / std)
        scale = ratio * quantised[root]
        least = np.median(screen.step[usable]) / np.sqrt(12) or NOMINAL * np.min(std)
        nominal = np.maximum(NOMINAL * np.abs(mean), least)
        return cls(
            _scatter(place[root], bands, n_bands, -1),
            _scatter(scale, bands, n_bands, 1.0),
            _scatter(nominal, bands, n_bands, float(least)),
            _scatter(mean, bands, n_bands, 0.0),
        )

    def model(self, part: np.ndarray | SignalNoise) -> np.ndarray | SignalNoise:
        """Return the noise of all bands from that of the usable ones."""
        if isinstance(part, SignalNoise):
            has = self.origin >= 0
            gain = np.where(has, np.asarray(part.gain)[self.origin] * self.scale**2, 0.0)
            offset = np.where(has, np.asarray(part.offset)[self.origin] * self.scale**2, 0.0)
            offset = np.where(has, offset, self.nominal**2)
            return SignalNoise(gain, offset, self.reference, self.correlation(part.correlation))
        diagonal = part if part.ndim == 1 else np.sqrt(np.diag(part))
        std = np.where(self.origin >= 0, diagonal[self.origin] * self.scale, self.nominal)
        own = None if part.ndim == 1 else part / np.outer(diagonal, diagonal)
        correlation = self.correlation(own)
        return std if correlation is None else correlation * np.outer(std, std)

    def correlation(self, part: np.ndarray | None) -> np.ndarray | None:
        """Return the correlation of all bands; None where they are independent."""
        has = np.flatnonzero(self.origin >= 0)
        origin = self.origin[has]
        repeated = len(np.unique(origin)) < len(origin)
        if part is None and not repeated:
            return None
        matrix = np.eye(len(self.origin))
        own = np.eye(int(origin.max()) + 1) if part is None else part
        shared = own[np.ix_(origin, origin)]
        if repeated:
            twins = np.equal.outer(origin, origin) & ~np.eye(len(origin), dtype=bool)
            involved = twins.any(axis=1)
            keep = np.where(involved, 1 - OWN_NOISE, 1.0)
            shared = shared * np.sqrt(np.outer(keep, keep))
            np.fill_diagonal(shared, 1.0)
        matrix[np.ix_(has, has)] = shared
        return matrix
