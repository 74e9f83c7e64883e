"""The error model of windows of low rank: noise through the windows, plus kept pure noise."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from sigmacube.core.errors import PixelSets, Weights
from sigmacube.core.errors_in_units import ErrorsInUnits
from sigmacube.core.lowrank.covariance import (
    band_covariance,
    boxes_of,
    region_terms,
    support_covariance,
)
from sigmacube.core.lowrank.factors import Factors
from sigmacube.core.lowrank.functionals import Crop, draw_errors, passed_on
from sigmacube.core.parallel import ParallelMap, in_turn, parallel
from sigmacube.core.stored import ModelArrays
from sigmacube.core.windows import Span

__all__ = ["LowRankErrors", "WindowErrors"]


@dataclass(frozen=True, eq=False)
class WindowErrors:
    """First-order error of the mean over windows, on whitened bands."""

    factors: Factors
    noise_variance: np.ndarray | None
    """(row, col, band cell) variance of kept components of pure noise, white inside a window."""

    @property
    def shape(self) -> tuple[int, int, int]:
        """Rows, columns and bands that the windows cover."""
        return self.factors.grid.cube_shape

    def functional_covariance(self, weights: Sequence[Weights]) -> np.ndarray:
        """Return the (n, n) covariance of Σ weights · estimate for several sets of weights."""
        crops = [Crop.create(w, self.shape) for w in weights]
        fields = [passed_on(self.factors, crop) for crop in crops]
        covariance = np.array([[one.dot(two) for two in fields] for one in fields])
        if self.noise_variance is not None:
            widths = np.diff(self.factors.grid.bands.edges)
            for n, crop in enumerate(crops):
                level = np.repeat(self.noise_variance[crop.pixels], widths, axis=2)
                kept = Crop(crop.row, crop.col, crop.values * level)
                covariance[n] += [kept.dot(other) for other in crops]
        return (covariance + covariance.T) / 2

    def spectral_covariance(self, row: int, col: int) -> np.ndarray:
        """Return the (band, band) error covariance of a pixel."""
        pixel = np.zeros(self.shape[:2])
        pixel[row, col] = 1.0
        return self.region_covariance(pixel)

    def region_covariance(self, weights: np.ndarray) -> np.ndarray:
        """Return the (band, band) error covariance of Σ weights · spectrum, weights (row, col)."""
        share, low_rank = region_terms(self.factors, weights)
        if self.noise_variance is not None:
            power = np.einsum("hw,hwc->c", weights**2, self.noise_variance)
            share = share + np.repeat(power, np.diff(self.factors.grid.bands.edges))
        return np.diag(share) + low_rank

    def band_covariance(
        self, first: np.ndarray, second: np.ndarray, run: ParallelMap = in_turn
    ) -> np.ndarray:
        """Return (row, col, n) covariances of combinations (n, bands) of bands at every pixel."""
        return band_covariance(self.factors, first, second, self.noise_variance, run)

    def support_covariance(
        self, sets: PixelSets, first: np.ndarray, second: np.ndarray, run: ParallelMap = in_turn
    ) -> np.ndarray:
        """Return (sets, n) covariances of combinations (n, bands) of bands, summed over sets.

        Sets wider than two windows are better done one by one, as regions.
        """
        grid, ends = self.factors.grid, boxes_of(sets.labels, sets.count)
        sides = np.stack([ends[:, 1] - ends[:, 0], ends[:, 3] - ends[:, 2]], axis=1)
        wide = np.flatnonzero(np.any(sides > [2 * grid.rows.size, 2 * grid.cols.size], axis=1))
        small = replace(sets, labels=np.where(np.isin(sets.labels, wide), -1, sets.labels))
        covariance = support_covariance(
            self.factors, small, first, second, self.noise_variance, run
        )
        for number in wide:
            own = np.where(sets.labels == number, sets.weights, 0.0)
            found = self.region_covariance(own)
            covariance[number] = np.einsum("nv,nv->n", first @ found, second)
        return covariance

    def draws(
        self, count: int, rng: np.random.Generator, rows: slice, cols: slice
    ) -> Iterator[np.ndarray]:
        """Yield draws (rows, cols, bands) of the error."""
        extra = None
        if self.noise_variance is not None:
            widths = np.diff(self.factors.grid.bands.edges)
            extra = np.sqrt(np.repeat(self.noise_variance[rows, cols], widths, axis=2))
        for drawn in draw_errors(self.factors, count, rng, rows, cols):
            if extra is not None:
                drawn = drawn + extra * rng.standard_normal(extra.shape)
            yield drawn


@dataclass(frozen=True, eq=False)
class LowRankErrors(ErrorsInUnits):
    """`WindowErrors` in the units and bands of the cube."""

    white: WindowErrors

    @property
    def factors(self) -> Factors:
        """Factors of the windows."""
        return self.white.factors

    @property
    def noise_variance(self) -> np.ndarray | None:
        """(row, col, band cell) variance of kept pure noise, relative to the noise."""
        return self.white.noise_variance

    def to_arrays(self, rows: Span | None = None, cols: Span | None = None) -> ModelArrays:
        """Return what is kept in a file of some rows and columns of the whole scene; all of it."""
        from sigmacube.core.lowrank.storage import to_arrays

        return to_arrays(self, rows or (0, self.shape[0]), cols or (0, self.shape[1]))

    def support_covariance(
        self, sets: PixelSets, first: np.ndarray, second: np.ndarray, workers: int | None = None
    ) -> np.ndarray:
        """Return (sets, n) covariances of combinations (n, bands) of bands, summed over sets."""
        scaled = replace(sets, weights=self._on_pixels(sets.weights))
        with parallel(workers) as run:
            return self.white.support_covariance(scaled, self._rows(first), self._rows(second), run)
