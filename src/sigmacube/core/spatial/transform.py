"""Spatial frequencies of a window: orthonormal cosine transform, rings, neighbours in frequency.

Images come as (windows, components, rows, cols). One product per window, of a shape that depends on
that window alone, so that results do not depend on what else is in the stack.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np

__all__ = ["N_RINGS", "cosines", "forward", "gathered", "inverse", "neighbour_count",
           "neighbour_sum", "rings", "spread"]  # fmt: skip

N_RINGS = 9
# Pixels of a window up to which a product with all of them is faster than one by rows and columns.
SMALL = 100


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


def _forward(n: int) -> np.ndarray:
    return cosines(n)


def _inverse(n: int) -> np.ndarray:
    return cosines(n).T


def _spread(n: int) -> np.ndarray:
    return np.square(cosines(n)).T


def _gathered(n: int) -> np.ndarray:
    return np.square(cosines(n))


def _beside(n: int) -> np.ndarray:
    """Return the (n, n) matrix that adds up the neighbours of every element, and itself."""
    return np.eye(n) + np.eye(n, k=1) + np.eye(n, k=-1)


@lru_cache(maxsize=256)
def _sides(kind: Callable[[int], np.ndarray], r: int, c: int, dtype: str) -> list[np.ndarray]:
    """Return matrices for rows and columns; for small windows one of them, for all pixels."""
    rows, cols = kind(r), kind(c)
    if r * c <= SMALL:
        return [np.ascontiguousarray(np.kron(rows, cols).T, dtype=dtype)]
    return [np.ascontiguousarray(rows, dtype=dtype), np.ascontiguousarray(cols.T, dtype=dtype)]


def _both_sides(kind: Callable[[int], np.ndarray], images: np.ndarray) -> np.ndarray:
    """Return rows · image · colsᵀ for every image (windows, components, r, c)."""
    count, parts, r, c = images.shape
    matrices = _sides(kind, r, c, images.dtype.str)
    if len(matrices) == 1:  # one product per window, not one per image
        flat = np.matmul(images.reshape(count, parts, r * c), matrices[0])
        return np.asarray(flat.reshape(images.shape))
    along = np.matmul(images.reshape(count, parts * r, c), matrices[1])
    return np.matmul(matrices[0], along.reshape(count, parts, r, c))


def forward(images: np.ndarray) -> np.ndarray:
    """Return the coefficients Φ X Φᵀ of images (windows, components, rows, cols)."""
    return _both_sides(_forward, images)


def inverse(coefficients: np.ndarray) -> np.ndarray:
    """Return the images of coefficients, Φᵀ C Φ."""
    return _both_sides(_inverse, coefficients)


def spread(power: np.ndarray) -> np.ndarray:
    """Return the diagonal over pixels of Φᵀ diag(power) Φ: Σ_f Φ_fu² power_f."""
    return _both_sides(_spread, power)


def gathered(weight: np.ndarray) -> np.ndarray:
    """Return Σ_u Φ_fu² weight_u: what sums of `spread` over weighted pixels make of frequencies."""
    return _both_sides(_gathered, weight)


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
    return _both_sides(_beside, power)


@lru_cache(maxsize=64)
def neighbour_count(side: tuple[int, int]) -> np.ndarray:
    """Return the (rows, cols) number of terms of `neighbour_sum`."""
    count = neighbour_sum(np.ones((1, 1, *side)))[0, 0]
    count.setflags(write=False)
    return count
