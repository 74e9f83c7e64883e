"""The error model of windows of low rank: noise through the windows, plus kept pure noise."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from sigmacube.core.errors import NEGLIGIBLE, SpectralCovariance, Weights
from sigmacube.core.lowrank.covariance import band_covariance, region_terms, support_covariance
from sigmacube.core.lowrank.factors import Factors
from sigmacube.core.lowrank.functionals import Crop, draw_errors, functional_covariance
from sigmacube.core.parallel import parallel
from sigmacube.core.stored import ModelArrays
from sigmacube.core.windows import Span, WindowGrid

__all__ = ["LowRankErrors", "mean_gap_factor"]


@dataclass(frozen=True, eq=False)
class LowRankErrors:
    """First-order error of a result: noise through the windows, plus kept pure noise."""

    factors: Factors
    noise_variance: np.ndarray | None
    """(row, col, band cell) variance of kept components of pure noise, relative to the noise."""
    bands: np.ndarray
    """Indices of the cube's bands that the factors hold."""
    n_bands: int
    """Number of bands of the cube."""
    pixel_scale: np.ndarray | None = None
    """(row, col) factor of every pixel on its noise; None where all are alike."""
    band_scale: np.ndarray | None = None
    """(bands of the cube,) factor of a calibration on the standard deviation; None for none."""
    gap_factor: np.ndarray | None = None
    """(row, col, band of the factors) what left-out elements do to the std; None is one."""
    mean_gap_factor: np.ndarray | None = None
    """(band of the factors,) that of the whole scene by band, where this is a part of it."""

    @property
    def shape(self) -> tuple[int, int, int]:
        """Shape of the cube (rows, cols, bands)."""
        rows, cols, _ = self.factors.grid.cube_shape
        return rows, cols, self.n_bands

    def scaled(self, factors: np.ndarray) -> LowRankErrors:
        """Return the model with the standard deviation of every band scaled."""
        previous = 1.0 if self.band_scale is None else self.band_scale
        return replace(self, band_scale=factors * previous)

    def to_arrays(self, rows: Span | None = None, cols: Span | None = None) -> ModelArrays:
        """Return what is kept in a file of some rows and columns of the whole scene; all of it."""
        from sigmacube.core.lowrank.storage import to_arrays

        return to_arrays(self, rows or (0, self.shape[0]), cols or (0, self.shape[1]))

    def functional_variance(self, weights: Weights) -> float:
        """Return the variance of Σ weights · estimate, weights on all bands of the cube."""
        return float(self.functional_covariance([weights])[0, 0])

    def functional_covariance(self, weights: Sequence[Weights]) -> np.ndarray:
        """Return the (n, n) covariance of Σ weights · estimate for several sets of weights."""
        crops = [Crop.create(w, self.shape) for w in weights]
        crops = [crop.scaled(self.pixel_scale, self.band_scale) for crop in crops]
        crops = [crop.select(self.bands) for crop in crops]
        if self.gap_factor is None:
            return functional_covariance(self.factors, crops, self.noise_variance)
        # Errors keep their correlation and grow by the factor of each element; kept pure noise
        # is observed, not predicted, and does not grow.
        grown = [crop.times(self.gap_factor) for crop in crops]
        covariance = functional_covariance(self.factors, grown)
        if self.noise_variance is not None and np.any(self.noise_variance):
            covariance += functional_covariance(self.factors, crops, self.noise_variance)
            covariance -= functional_covariance(self.factors, crops)
        return covariance

    def spectral_covariance(self, row: int, col: int) -> np.ndarray:
        """Return the (band, band) error covariance of a pixel; NaN for bands without data."""
        pixel = np.zeros(self.shape[:2])
        pixel[row, col] = 1.0
        share, low_rank = region_terms(self.factors, pixel)
        part = self._unwhitened(low_rank + np.diag(share))
        if self.gap_factor is not None:
            part *= np.outer(self.gap_factor[row, col], self.gap_factor[row, col])
        part += self._unwhitened(np.diag(self._kept_noise(pixel)))
        covariance = np.full((self.n_bands, self.n_bands), np.nan)
        covariance[np.ix_(self.bands, self.bands)] = part
        if self.pixel_scale is not None:
            covariance *= self.pixel_scale[row, col] ** 2
        if self.band_scale is not None:
            covariance *= np.outer(self.band_scale, self.band_scale)
        return covariance

    def region_covariance(self, weights: np.ndarray) -> SpectralCovariance:
        """Return the error covariance of Σ weights · spectrum, weights (row, col)."""
        whole = self._region(self._on_pixels(weights)).expand(self.bands, self.n_bands)
        if self.gap_factor is not None:
            bands = np.ones(self.n_bands)
            bands[self.bands] = self._separate_gaps[1]
            whole = whole.scaled(bands)
        return whole if self.band_scale is None else whole.scaled(self.band_scale)

    def _region(self, weights: np.ndarray) -> SpectralCovariance:
        """Return the covariance of the bands that the factors hold, without further factors."""
        noise = self.factors.noise
        share, low_rank = region_terms(self.factors, weights)
        values, vectors = np.linalg.eigh(self._unwhitened(low_rank))
        order = np.argsort(-np.abs(values))
        order = order[np.abs(values[order]) > NEGLIGIBLE * max(np.abs(values).max(), 1e-300)]
        covariance = np.square(noise.std) if noise.is_diagonal else np.asarray(noise.value)
        share = share + self._kept_noise(weights)
        return SpectralCovariance(share, covariance, vectors[:, order], values[order])

    def _unwhitened(self, covariance: np.ndarray) -> np.ndarray:
        """Return a covariance between whitened bands in the units of the data."""
        noise = self.factors.noise
        mixed = noise.unwhiten(noise.unwhiten(covariance).T)
        return (mixed + mixed.T) / 2

    def _kept_noise(self, weights: np.ndarray) -> np.ndarray:
        """Return (band of the factors,) Σ weights² · variance of kept components of pure noise."""
        axis = self.factors.grid.bands
        if self.noise_variance is None:
            return np.zeros(axis.length)
        power = np.einsum("hw,hwc->c", weights**2, self.noise_variance)
        return np.repeat(power, np.diff(axis.edges))

    def band_covariance(
        self, first: np.ndarray, second: np.ndarray, workers: int | None = None
    ) -> np.ndarray:
        """Return (row, col, n) covariances of combinations (n, bands) of bands at every pixel."""
        sides = (self._known_bands(first), self._known_bands(second))
        with parallel(workers) as run:
            covariance = band_covariance(self.factors, *sides, self.noise_variance, run)
        scale = self._pixel_factor
        if scale is not None:
            covariance *= np.square(scale)[..., None]
        return covariance

    def support_covariance(
        self,
        labels: np.ndarray,
        count: int,
        weights: np.ndarray,
        first: np.ndarray,
        second: np.ndarray,
        workers: int | None = None,
        boxes: np.ndarray | None = None,
    ) -> np.ndarray:
        """Return (supports, n) covariances of combinations of bands, averaged over supports.

        Supports are given by ``labels`` (row, col), from 0, negative for none; ``weights``
        (row, col) are those of the pixels in their supports. ``boxes`` (supports, 4) are the rows
        and columns of the whole scene that hold them; found here by default.
        """
        sides = (self._known_bands(first), self._known_bands(second))
        weights = self._on_pixels(weights)
        wide = _wide_supports(labels, count, self.factors.grid)
        small = np.where(np.isin(labels, wide), -1, labels)
        with parallel(workers) as run:
            covariance = support_covariance(
                self.factors, small, count, weights, *sides, self.noise_variance, run, boxes
            )
        for number in wide:
            own = np.where(labels == number, weights, 0.0)
            covariance[number] = self._region(own).pairs(*sides)
        return covariance

    def draws(
        self, count: int, rng: np.random.Generator, rows: slice, cols: slice
    ) -> Iterator[np.ndarray]:
        """Yield draws (rows, cols, bands) of the error; NaN for bands without data."""
        drawn = draw_errors(
            self.factors, count, rng, rows=rows, cols=cols, noise_variance=self.noise_variance
        )
        for error in drawn:
            if self.gap_factor is not None:
                error *= self.gap_factor[rows, cols]
            if self.pixel_scale is not None:
                error *= self.pixel_scale[rows, cols, None]
            if self.band_scale is not None:
                error *= self.band_scale[self.bands]
            if len(self.bands) == self.n_bands:
                yield error
            else:
                whole = np.full((*error.shape[:2], self.n_bands), np.nan)
                whole[..., self.bands] = error
                yield whole

    def _known_bands(self, rows: np.ndarray) -> np.ndarray:
        """Return weights (n, bands) on the bands that the factors hold."""
        absent = np.setdiff1d(np.arange(self.n_bands), self.bands)
        if np.any(rows[:, absent]):
            raise ValueError("Invalid combination: it has a weight on a band without data.")
        scale = 1.0 if self.band_scale is None else self.band_scale
        known = (rows * scale)[:, self.bands]
        return known if self.gap_factor is None else known * self._separate_gaps[1]

    def _on_pixels(self, weights: np.ndarray) -> np.ndarray:
        """Return weights (row, col) on errors that the factors give, before the pixels' scale."""
        scale = self._pixel_factor
        return weights if scale is None else weights * scale

    @property
    def _pixel_factor(self) -> np.ndarray | None:
        """(row, col) factor of every pixel on what the factors give."""
        if self.gap_factor is None:
            return self.pixel_scale
        pixels = self._separate_gaps[0]
        return pixels if self.pixel_scale is None else pixels * self.pixel_scale

    @cached_property
    def _separate_gaps(self) -> tuple[np.ndarray, np.ndarray]:
        """Gap factor as one per pixel times one per band, for sums over many elements."""
        assert self.gap_factor is not None
        bands = self.mean_gap_factor
        if bands is None:
            bands = mean_gap_factor([self.gap_factor])
        return np.nan_to_num(_pixel_gap_factor(self.gap_factor), nan=1.0), bands


