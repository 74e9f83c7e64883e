"""Calibration of a scene's error bars on the scene itself, without truth."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import ndtri

from sigmacube.core.hidden_elements import hide_elements
from sigmacube.core.leave_one_out import SolvedScene, band_spread, leave_one_out
from sigmacube.core.noise_differences import signal_directions
from sigmacube.core.noise_estimation import SPATIALLY_CORRELATED, spatial_warning
from sigmacube.core.noise_sample import NoiseSample
from sigmacube.core.parallel import parallel
from sigmacube.pipeline import as_cube, denoise
from sigmacube.result import DenoisedCube

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.figure import Figure

    from sigmacube.cube import Cube

__all__ = ["Holdout", "holdout"]

LEVELS = (0.5, 0.68, 0.9, 0.95, 0.99)
N_CLASSES = 5
# What counts as calibrated, at 95 and at 50 %.
GOOD_95, GOOD_50 = (0.93, 0.97), (0.45, 0.55)
# Spatial tests: autocorrelation, beyond the noise's own, from which something is wrong.
SIGNAL_REMOVED, NOISE_KEPT = 0.05, 0.05
COPIES = 0.01


@dataclass(frozen=True)
class BrightnessClass:
    """Calibration of the pixels of one brightness class."""

    low: float
    """Least mean value over bands."""
    high: float
    """Largest mean value over bands."""
    coverage: float
    """Share of the elements inside their 95 % interval."""
    coverage_error: float
    """Standard error of the coverage."""
    z_std: float
    """Root mean square of the standardised errors."""


@dataclass(frozen=True, eq=False)
class Holdout:
    """How often predictions of elements from all others fell inside their intervals.

    It tests the noise and the fit outside the signal space; the two autocorrelations test whether
    the signal space is right: the removed part must be as white in space as noise is, the weakest
    kept components must not be.
    """

    coverage: Mapping[float, float]
    """Share of the elements inside their interval, by level."""
    coverage_error: Mapping[float, float]
    """Standard errors of these shares, from how much windows differ."""
    z_std: float
    """Root mean square of the standardised errors: 1 is right, above means σ is too small."""
    band_coverage: np.ndarray
    """(band,) share inside the 95 % interval; NaN for bands without data."""
    band_coverage_error: np.ndarray
    """(band,) its standard error."""
    band_factors: np.ndarray
    """(band,) root mean square of the standardised errors: what `calibrated` scales σ by."""
    brightness: tuple[BrightnessClass, ...]
    """Calibration by brightness of the pixel, dark to bright."""
    removed_lag1: float
    """Autocorrelation of what was removed, between neighbours, less what the fits cause."""
    weakest_lag1: float
    """Mean autocorrelation of the weakest kept component; NaN where windows keep one or none."""
    noise_lag1: float
    """Autocorrelation of the noise itself; not zero where the product was resampled."""
    copied_pixels: float
    """Share of neighbouring pixels that are exact copies: resampling to the nearest neighbour."""
    median_rank: float
    """Median rank of the windows."""
    noise_source: str
    """Where the noise came from."""
    method: str
    """``"leave-one-out"`` or ``"hidden"``."""
    n_elements: int
    """Number of elements compared."""
    factor: float
    """Factor on σ at which 95 % intervals would cover 95 %."""
    wavelengths: np.ndarray | None = None
    """(band,) band centres in nm."""

    @property
    def trusted(self) -> bool:
        """Whether coverage and both spatial tests are fine."""
        return self._covers and not self._causes(spatial_only=True)

    @property
    def verdict(self) -> str:
        """What it means, in one or two plain sentences."""
        share = f"95 % intervals cover {100 * self.coverage[0.95]:.1f} %"
        if self.trusted:
            text = f"{share}: trust them."
        else:
            text = f"{share}: {self._fault}; likely cause: {'; '.join(self._causes())}."
        if self.noise_lag1 > SPATIALLY_CORRELATED:
            text += f" Note: {spatial_warning(self.noise_lag1)}."
        if self.copied_pixels > COPIES:
            text += (
                f" {100 * self.copied_pixels:.1f} % of neighbouring pixels are exact copies: the "
                "product was resampled to the nearest neighbour."
            )
        return text

    @property
    def _covers(self) -> bool:
        return (
            GOOD_95[0] <= self.coverage[0.95] <= GOOD_95[1]
            and GOOD_50[0] <= self.coverage[0.5] <= GOOD_50[1]
        )

    @property
    def _fault(self) -> str:
        if self._covers:
            return "but do not trust them yet"
        if self.coverage[0.95] < GOOD_95[0]:
            return f"σ is too small by a factor {self.factor:.2g}"
        if self.coverage[0.95] > GOOD_95[1]:
            return f"σ is too large by a factor {1 / self.factor:.2g}"
        return f"but 50 % intervals cover {100 * self.coverage[0.5]:.0f} %, errors are not Gaussian"

    def _causes(self, *, spatial_only: bool = False) -> list[str]:
        """Return what the tables point at, most telling first."""
        causes = []
        beyond = self.weakest_lag1 - max(self.noise_lag1, 0.0)
        if np.isfinite(beyond) and beyond < NOISE_KEPT:
            causes.append(
                f"noise was kept as signal (the weakest components are white in space, lag-1 "
                f"{self.weakest_lag1:+.2f}): the noise is correlated between bands or its level "
                "is set too low"
            )
        if self.removed_lag1 - max(self.noise_lag1, 0.0) > SIGNAL_REMOVED:
            causes.append(
                f"signal was removed (what was removed is smooth in space, lag-1 "
                f"{self.removed_lag1:+.2f}): the noise level is set too high or windows are too "
                "large for the scene"
            )
        return causes if spatial_only else causes + self._table_causes() or ["the noise level"]

    def _table_causes(self) -> list[str]:
        causes = []
        spread = np.array([c.z_std for c in self.brightness])
        if len(spread) and spread.max() > 1.3 * spread.min():
            causes.append(
                "noise that depends on the brightness (from "
                f"{spread[0]:.2f} of the assumed in dark to {spread[-1]:.2f} in bright pixels)"
            )
        known = self.band_factors[np.isfinite(self.band_factors)]
        low, high = np.percentile(known, (5, 95)) if len(known) else (1.0, 1.0)
        if high > 1.3 * low:
            causes.append(f"noise that differs between bands ({low:.2f} to {high:.2f} of assumed)")
        if self.coverage[0.5] > 0.53 and self.coverage[0.99] < 0.985:
            causes.append("outliers or impulses (heavy tails): solver='robust' may help")
        return causes

    def to_json(self, path: str | Path | None = None) -> str:
        """Return the figures as JSON text, and write them to a file if one is named."""
        facts = {
            "method": self.method,
            "verdict": self.verdict,
            "trusted": self.trusted,
            "n_elements": self.n_elements,
            "coverage": {str(level): share for level, share in self.coverage.items()},
            "coverage_error": {str(level): error for level, error in self.coverage_error.items()},
            "z_std": self.z_std,
            "factor": self.factor,
            "removed_lag1": _number(self.removed_lag1),
            "weakest_lag1": _number(self.weakest_lag1),
            "noise_lag1": _number(self.noise_lag1),
            "copied_pixels": self.copied_pixels,
            "median_rank": self.median_rank,
            "noise_source": self.noise_source,
            "band_coverage": [_number(value) for value in self.band_coverage],
            "band_coverage_error": [_number(value) for value in self.band_coverage_error],
            "band_factors": [_number(value) for value in self.band_factors],
            "brightness": [vars(part) for part in self.brightness],
        }
        text = json.dumps(facts, indent=1)
        if path is not None:
            Path(path).write_text(text, encoding="utf-8")
        return text

    def plot(self) -> Figure:
        """Draw the calibration curve, coverage by band and coverage by brightness."""
        from sigmacube.holdout_figure import draw

        return draw(self)


def holdout(
    cube: Cube | np.ndarray | xr.DataArray,
    *,
    share: float = 0.03,
    rng: int | np.random.Generator = 0,
    method: str = "leave-one-out",
    result: DenoisedCube | None = None,
    **options: Any,
) -> Holdout:
    """Check the error bars of a scene on the scene itself, without truth.

    Every element is predicted from all others, and the prediction compared with what was
    observed; the share of elements inside their interval should be the interval's level. This is
    done in closed form from the windows of a denoised scene.

    Parameters
    ----------
    cube
        What `denoise` takes.
    share
        Share of the elements to hide, for ``method="hidden"``.
    rng
        Seed or generator that chooses them.
    method
        ``"leave-one-out"`` in closed form, or ``"hidden"``: some elements are hidden and up to 32
        windows solved without them. Slower, and free of the closed form's approximation.
    result
        A result of denoising this cube, to be checked as it is; by default the cube is denoised.
    **options
        Options of `denoise`.

    Returns
    -------
    Holdout
        Coverage by level, by band and by brightness, two spatial tests, and a verdict.

    Notes
    -----
    It tests the noise and the fit outside the signal space. It does not see noise that is
    correlated between pixels, nor signal too weak to rise above the noise edge; the
    autocorrelations it reports do.

    Examples
    --------
    >>> import numpy as np, sigmacube as sc
    >>> truth = sc.synthetic.scene((40, 44, 50), rng=1).values
    >>> noisy = truth + np.random.default_rng(2).normal(scale=0.02, size=truth.shape)
    >>> check = holdout(noisy)
    >>> check.trusted, bool(0.94 < check.coverage[0.95] < 0.96)
    (True, True)
    >>> holdout(noisy, noise=0.012).trusted
    False
    """
    if method not in ("leave-one-out", "hidden"):
        raise ValueError(f"Invalid method {method!r}. It must be 'leave-one-out' or 'hidden'.")
    if not 0 < share <= 0.2:
        raise ValueError(f"Invalid share {share}. It must be above 0 and at most 0.2.")
    source = as_cube(cube)
    if result is None:
        result = denoise(source, **{"uncertainty": False, **options})
    errors = result.error_model
    if errors is None:
        raise ValueError("Invalid result: its window factors were not kept. Denoise it anew.")
    scene = SolvedScene.create(source.values, result.estimate, errors, result.rejected)
    left_out = leave_one_out(scene)
    z = left_out.z
    if method == "hidden":
        with parallel(options.get("workers")) as run:
            z = hide_elements(scene, share, np.random.default_rng(rng), run)
    if errors.band_scale is not None:
        z = z / errors.band_scale[errors.bands].astype(np.float32)
    tables = _Tables(z, left_out.window, _brightness(source.values[..., errors.bands], scene.valid))
    return Holdout(
        **tables.overall(),
        **tables.by_band(errors.bands, errors.n_bands),
        brightness=tables.by_brightness(),
        removed_lag1=float(left_out.removed_lag1),
        weakest_lag1=float(left_out.weakest_lag1),
        noise_lag1=_noise_lag1(scene),
        copied_pixels=_copies(source.values[..., errors.bands], scene.valid),
        median_rank=float(np.median(result.ranks)),
        noise_source=str(result.settings.get("noise_source", "given")),
        method=method,
        wavelengths=source.wavelengths,
    )


class _Tables:
    """Coverage of standardised errors, with standard errors from the spread over windows."""

    def __init__(self, z: np.ndarray, window: np.ndarray, brightness: np.ndarray) -> None:
        order = np.argsort(window, axis=None, kind="stable")
        order = order[window.ravel()[order] >= 0]
        self._z = np.abs(z.reshape(-1, z.shape[2])[order])
        self._brightness = brightness.ravel()[order]
        self._known = np.isfinite(self._z)
        owner = window.ravel()[order]
        self._starts = np.flatnonzero(np.diff(owner, prepend=-1))
        if not self._known.any():
            raise ValueError(
                "Invalid scene for a hold-out check: no element can be predicted from the others. "
                "There must be more bands and pixels than components."
            )

    def overall(self) -> dict[str, Any]:
        """Return the figures over all elements."""
        size = self._z[self._known]
        shares = {level: self._share(level) for level in LEVELS}
        return {
            "coverage": {level: float(share) for level, (share, _) in shares.items()},
            "coverage_error": {level: float(error) for level, (_, error) in shares.items()},
            "z_std": float(np.sqrt(np.mean(np.square(size, dtype=np.float64)))),
            "factor": float(np.quantile(size, 0.95) / ndtri(0.975)),
            "n_elements": int(size.size),
        }

    def by_band(self, bands: np.ndarray, n_bands: int) -> dict[str, Any]:
        """Return the tables per band of the cube."""
        share, error = self._share(0.95, axis=1)
        spread = band_spread(self._z[None])
        found = {"band_coverage": share, "band_coverage_error": error, "band_factors": spread}
        tables = {}
        for name, values in found.items():
            tables[name] = np.full(n_bands, np.nan)
            tables[name][bands] = values
        return tables

    def by_brightness(self) -> tuple[BrightnessClass, ...]:
        """Return the table by brightness class."""
        edges = np.quantile(self._brightness, np.linspace(0, 1, N_CLASSES + 1))
        classes = []
        for low, high in pairwise(edges):
            inside = (self._brightness >= low) & (self._brightness <= high)
            known = self._known & inside[:, None]
            if high == low or not known.any():
                continue
            share, error = self._share(0.95, where=inside)
            spread = np.sqrt(np.mean(np.square(self._z[known], dtype=np.float64)))
            classes.append(
                BrightnessClass(float(low), float(high), float(share), float(error), float(spread))
            )
        return tuple(classes)

    def _share(
        self, level: float, *, axis: int = 0, where: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the share inside an interval and its standard error; per band with axis 1.

        Elements of a window are not independent and windows differ, so the error is that of a
        ratio of sums over windows.
        """
        known = self._known if where is None else self._known & where[:, None]
        inside = known & (self._z <= ndtri((1 + level) / 2))
        hits, counts = (
            np.add.reduceat(a, self._starts, axis=0, dtype=np.float64) for a in (inside, known)
        )
        if axis == 0:
            hits, counts = hits.sum(axis=1), counts.sum(axis=1)
        total = counts.sum(axis=0)
        with np.errstate(invalid="ignore", divide="ignore"):
            share = hits.sum(axis=0) / total
            n = np.count_nonzero(counts, axis=0)
            spread = np.sum(np.square(hits - share * counts), axis=0)
            clustered = np.sqrt(spread * n / np.maximum(n - 1, 1)) / total
            binomial = np.sqrt(share * (1 - share) / total)
        return share, np.maximum(clustered, binomial)


