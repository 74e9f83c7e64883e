"""Variance of any linear functional of the estimate, and the covariance of a pixel's spectrum.

For weights c on the cube, each window sees its share C_a of them and passes on
T_a(C_a) = P_U C_a + C_a P_V − P_U C_a P_V. With h the sum of these over all windows, the variance
of Σ c Ŵ is Σ h², exactly what the noise does to the weighted mean to first order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from sigmacube.core.factors import Factors

__all__ = ["ErrorModel", "functional_variance", "spectral_covariance"]

Weights = np.ndarray | Mapping[tuple[int, int, int], float]


@dataclass(frozen=True, eq=False)
class ErrorModel:
    """First-order error of a result: noise through the windows, plus kept pure noise."""

    factors: Factors
    noise_variance: np.ndarray | None
    """(row, col, band cell) variance of kept components of pure noise, relative to the noise."""
    bands: np.ndarray
    """Indices of the cube's bands that the factors hold."""
    n_bands: int
    """Number of bands of the cube."""
    inflation: np.ndarray | None = None
    """(row, col, band of the factors) what left-out elements do to the std; None is one."""

    def functional_variance(self, weights: Weights) -> float:
        """Return the variance of Σ weights · estimate, weights on all bands of the cube."""
        shape = (*self.factors.grid.cube_shape[:2], self.n_bands)
        dense = _dense(weights, shape)[..., self.bands]
        if self.inflation is None:
            return functional_variance(self.factors, dense, self.noise_variance)
        # Errors keep their correlation and grow by the inflation of each element.
        grown = np.where(dense == 0, 0, dense * self.inflation)
        observed = functional_variance(self.factors, dense, self.noise_variance)
        observed -= functional_variance(self.factors, dense)
        return functional_variance(self.factors, grown) + observed

    def spectral_covariance(self, row: int, col: int) -> np.ndarray:
        """Return the (band, band) error covariance of a pixel; NaN for bands without data."""
        part = spectral_covariance(self.factors, row, col, self.noise_variance)
        if self.inflation is not None:
            plain = spectral_covariance(self.factors, row, col)
            factor = self.inflation[row, col]
            part = part - plain + plain * factor[:, None] * factor
        covariance = np.full((self.n_bands, self.n_bands), np.nan)
        covariance[np.ix_(self.bands, self.bands)] = part
        return covariance


def functional_variance(
    factors: Factors, weights: np.ndarray, noise_variance: np.ndarray | None = None
) -> float:
    """Return the variance of Σ weights · estimate.

    Parameters
    ----------
    factors
        Factors of all windows.
    weights
        (row, col, band) array.
    noise_variance
        (row, col, band cell) variance of kept components of pure noise, white inside a window.
    """
    grid, noise = factors.grid, factors.noise
    white = noise.weights_to_white(weights)
    total = _total_weight(factors)
    touched = np.any(white, axis=2)
    h = np.zeros(grid.cube_shape)
    for i, k, j in np.ndindex(factors.left.shape[:3]):
        rows, cols, bands = grid.slices(i, j, k)
        if not touched[rows, cols].any():
            continue
        share = factors.pixel_weights[i, k, j][..., None] / total[rows, cols, bands]
        c = (white[rows, cols, bands] * share).reshape(-1, grid.bands.size)
        h[rows, cols, bands] += _propagate(factors, (i, k, j), c).reshape(*share.shape[:2], -1)
    variance = float(np.vdot(h, h))
    if noise_variance is not None:
        widths = np.diff(grid.bands.edges)
        variance += float(np.sum(white**2 * np.repeat(noise_variance, widths, axis=2)))
    return variance


def _propagate(factors: Factors, window: tuple[int, int, int], c: np.ndarray) -> np.ndarray:
    """Return T(C) of one window."""
    scale = factors.influence[window][:, None]
    u = factors.left[window].reshape(len(scale), -1) * scale
    v = factors.right[window] * scale
    by_pixel = u.T @ (u @ c)
    return by_pixel + ((c - by_pixel) @ v.T) @ v


def _total_weight(
    factors: Factors, row: int | slice = slice(None), col: int | slice = slice(None)
) -> np.ndarray:
    """Return (..., bands) the sum of weights of all windows over each element of some pixels."""
    bands = factors.grid.bands
    sums = factors.weight_sum[row, col]
    total = np.zeros((*sums.shape[:-1], bands.length))
    for k, start in enumerate(bands.starts):
        total[..., start : start + bands.size] += sums[..., k, None]
    return total


