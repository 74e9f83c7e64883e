"""Slow, plain forms of what the library computes fast: every formula as the theory states it."""

from __future__ import annotations

from itertools import product

import numpy as np

from sigmacube.core.lowrank.factors import Factors


def windows_of(factors: Factors) -> list[tuple[int, int, int]]:
    """All windows (row, band window, col)."""
    return list(product(*(range(n) for n in factors.left.shape[:3])))


def projections(factors: Factors, window: tuple[int, int, int]) -> tuple[np.ndarray, np.ndarray]:
    """Dense P_U on (row, col)² of the scene and P_V on band², zero outside the window."""
    grid = factors.grid
    i, k, j = window
    rows, cols, bands = grid.slices(i, j, k)
    scale = factors.influence[window]
    n_rows, n_cols, n_bands = grid.cube_shape
    u = np.zeros((len(scale), n_rows, n_cols))
    u[:, rows, cols] = factors.left[window] * scale[:, None, None]
    v = np.zeros((len(scale), n_bands))
    v[:, bands] = factors.right[window] * scale[:, None]
    u = u.reshape(len(scale), -1)
    return u.T @ u, v.T @ v


def normalised_weights(factors: Factors) -> dict[tuple[int, int, int], np.ndarray]:
    """Weight of each window on every element of the cube, summing to one over windows."""
    grid = factors.grid
    total = np.zeros(grid.cube_shape)
    weights = {}
    for i, k, j in windows_of(factors):
        w = np.zeros(grid.cube_shape)
        w[grid.slices(i, j, k)] = factors.pixel_weights[i, k, j][..., None]
        weights[i, k, j] = w
        total += w
    return {window: w / total for window, w in weights.items()}


def mean_estimate(factors: Factors) -> np.ndarray:
    """Weighted mean of the windows' estimates, in the units of the data."""
    grid = factors.grid
    estimate = np.zeros(grid.cube_shape)
    for (i, k, j), w in normalised_weights(factors).items():
        where = grid.slices(i, j, k)
        d = factors.singular_values[i, k, j]
        patch = np.einsum("rhw,r,rb->hwb", factors.left[i, k, j], d, factors.right[i, k, j])
        estimate[where] += w[where] * patch
    return factors.noise.unwhiten(estimate)


def exact_std(factors: Factors) -> np.ndarray:
    """Σ_ab w_a w_b cov_ab by a loop over all pairs of windows, with dense projections."""
    grid, mixing = factors.grid, factors.noise.factor
    n_rows, n_cols, n_bands = grid.cube_shape
    weights = normalised_weights(factors)
    dense = {w: projections(factors, w) for w in weights}
    variance = np.zeros((n_rows * n_cols, n_bands))
    inside = {}
    for i, k, j in weights:
        mask = np.zeros(grid.cube_shape, dtype=bool)
        mask[grid.slices(i, j, k)] = True
        inside[i, k, j] = mask.reshape(-1, n_bands)
    for a, b in product(weights, weights):
        (pu_a, pv_a), (pu_b, pv_b) = dense[a], dense[b]
        s = np.sum(pu_a * pu_b, axis=1)[:, None]
        t = np.diag(mixing @ pv_a @ pv_b @ mixing.T)
        a_a, a_b = np.diag(pu_a)[:, None], np.diag(pu_b)[:, None]
        b_a, b_b = np.diag(mixing @ pv_a @ mixing.T), np.diag(mixing @ pv_b @ mixing.T)
        one = np.diag(mixing @ mixing.T)
        cov = s * (one - b_a - b_b + t) + t * (1 - a_a - a_b) + a_a * b_b + a_b * b_a
        ww = (weights[a] * weights[b]).reshape(-1, n_bands)
        variance += np.where(inside[a] & inside[b], ww * cov, 0)
    return np.sqrt(variance.reshape(grid.cube_shape))


def ratio_std(factors: Factors) -> np.ndarray:
    """The paper's form: σ_a σ_b times the share of common elements, over unordered pairs."""
    grid = factors.grid
    weights = normalised_weights(factors)
    n_elements = np.prod(grid.window)
    std, inside = {}, {}
    for i, k, j in weights:
        where = grid.slices(i, j, k)
        a = np.sum(factors.left[i, k, j] ** 2, axis=0)
        b = np.sum(factors.right[i, k, j] ** 2, axis=0)
        std[i, k, j] = np.zeros(grid.cube_shape)
        std[i, k, j][where] = np.sqrt(a[..., None] + b)
        inside[i, k, j] = np.zeros(grid.cube_shape, dtype=bool)
        inside[i, k, j][where] = True
    variance = sum((weights[a] * std[a]) ** 2 for a in weights)
    names = list(weights)
    for n, a in enumerate(names):
        for b in names[n + 1 :]:
            eta = np.count_nonzero(inside[a] & inside[b]) / n_elements
            variance = variance + 2 * eta * weights[a] * std[a] * weights[b] * std[b]
    return np.sqrt(variance) * factors.noise.std
