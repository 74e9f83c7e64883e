"""How the errors of a result are correlated: what a file can state about it.

The error of a window is T(G) = G P_V + P_U G (I - P_V). The first part, a pixel's own noise seen
through the window's spectral subspace, correlates the bands of one pixel. The second one, noise
averaged over the window's pixels, correlates pixels. A file holds one correlation matrix per axis
(the matrix of all elements would have their number squared), so each is a mean over the scene.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

__all__ = ["along_bands", "along_pixels", "window_sides"]

#: Windows per axis that the matrix between bands is averaged over.
_SAMPLES = 3


def window_sides(settings: Mapping[str, Any], key: str) -> tuple[int, int] | None:
    """Return (rows, cols) of the ``window`` or ``step`` setting, or None where it is absent.

    Examples
    --------
    >>> window_sides({"window": 20}, "window"), window_sides({"step": [4, 5, None]}, "step")
    ((20, 20), (4, 5))
    """
    value = settings.get(key)
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        return int(value), int(value)
    if isinstance(value, Sequence) and len(value) >= 2 and all(value[:2]):
        return int(value[0]), int(value[1])
    return None


def along_bands(
    estimate: np.ndarray,
    noise: float | np.ndarray,
    ranks: np.ndarray,
    window: tuple[int, int],
) -> np.ndarray:
    """Return the (band, band) correlation of a pixel's errors, a mean over windows of the scene.

    With C = L Lᵀ the noise covariance, P_V the projection onto the spectral subspace of a window
    in whitened space and a = rank / pixels its mean pixel leverage, the error covariance of a
    pixel is L [P_V + a (I - P_V)] Lᵀ. The subspace is found from the estimate. Bands without
    values are uncorrelated with all others.
    """
    bands = estimate.shape[2]
    valid = np.isfinite(estimate).any(axis=(0, 1))
    whiten, color = _whitening(noise, bands)
    total = np.zeros((int(valid.sum()),) * 2)
    for block, rank in _sample_windows(estimate[:, :, valid], ranks, window):
        pixels = block.reshape(-1, block.shape[2])
        pixels = pixels[np.isfinite(pixels).all(axis=1)]
        if len(pixels) == 0:
            continue
        white = pixels.astype(float) @ whiten(valid).T
        _, vectors = np.linalg.eigh(white.T @ white)
        right = vectors[:, vectors.shape[1] - rank :]
        leverage = rank / len(pixels)
        inner = (1 - leverage) * right @ right.T + leverage * np.eye(len(right))
        outer = color(valid) @ inner @ color(valid).T
        total += _correlation(outer)
    matrix = np.eye(bands)
    if total.any():
        matrix[np.ix_(valid, valid)] = _correlation(total)
    return matrix


def _whitening(noise: float | np.ndarray, bands: int) -> tuple[Any, Any]:
    """Return functions of the valid bands that give L⁻¹ and L."""
    level = np.asarray(noise, dtype=float)
    if level.ndim < 2:
        std = np.broadcast_to(level, bands)
        std = np.where(np.isfinite(std) & (std > 0), std, 1.0)
        return (lambda valid: np.diag(1 / std[valid])), (lambda valid: np.diag(std[valid]))

    def color(valid: np.ndarray) -> np.ndarray:
        return np.linalg.cholesky(level[np.ix_(valid, valid)])

    return (lambda valid: np.linalg.inv(color(valid))), color


def _sample_windows(
    estimate: np.ndarray, ranks: np.ndarray, window: tuple[int, int]
) -> list[tuple[np.ndarray, int]]:
    rows, cols, bands = estimate.shape
    found = []
    for v in np.linspace(0, 1, _SAMPLES):
        for h in np.linspace(0, 1, _SAMPLES):
            top = round(v * max(rows - window[0], 0))
            left = round(h * max(cols - window[1], 0))
            at = ranks[round(v * (ranks.shape[0] - 1)), round(h * (ranks.shape[1] - 1))]
            rank = int(np.clip(np.max(at), 1, bands))
            found.append((estimate[top : top + window[0], left : left + window[1]], rank))
    return found


def _correlation(covariance: np.ndarray) -> np.ndarray:
    std = np.sqrt(np.diag(covariance))
    std = np.where(std > 0, std, 1.0)
    matrix = covariance / std / std[:, None]
    np.fill_diagonal(matrix, 1.0)
    return matrix


def along_pixels(
    size: int, window: int, step: int, variance_ratio: float
) -> np.ndarray:
    """Return the (size, size) correlation of errors along one image axis.

    Every window keeps the mean of its pixels, so averaging overlapping windows spreads a pixel's
    noise by a kernel g, the mean of boxes of width ``window`` at offsets of ``step``, along each
    axis. Errors at a distance (i, j) then correlate by c k(i) k(j) / k(0)², with
    k(i) = Σ g(m) g(m + i) and c = k(0)² ``variance_ratio``. The matrices of the two axes are
    multiplied by those who read them, so each one gets √c: their product is right for pixels that
    differ in row and column, and an upper bound along a single row or column.

    Parameters
    ----------
    size
        Pixels along the axis.
    window, step
        In pixels.
    variance_ratio
        Noise variance over the variance of the estimate.

    Examples
    --------
    >>> along_pixels(4, window=2, step=1, variance_ratio=2.0).round(2)
    array([[1.  , 0.35, 0.09, 0.  ],
           [0.35, 1.  , 0.35, 0.09],
           [0.09, 0.35, 1.  , 0.35],
           [0.  , 0.09, 0.35, 1.  ]])
    """
    window = min(window, size)
    kernel = np.zeros(2 * window - 1)
    offsets = range(0, window, max(1, min(step, window)))
    for offset in offsets:
        kernel[window - 1 - offset : 2 * window - 1 - offset] += 1
    kernel /= kernel.sum()
    shape = np.correlate(kernel, kernel, mode="full")[len(kernel) - 1 :]
    level = min(1.0, shape[0] * np.sqrt(variance_ratio))
    profile = np.zeros(size)
    count = min(size, len(shape))
    profile[:count] = level * shape[:count] / shape[0]
    profile[0] = 1.0
    index = np.arange(size)
    return profile[np.abs(index[:, None] - index[None, :])]