def _brightness(values: np.ndarray, valid: np.ndarray) -> np.ndarray:
    """Return (row, col) the mean over bands, zero at masked pixels."""
    spectra = np.where(valid[..., None] & np.isfinite(values), values, 0)
    return spectra.mean(axis=2, dtype=np.float64)


def _noise_lag1(scene: SolvedScene) -> float:
    """Return the autocorrelation between neighbours of directions that hold noise only."""
    noise = scene.factors.noise
    bands = np.flatnonzero(np.std(scene.values[scene.valid], axis=0) > 0)
    if len(bands) < 4:
        return float("nan")
    sample = NoiseSample.create(scene.values, bands, scene.valid)
    return signal_directions(sample.scaled(noise.std[bands]))[1]


def _copies(values: np.ndarray, valid: np.ndarray) -> float:
    """Return the share of neighbouring valid pixels whose spectra are equal."""
    same = pairs = 0
    for a, b in ((np.s_[1:], np.s_[:-1]), (np.s_[:, 1:], np.s_[:, :-1])):
        both = valid[a] & valid[b]
        same += int(np.count_nonzero(np.all(values[a] == values[b], axis=2) & both))
        pairs += int(np.count_nonzero(both))
    return same / max(pairs, 1)


def _number(value: float) -> float | None:
    """Return a number for JSON, which knows no NaN."""
    return float(value) if np.isfinite(value) else None
