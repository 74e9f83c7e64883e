"""The error model of windows of low rank: noise through the windows, plus kept pure noise."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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
from sigmacube.core.lowrank.factors import Factors, Window
from sigmacube.core.parallel import ParallelMap, in_turn, parallel
from sigmacube.core.stored import ModelArrays
from sigmacube.core.windows import Span


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
        """Yield draws (rows, cols, bands) of the error.

        Each is Σ_a w_a T_a(G_a) of fresh white noise G, which has exactly the covariance of the
        first order. The noise around the rows and columns that are drawn counts too.
        """
        factors, grid = self.factors, self.factors.grid
        windows, top, side, extent = _around(factors, rows, cols)
        inner = np.s_[rows.start - top : rows.stop - top, cols.start - side : cols.stop - side]
        for _ in range(count):
            noise = rng.standard_normal((*extent, grid.bands.length))
            error = np.zeros(noise.shape)
            for window, where in windows:
                share = factors.share_of_elements(window)
                error[where] += share * _propagate(factors, window, noise[where])
            drawn = error[inner]
            if self.noise_variance is not None:
                widths = np.diff(grid.bands.edges)
                kept = np.sqrt(np.repeat(self.noise_variance[rows, cols], widths, axis=2))
                drawn = drawn + kept * rng.standard_normal(kept.shape)
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
            found = self.white.support_covariance(
                scaled, self._rows(first), self._rows(second), run
            )
        return found * self._in_sets(sets, first, second)


@dataclass(frozen=True, eq=False)
class Crop:
    """Weights on the cube, cut to the pixels where there are any."""

    row: int
    col: int
    values: np.ndarray
    """(rows, cols, bands)"""

    @classmethod
    def create(cls, weights: Weights, shape: tuple[int, int, int]) -> Crop:
        """Cut weights on a cube of a shape, an array or a mapping, to where there are any."""
        if not isinstance(weights, Mapping):
            dense = np.asarray(weights, dtype=np.float64)
            where = np.argwhere(np.any(dense, axis=2))
            (top, left), (bottom, right) = (
                (where.min(axis=0), where.max(axis=0)) if len(where) else ((0, 0), (0, 0))
            )
            return cls(int(top), int(left), dense[top : bottom + 1, left : right + 1])
        where = np.array(list(weights), dtype=int).reshape(-1, 3)
        low = where.min(axis=0, initial=0 if not len(where) else max(shape))
        high = where.max(axis=0, initial=0)
        values = np.zeros((*(high - low + 1)[:2], shape[2]))
        at = (where[:, 0] - low[0], where[:, 1] - low[1], where[:, 2])
        np.add.at(values, at, np.array(list(weights.values()), dtype=np.float64))
        return cls(int(low[0]), int(low[1]), values)

    @property
    def pixels(self) -> tuple[slice, slice]:
        """The rows and columns of the cube."""
        rows, cols, _ = self.values.shape
        return slice(self.row, self.row + rows), slice(self.col, self.col + cols)

    def dot(self, other: Crop) -> float:
        """Return the sum of products where both are."""
        low = np.maximum((self.row, self.col), (other.row, other.col))
        high = np.minimum(*(np.add((c.row, c.col), c.values.shape[:2]) for c in (self, other)))
        if np.any(high <= low):
            return 0.0
        a, b = (
            c.values[low[0] - c.row : high[0] - c.row, low[1] - c.col : high[1] - c.col]
            for c in (self, other)
        )
        return float(np.sum(a * b))


def passed_on(factors: Factors, crop: Crop) -> Crop:
    """Return h, what all windows pass on of weights c on whitened bands.

    Each window sees its share C_a of them and passes on T_a(C_a) = P_U C_a + C_a P_V − P_U C_a P_V.
    With h the sum of these over all windows, the variance of Σ c Ŵ is Σ h², exactly what the noise
    does to the weighted mean to first order.
    """
    windows, top, side, extent = _around(factors, *crop.pixels)
    padded = np.zeros((*extent, crop.values.shape[2]))
    inner = padded[crop.row - top :, crop.col - side :]
    inner[: crop.values.shape[0], : crop.values.shape[1]] = crop.values
    h = np.zeros_like(padded)
    for window, where in windows:
        c = padded[where]
        if c.any():
            h[where] += _propagate(factors, window, c * factors.share_of_elements(window))
    return Crop(top, side, h)


def _around(
    factors: Factors, rows: slice, cols: slice
) -> tuple[list[tuple[Window, tuple[slice, slice, slice]]], int, int, tuple[int, int]]:
    """Return the windows over some pixels, with where they lie in what they span together.

    Also the first row and column of that, and its numbers of rows and columns.
    """
    grid = factors.grid
    spans = [axis.windows_over(part.start, part.stop)
             for axis, part in ((grid.rows, rows), (grid.cols, cols))]  # fmt: skip
    part = grid.part(*spans)
    top, side = np.subtract(part.origin, grid.origin).tolist()
    windows = [
        ((spans[0][0] + i, k, spans[1][0] + j), part.slices(i, j, k))
        for i, j, k in np.ndindex(part.shape)
    ]
    return windows, top, side, (part.rows.length, part.cols.length)


def _propagate(factors: Factors, window: Window, c: np.ndarray) -> np.ndarray:
    """Return T(C) of one window, C (rows, cols, bands)."""
    scale = factors.influence[window][:, None]
    u = factors.left[window].reshape(len(scale), -1) * scale
    v = factors.right[window] * scale
    flat = c.reshape(-1, v.shape[1])
    by_pixel = u.T @ (u @ flat)
    return (by_pixel + ((flat - by_pixel) @ v.T) @ v).reshape(c.shape)
