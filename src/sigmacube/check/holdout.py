"""Calibration of a scene's error bars on the scene itself, without truth."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import ndtri

from sigmacube.check.hidden_elements import predict_hidden, stride_of_windows
from sigmacube.check.leave_one_out import Predicted, SolvedScene, Window, partition, predict
from sigmacube.check.scores import Look, Tally, brightness, noise_lag1
from sigmacube.core.card import Card
from sigmacube.core.levels import LEVELS
from sigmacube.core.parallel import ParallelMap, parallel
from sigmacube.core.validity import valid_elements
from sigmacube.core.windows import WindowGrid
from sigmacube.cube import Cube
from sigmacube.io.dataarray import as_cube
from sigmacube.noise.estimation import SPATIALLY_CORRELATED, spatial_warning
from sigmacube.pipeline import denoise_cube
from sigmacube.result import DenoisedCube
from sigmacube.settings import Settings
from sigmacube.survey import Source

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.figure import Figure


__all__ = ["Holdout", "holdout"]

# Windows whose predictions are in memory at a time.
BATCH = 64
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
class Holdout(Card):
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

    def _facts(self) -> Mapping[str, str]:
        shares = (f"{100 * p:g} %: {100 * share:.1f} %" for p, share in self.coverage.items())
        return {
            "coverage": ", ".join(shares),
            "error / σ (rms)": f"{self.z_std:.3f}",
            "elements": f"{self.n_elements:,} ({self.method})",
            "noise": self.noise_source,
        }

    def _notes(self) -> Sequence[str]:
        return (self.verdict,)

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
        from sigmacube.show import plots

        return plots.holdout_figure(self)


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
        Seed or generator that chooses them. The elements hidden in a window depend on the seed and
        the window's place in the scene alone.
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
    check_request(method, share)
    workers, noise = options.pop("workers", None), options.pop("noise", None)
    source = as_cube(cube, options.pop("mask", None))
    mask = source.mask
    if result is None:
        settings = Settings(**{"uncertainty": False, **options})
        result = denoise_cube(source, noise, settings, workers=workers)
    errors = result.error_model
    if errors is None:
        raise ValueError("Invalid result: its window factors were not kept. Denoise it anew.")
    check = Check.create(
        source, errors.factors.grid, source.shape, errors.bands, method=method, share=share, rng=rng
    )
    scene = SolvedScene.create(
        source.values, result.estimate, errors, result.rejected,
        mask=mask, varied=check.look.varied,
    )  # fmt: skip
    light = brightness(
        source.values[..., errors.bands], valid_elements(source.values, mask)[..., errors.bands]
    )
    scale = None if errors.band_scale is None else errors.band_scale[errors.bands]
    with parallel(workers) as run:
        check.add(scene, light, run, scale)
    pixels = errors.pixel_scale
    return check.concluded(
        source,
        errors.factors.noise.std,
        ranks=result.ranks,
        noise_source=str(result.settings.get("noise_source", "given")),
        scale=None if pixels is None else Cube(pixels[..., None]),
        impulses=result.rejected is not None,
        wavelengths=source.wavelengths,
    )


@dataclass(frozen=True, eq=False)
class Check:
    """A hold-out check under way: a scene, or parts of it one by one, in any order."""

    shape: tuple[int, int, int]
    bands: np.ndarray
    """Indices of the bands with data."""
    look: Look
    tally: Tally
    method: str
    share: float
    seed: int
    parts: int
    """Parts of the spectrum that windows hold each."""
    stride: int
    """How far apart windows with hidden elements are."""

    @classmethod
    def create(
        cls,
        source: Source,
        grid: WindowGrid,
        shape: tuple[int, int, int],
        bands: np.ndarray,
        *,
        method: str,
        share: float,
        rng: int | np.random.Generator,
    ) -> Check:
        """Look at the whole scene and get ready to count."""
        look = Look.over(source, shape, bands)
        sides = [len(partition(axis)) for axis in (grid.rows, grid.cols, grid.bands)]
        tally = Tally(sides[0] * sides[1], sides[2], len(bands), LEVELS, look.edges)
        seed = rng if isinstance(rng, int) else int(rng.integers(2**63))
        stride = stride_of_windows(sides[0] * sides[1] * sides[2])
        return cls(shape, bands, look, tally, method, share, seed, sides[2], stride)

    def add(
        self,
        scene: SolvedScene,
        light: np.ndarray,
        run: ParallelMap,
        scale: np.ndarray | None = None,
    ) -> None:
        """Count what the windows of a scene, or of a part of it, predict.

        Parameters
        ----------
        scene
            The solved scene.
        light
            (row, col) brightness of its pixels.
        run
            Parallel map over windows.
        scale
            (band with data,) factor of a calibration on σ.
        """

        def predicted(window: Window) -> Predicted:
            found = predict(scene, window)
            if self.method == "hidden":
                hidden = (window.number * self.parts + window.part) % self.stride == 0
                z = (predict_hidden(scene, window, self.share, self.seed) if hidden
                     else np.full_like(found.z, np.nan))  # fmt: skip
                found = replace(found, z=z)
            if scale is None:
                return found
            return replace(found, z=found.z / scale[found.bands].astype(np.float32))

        windows = list(scene.windows())
        for start in range(0, len(windows), BATCH):
            batch = windows[start : start + BATCH]
            for window, found in zip(batch, run(predicted, batch), strict=True):
                self.tally.add(found, light[window.own[:2]])

    def concluded(
        self,
        source: Source,
        std: np.ndarray,
        *,
        ranks: np.ndarray,
        noise_source: str,
        scale: Source | None,
        impulses: bool,
        wavelengths: np.ndarray | None,
    ) -> Holdout:
        """Return what was counted, with the noise's own autocorrelation."""
        tally = self.tally
        if not tally.n_elements:
            raise ValueError(
                "Invalid scene for a hold-out check: no element can be predicted from the others. "
                "There must be more bands and pixels than components."
            )
        shares = tally.by_level()
        by_band = {}
        names = ("band_coverage", "band_coverage_error", "band_factors")
        for name, values in zip(names, tally.by_band(), strict=True):
            by_band[name] = np.full(self.shape[2], np.nan)
            by_band[name][self.bands] = values
        varied = self.look.varied
        return Holdout(
            coverage={level: share for level, (share, _) in shares.items()},
            coverage_error={level: error for level, (_, error) in shares.items()},
            z_std=tally.z_std,
            factor=tally.quantile(0.95) / float(ndtri(0.975)),
            n_elements=tally.n_elements,
            brightness=tuple(BrightnessClass(**part) for part in tally.by_brightness()),
            removed_lag1=tally.removed_lag1,
            weakest_lag1=tally.weakest_lag1,
            noise_lag1=noise_lag1(
                source, self.shape, self.bands[varied], std[varied], scale=scale, impulses=impulses
            ),
            copied_pixels=self.look.copies,
            median_rank=float(np.median(ranks)),
            noise_source=noise_source,
            method=self.method,
            wavelengths=wavelengths,
            **by_band,
        )


def check_request(method: str, share: float) -> None:
    """Refuse a method or a share that there is not."""
    if method not in ("leave-one-out", "hidden"):
        raise ValueError(f"Invalid method {method!r}. It must be 'leave-one-out' or 'hidden'.")
    if not 0 < share <= 0.2:
        raise ValueError(f"Invalid share {share}. It must be above 0 and at most 0.2.")


def _number(value: float) -> float | None:
    """Return a number for JSON, which knows no NaN."""
    return float(value) if np.isfinite(value) else None
