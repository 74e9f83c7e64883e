"""Spatial frequencies of a window: orthonormal cosine transform, rings, neighbours in frequency.

Images come as (windows, components, rows, cols). One product per window, of a shape that depends on
that window alone, so that results do not depend on what else is in the stack.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

__all__ = ["N_RINGS", "cosines", "forward", "inverse", "neighbour_count", "neighbour_sum",
           "rings", "spread"]  # fmt: skip

N_RINGS = 9


@lru_cache(maxsize=64)
def cosines(n: int) -> np.ndarray:
    """Return the (n, n) orthonormal cosine transform, frequency by position.

    Φ_fx = √(2/n) cos(π (x + ½) f / n), and √(1/n) for f = 0.

    Examples
    --------
    >>> bool(np.allclose(cosines(5) @ cosines(5).T, np.eye(5)))
    True
    """
    f, x = np.arange(n)[:, None], np.arange(n)[None]
    matrix = np.cos(math.pi * (x + 0.5) * f / n) * math.sqrt(2 / n)
    matrix[0] /= math.sqrt(2)
    matrix.setflags(write=False)
    return matrix


def _both_sides(rows: np.ndarray, images: np.ndarray, cols: np.ndarray) -> np.ndarray:
    """Return rows · image · colsᵀ for every image (windows, components, r, c)."""
    count, parts, r, c = images.shape
    along = np.matmul(images.reshape(count, parts * r, c), cols.T)
    return np.matmul(rows, along.reshape(count, parts, r, c))


def _matrices(images: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    r, c = images.shape[2:]
    return cosines(r).astype(images.dtype), cosines(c).astype(images.dtype)


def forward(images: np.ndarray) -> np.ndarray:
    """Return the coefficients Φ X Φᵀ of images (windows, components, rows, cols)."""
    rows, cols = _matrices(images)
    return _both_sides(rows, images, cols)


def inverse(coefficients: np.ndarray) -> np.ndarray:
    """Return the images of coefficients, Φᵀ C Φ."""
    rows, cols = _matrices(coefficients)
    return _both_sides(rows.T, coefficients, cols.T)


def spread(power: np.ndarray) -> np.ndarray:
    """Return the diagonal over pixels of Φᵀ diag(power) Φ: Σ_f Φ_fu² power_f."""
    rows, cols = _matrices(power)
    return _both_sides((rows * rows).T, power, (cols * cols).T)


@lru_cache(maxsize=64)
def rings(side: tuple[int, int]) -> np.ndarray:
    """Return the (rows, cols) ring of every frequency, 0 (mean) to 8 (finest).

    Only frequency zero is in ring 0.
    """
    r, c = (np.arange(n) * ((N_RINGS - 1) / n) for n in side)
    radius = np.hypot(r[:, None], c[None])
    ring = np.clip(np.rint(radius).astype(np.intp), 1, N_RINGS - 1)
    ring[0, 0] = 0
    ring.setflags(write=False)
    return ring


def neighbour_sum(power: np.ndarray) -> np.ndarray:
    """Return the sum over a coefficient's 3 × 3 surroundings, as far as they exist."""
    total = power.copy()
    total[..., 1:, :] += power[..., :-1, :]
    total[..., :-1, :] += power[..., 1:, :]
    down = total.copy()
    total[..., 1:] += down[..., :-1]
    total[..., :-1] += down[..., 1:]
    return total


@lru_cache(maxsize=64)
def neighbour_count(side: tuple[int, int]) -> np.ndarray:
    """Return the (rows, cols) number of terms of `neighbour_sum`."""
    count = neighbour_sum(np.ones(side))
    count.setflags(write=False)
    return count
