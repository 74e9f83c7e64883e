"""Variance of any linear functional of the estimate, and draws of its error.

For weights c on the cube, each window sees its share C_a of them and passes on
T_a(C_a) = P_U C_a + C_a P_V − P_U C_a P_V. With h the sum of these over all windows, the variance
of Σ c Ŵ is Σ h², exactly what the noise does to the weighted mean to first order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from sigmacube.core.errors import Weights
from sigmacube.core.lowrank.factors import Factors, Window

__all__ = ["Crop", "draw_errors", "passed_on"]


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
            where = np.argwhere(np.any(dense, axis=2))
            (top, left), (bottom, right) = (
                (where.min(axis=0), where.max(axis=0)) if len(where) else ((0, 0), (0, 0))
            )
            return cls(int(top), int(left), dense[top : bottom + 1, left : right + 1])
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
    """Return h, what all windows pass on of weights on whitened bands."""
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


def draw_errors(
    factors: Factors, count: int, rng: np.random.Generator, rows: slice, cols: slice
) -> Iterator[np.ndarray]:
    """Yield ``count`` draws (rows, cols, bands) of the error on whitened bands.

    Each is Σ_a w_a T_a(G_a) of fresh white noise G, which has exactly the covariance of the first
    order. The noise around the rows and columns that are drawn counts too.
    """
    windows, top, side, extent = _around(factors, rows, cols)
    inner = (slice(rows.start - top, rows.stop - top), slice(cols.start - side, cols.stop - side))
    for _ in range(count):
        noise = rng.standard_normal((*extent, factors.grid.bands.length))
        error = np.zeros(noise.shape)
        for window, where in windows:
            share = factors.share_of_elements(window)
            error[where] += share * _propagate(factors, window, noise[where])
        yield error[inner]
