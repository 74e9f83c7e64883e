r"""Pixels that no window explains: found by their residual, given back in part, and listed.

Inside the subspace ‖z − ẑ‖² is χ² with k − t degrees of freedom if nothing was lost, t the claimed
error of the pixel; outside it ‖y − yBBᵀ‖² has P − k. Where it is too large, the James–Stein share
f = (1 − dof/‖r‖²)₊ of the residual belongs to the pixel: it is added to the estimate, and the
variance becomes (1 − f) σ² + f, the pixel's own noise.
"""

from __future__ import annotations

import math

import numpy as np

__all__ = ["given_back", "lines", "normal_score", "scale_of"]

LIMIT = 4.2
LINE_LIMIT = 5.5
LINE = 3


def normal_score(square: np.ndarray, freedom: np.ndarray) -> np.ndarray:
    """Return the standard normal score of χ² values (Wilson and Hilferty's cube root).

    Examples
    --------
    >>> normal_score(np.array([15.0, 60.0]), np.array([15.0, 15.0])).round(1)
    array([0.1, 5.1])
    """
    freedom = np.maximum(freedom, 0.5)
    spread = 2 / (9 * freedom)
    return (np.cbrt(square / freedom) - (1 - spread)) / np.sqrt(spread)


def scale_of(score: np.ndarray) -> np.ndarray:
    """Return the centre and width of scores of ordinary pixels, by quartiles; width one at least."""
    if score.size < 50:
        return np.array([0.0, 1.0])
    low, middle, high = np.quantile(score, [0.25, 0.5, 0.75])
    return np.array([middle, max((high - low) / 1.349, 1.0)])


def given_back(square: np.ndarray, freedom: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Return the share f (row, col) of the residual that belongs to the pixel, mostly zero."""
    score = (normal_score(square, freedom) - scale[0]) / scale[1]
    share = np.maximum(1 - freedom / np.maximum(square, 1e-12), 0)
    return np.where(score > LIMIT, share, 0.0)


def lines(residual: np.ndarray, claimed: np.ndarray) -> np.ndarray:
    """Return (n, 3) elements of narrow features: three neighbouring bands far from the estimate.

    Parameters
    ----------
    residual
        (row, col, P) data less estimate, zero where missing.
    claimed
        (row, col, P) variance of the estimate.
    """
    bands = residual.shape[2]
    if bands < 4 * LINE:
        return np.zeros((0, 3), dtype=np.intp)
    total = residual[..., :-2] + residual[..., 1:-1] + residual[..., 2:]
    score = np.abs(total) / math.sqrt(LINE)
    centre = np.argwhere(score > LINE_LIMIT)
    if not len(centre):
        return np.zeros((0, 3), dtype=np.intp)
    centre[:, 2] += 1
    triple = (centre[:, None, :] + np.array([[0, 0, -1], [0, 0, 0], [0, 0, 1]])).reshape(-1, 3)
    strong = np.abs(residual[tuple(triple.T)]) > 1.0
    return np.unique(triple[strong], axis=0)