def _dense(weights: Weights, shape: tuple[int, int, int]) -> np.ndarray:
    if isinstance(weights, Mapping):
        dense = np.zeros(shape)
        for position, weight in weights.items():
            dense[position] += weight
        return dense
    dense = np.asarray(weights, dtype=np.float64)
    if dense.shape != shape:
        raise ValueError(
            f"Invalid weights of shape {dense.shape}. They must have the shape of the cube, "
            f"{shape}, or be a mapping from (row, col, band) to a weight."
        )
    return dense


def spectral_covariance(
    factors: Factors, row: int, col: int, noise_variance: np.ndarray | None = None
) -> np.ndarray:
    """Return the (band, band) error covariance of one pixel, in the units of the data.

    Summed over the windows a, b over the pixel, with D_a the bands of a window and w_a its weights,

        Σ w_a [s_ab D_a D_b + (a_a − s_ab) D_a P_b + (a_b − s_ab) P_a D_b
               + (1 + s_ab − a_a − a_b) P_a P_b] w_b

    in whitened space, P = V Vᵀ: a diagonal matrix plus one of low rank.
    """
    grid = factors.grid
    windows = [(i, k, j) for i in grid.rows.covering(row) for k in range(grid.shape[2])
               for j in grid.cols.covering(col)]  # fmt: skip
    total = _total_weight(factors, row, col)
    fields, v, w, owner = _stacked(factors, windows, row, col, total)
    s = fields @ fields.T
    a = _own_leverage(factors, windows, row, col)

    vw = v * w[owner]
    kernel = (1 + s - a[:, None] - a)[np.ix_(owner, owner)] * (v @ v.T)
    linear = v * ((a[:, None] - s).T @ w)[owner]
    covariance = vw.T @ kernel @ vw + linear.T @ vw + vw.T @ linear
    diagonal = np.einsum("av,ab,bv->v", w, s, w)
    if noise_variance is not None:
        diagonal = diagonal + np.repeat(noise_variance[row, col], np.diff(grid.bands.edges))
    covariance[np.diag_indices(len(covariance))] += diagonal
    mixing = factors.noise.factor
    return mixing @ covariance @ mixing.T


def _stacked(
    factors: Factors, windows: list[tuple[int, int, int]], row: int, col: int, total: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return rows of P_U, all V and weights of the windows over a pixel.

    (windows, pixels around) rows of P_U; (components, bands) V; (windows, bands) normalised
    weights; (components,) the window each component belongs to.
    """
    grid = factors.grid
    top, side = int(grid.rows.starts[windows[0][0]]), int(grid.cols.starts[windows[0][2]])
    extent = (2 * grid.rows.size - 1, 2 * grid.cols.size - 1)
    rank = factors.left.shape[3]
    fields = np.zeros((len(windows), *extent))
    v = np.zeros((len(windows), rank, grid.cube_shape[2]))
    w = np.zeros((len(windows), grid.cube_shape[2]))
    for n, (i, k, j) in enumerate(windows):
        rows, cols, bands = grid.slices(i, j, k)
        scale = factors.influence[i, k, j]
        u = factors.left[i, k, j] * scale[:, None, None]
        own = u[:, row - rows.start, col - cols.start]
        here = (
            slice(rows.start - top, rows.stop - top),
            slice(cols.start - side, cols.stop - side),
        )
        fields[n][here] = np.tensordot(own, u, axes=1)
        v[n, :, bands] = factors.right[i, k, j] * scale[:, None]
        weight = factors.pixel_weights[i, k, j][row - rows.start, col - cols.start]
        w[n, bands] = weight / total[bands]
    owner = np.repeat(np.arange(len(windows)), rank)
    return fields.reshape(len(windows), -1), v.reshape(-1, v.shape[2]), w, owner


def _own_leverage(
    factors: Factors, windows: list[tuple[int, int, int]], row: int, col: int
) -> np.ndarray:
    """Return the diagonal element of P_U at a pixel, for each window over it."""
    values = []
    for window in windows:
        rows, cols, _ = factors.grid.slices(window[0], window[2], window[1])
        u = factors.left[window][:, row - rows.start, col - cols.start]
        values.append(np.sum(np.square(u * factors.influence[window])))
    return np.array(values)