def mean_gap_factor(strips: Iterable[np.ndarray]) -> np.ndarray:
    """Return (bands,) the gap factor of a scene by band, beside that of its pixels.

    Parameters
    ----------
    strips
        (row, col, band) gap factor of whole rows, strip after strip; how the scene is cut does not
        change the result.

    Examples
    --------
    >>> mean_gap_factor([np.full((2, 3, 2), 1.5), np.full((1, 3, 2), 1.2)])
    array([1., 1.])
    """
    total: np.ndarray | float = 0.0
    count: np.ndarray | int = 0
    for strip in strips:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # pixels without any value
            share = np.square(strip / _pixel_gap_factor(strip)[..., None])
        for row in np.nansum(share, axis=1):
            total = total + row
        count = count + np.count_nonzero(np.isfinite(share), axis=(0, 1))
    return np.where(count > 0, np.sqrt(total / np.maximum(count, 1)), 1.0)


def _pixel_gap_factor(factor: np.ndarray) -> np.ndarray:
    """Return (row, col) the root mean square of the factor over bands."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # pixels without any value
        return np.sqrt(np.nanmean(np.square(factor, dtype=np.float64), axis=2))


def _wide_supports(labels: np.ndarray, count: int, grid: WindowGrid) -> np.ndarray:
    """Return the supports wider than two windows: these are better done one by one."""
    rows, cols = np.nonzero(labels >= 0)
    number = labels[rows, cols]
    wide = np.zeros(count, dtype=bool)
    for position, axis in ((rows, grid.rows), (cols, grid.cols)):
        low, high = np.full(count, np.iinfo(int).max), np.full(count, -1)
        np.minimum.at(low, number, position)
        np.maximum.at(high, number, position)
        wide |= (high - low >= 2 * axis.size) & (high >= 0)
    return np.flatnonzero(wide)
