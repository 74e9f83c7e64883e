"""Standard deviations that are known to be wrong."""

from __future__ import annotations

import numpy as np

from sigmacube.core.lowrank.patch_variance import exact_variance
from sigmacube.result import DenoisedCube

__all__ = ["independent_std"]


def independent_std(result: DenoisedCube) -> np.ndarray:
    """Return σ as if overlapping windows had independent errors: Σ w² var / (Σ w)².

    Windows share most of their pixels, so this is far too small; studies use it as a control.
    """
    model = result.error_model
    if model is None:
        raise ValueError("Invalid result without its error model.")
    factors, grid = model.factors, model.factors.grid
    variance = np.zeros(grid.cube_shape)
    total = np.zeros(grid.cube_shape)
    for i, k, j in np.ndindex(factors.left.shape[:3]):
        rows, cols, bands = grid.slices(i, j, k)
        weight = factors.pixel_weights[i, k, j][..., None]
        left = factors.left[i, k, j] * factors.is_signal[i, k, j][:, None, None]
        right = factors.right[i, k, j] * factors.is_signal[i, k, j][:, None]
        a, b = np.square(left).sum(axis=0), np.square(right).sum(axis=0)
        own = exact_variance(a.ravel(), b).reshape(*a.shape, -1)
        variance[rows, cols, bands] += weight**2 * own
        total[rows, cols, bands] += weight
    std = np.full(result.estimate.shape, np.nan)
    std[..., model.bands] = np.sqrt(variance) / total * factors.noise.std
    return std
