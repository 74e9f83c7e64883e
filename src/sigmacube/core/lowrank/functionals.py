"""Variance of any linear functional of the estimate, and draws of its error.

For weights c on the cube, each window sees its share C_a of them and passes on
T_a(C_a) = P_U C_a + C_a P_V − P_U C_a P_V. With h the sum of these over all windows, the variance
of Σ c Ŵ is Σ h², exactly what the noise does to the weighted mean to first order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from sigmacube.core.errors import Weights
from sigmacube.core.lowrank.factors import Factors

__all__ = ["Crop", "draw_errors", "functional_covariance"]


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
            if dense.shape != shape:
                raise ValueError(
                    f"Invalid weights of shape {dense.shape}. They must have the shape of the "
                    f"cube, {shape}, or be a mapping from (row, col, band) to a weight."
                )
            touched = np.any(dense, axis=2)
            rows, cols = _extent(np.any(touched, axis=1)), _extent(np.any(touched, axis=0))
            return cls(rows.start, cols.start, dense[rows, cols])
        where = np.array(list(weights), dtype=int).reshape(-1, 3)
        if np.any((where < 0) | (where >= shape)):
            raise ValueError(f"Invalid weights outside of the cube, {shape}.")
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

    def scaled(self, pixels: np.ndarray | None, bands: np.ndarray | None) -> Crop:
        """Return the weights times a factor per pixel of the cube and one per band."""
        values = self.values
        if pixels is not None:
            values = values * pixels[self.pixels][..., None]
        if bands is not None:
            values = values * bands
        return Crop(self.row, self.col, values)

    def times(self, factor: np.ndarray) -> Crop:
        """Return the weights times a factor (row, col, band) of the cube, where there are any."""
        part = np.where(self.values == 0, 0.0, self.values * factor[self.pixels])
        return Crop(self.row, self.col, part)

    def select(self, bands: np.ndarray) -> Crop:
        """Return the weights of some of the bands."""
        if len(bands) == self.values.shape[2]:
            return self
        return Crop(self.row, self.col, self.values[..., bands])

    def dot(self, other: Crop) -> float:
        """Return the sum of products where both are."""
        a, b = self.common(other), other.common(self)
        return float(np.sum(self.values[a] * other.values[b]))

    def common(self, other: Crop) -> tuple[slice, slice]:
        """Return the part of this crop that the other covers too."""
        spans = []
        for start, size, theirs, extent in (
            (self.row, self.values.shape[0], other.row, other.values.shape[0]),
            (self.col, self.values.shape[1], other.col, other.values.shape[1]),
        ):
            low, high = max(start, theirs), min(start + size, theirs + extent)
            spans.append(slice(low - start, max(high, low) - start))
        return spans[0], spans[1]


def _extent(used: np.ndarray) -> slice:
    where = np.flatnonzero(used)
    return slice(int(where[0]), int(where[-1]) + 1) if len(where) else slice(0, 1)


def functional_covariance(
    factors: Factors, weights: Sequence[Crop], noise_variance: np.ndarray | None = None
) -> np.ndarray:
    """Return the (n, n) covariance of several linear functionals of the estimate.

    Parameters
    ----------
    factors
        Factors of all windows.
    weights
        Weights of each functional on the bands that the factors hold.
    noise_variance
        (row, col, band cell) variance of kept components of pure noise, white inside a window.
    """
    noise = factors.noise
    white = [Crop(c.row, c.col, noise.weights_to_white(c.values)) for c in weights]
    fields = [_field(factors, c) for c in white]
    covariance = np.empty((len(white), len(white)))
    for i in range(len(white)):
        for j in range(i, len(white)):
            value = fields[i].dot(fields[j])
            if noise_variance is not None:
                value += _times_kept_noise(factors, noise_variance, white[i]).dot(white[j])
            covariance[i, j] = covariance[j, i] = value
    return covariance


Window = tuple[int, int, int]


def _times_kept_noise(factors: Factors, noise_variance: np.ndarray, crop: Crop) -> Crop:
    """Return weights times the variance of kept pure noise."""
    level = np.repeat(noise_variance[crop.pixels], np.diff(factors.grid.bands.edges), axis=2)
    return Crop(crop.row, crop.col, crop.values * level)


def _field(factors: Factors, crop: Crop) -> Crop:
    """Return h, what all windows pass on of some weights."""
    height, width, n_bands = crop.values.shape
    rows, cols = slice(crop.row, crop.row + height), slice(crop.col, crop.col + width)
    windows, top, side, extent = _around(factors, rows, cols)
    padded = np.zeros((*extent, n_bands))
    padded[crop.row - top :, crop.col - side :][:height, :width] = crop.values
    h = np.zeros_like(padded)
    for window, where in windows:
        c = padded[where]
        if c.any():
            c = c * factors.share_of_elements(window)
            h[where] += _propagate(factors, window, c)
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


def draw_errors(
    factors: Factors,
    count: int,
    rng: np.random.Generator,
    *,
    rows: slice,
    cols: slice,
    noise_variance: np.ndarray | None = None,
) -> Iterator[np.ndarray]:
    """Yield ``count`` draws (rows, cols, bands) of the error, in the units of the data.

    Each is Σ_a w_a T_a(G_a) of fresh white noise G, which has exactly the covariance of the first
    order; kept components of pure noise add white noise of their own variance.

    Parameters
    ----------
    factors
        Factors of all windows.
    count
        Number of draws.
    rng
        Source of randomness.
    rows, cols
        Part of the scene to draw; the noise around it counts too.
    noise_variance
        (row, col, band cell) variance of kept components of pure noise.
    """
    windows, top, side, extent = _around(factors, rows, cols)
    inner = (slice(rows.start - top, rows.stop - top), slice(cols.start - side, cols.stop - side))
    extra = None
    if noise_variance is not None:
        widths = np.diff(factors.grid.bands.edges)
        extra = np.sqrt(np.repeat(noise_variance[rows, cols], widths, axis=2))
    for _ in range(count):
        noise = rng.standard_normal((*extent, factors.grid.bands.length))
        error = np.zeros(noise.shape)
        for window, where in windows:
            share = factors.share_of_elements(window)
            error[where] += share * _propagate(factors, window, noise[where])
        drawn = error[inner]
        if extra is not None:
            drawn = drawn + extra * rng.standard_normal(extra.shape)
        yield factors.noise.unwhiten(drawn)
