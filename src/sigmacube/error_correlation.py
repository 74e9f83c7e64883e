"""How the errors of a result are correlated: what is worked out for a file to state.

The error of a window is T(G) = G P_V + P_U G (I - P_V). The first part, a pixel's own noise seen
through the window's spectral subspace, correlates the bands of one pixel. The second one, noise
averaged over the window's pixels, correlates pixels. A file holds one correlation matrix per axis
(the matrix of all elements would have their number squared), so each is a mean over the scene, and
those who read them multiply them. Exact figures come from `DenoisedCube.functional_std` and
`DenoisedCube.spectral_cov` alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from threadpoolctl import threadpool_limits

from sigmacube.core.windows import window_sides

if TYPE_CHECKING:
    from sigmacube.result import DenoisedCube

#: Places along an image axis that the means are taken over; the edges have fewer windows.
_SAMPLES = (0.5, 0.2, 0.8)
#: Elements of the cube times places that may be asked for an exact variance, each a pass over it.
_BUDGET = 12_000_000


@dataclass(frozen=True, eq=False)
class ErrorCorrelation:
    """Mean correlation of a result's errors along each axis."""

    bands: np.ndarray
    """(band, band) of a pixel's errors."""
    level: float
    """Correlation at the shortest distance along rows or columns, see `along_pixels`."""
    window: tuple[int, int]
    """(rows, cols) in pixels."""
    step: tuple[int, int]

    def along(self, axis: int, size: int) -> np.ndarray:
        """Return the (size, size) correlation along rows (0) or columns (1)."""
        return along_pixels(size, self.window[axis], self.step[axis], self.level)


def error_correlation(result: DenoisedCube) -> ErrorCorrelation:
    """Work out the mean error correlation of a result, from a few places of the scene.

    Examples
    --------
    >>> import sigmacube as sc
    >>> noisy = sc.synthetic.add_noise(sc.synthetic.scene((24, 30, 40), rng=1), 0.05, rng=2)
    >>> found = error_correlation(sc.denoise(noisy, 0.05, window=12))
    >>> found.bands.shape, found.along(0, 24).shape
    ((40, 40), (24, 24))
    """
    typical = result if result.typical is None else result.typical()
    with threadpool_limits(limits=1, user_api="blas"):  # the matrices are small
        return ErrorCorrelation(along_bands(typical), _pixel_level(typical), *_geometry(result))


def _geometry(result: DenoisedCube) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return (rows, cols) of the window and of the step; the whole image where they are unknown."""
    rows, cols, _ = result.estimate.shape
    window = window_sides(result.settings, "window") or (rows, cols)
    return window, window_sides(result.settings, "step") or window


def _places(result: DenoisedCube) -> list[tuple[slice, slice]]:
    """Return the rows and columns of windows that are spread over the scene."""
    spans = []
    for size, side in zip(result.estimate.shape[:2], _geometry(result)[0], strict=True):
        starts = dict.fromkeys(round(part * max(size - side, 0)) for part in _SAMPLES)
        spans.append([slice(start, min(start + side, size)) for start in starts])
    return [(rows, cols) for rows in spans[0] for cols in spans[1]]


def along_bands(result: DenoisedCube) -> np.ndarray:
    """Return the (band, band) correlation of a pixel's errors, a mean over the scene.

    A result that still has its window factors gives it exactly. Otherwise, with C = L Lᵀ the noise
    covariance and P_V the projection onto the spectral subspace of a window in whitened space, the
    error covariance of a pixel is L [P_V + a (I - P_V)] Lᵀ; P_V is found from the estimate, and the
    pixel leverage a from the standard deviation. Bands without values are uncorrelated with all
    others.
    """
    valid = result.has_values()
    total = np.zeros((int(valid.sum()),) * 2)
    ratio = None if result.error_model is not None else _variance_ratio(result)
    for rows, cols in _places(result):
        if ratio is None:
            row, col = (min((p.start + p.stop) // 2, p.stop - 1) for p in (rows, cols))
            known = np.isfinite(result.estimate[row, col, valid]).all()
            covariance = result.spectral_cov(row, col)[np.ix_(valid, valid)] if known else None
        else:
            covariance = _of_window(result, valid, rows, cols, ratio)
        if covariance is not None:
            total += _correlation(covariance)
    matrix = np.eye(len(valid))
    if np.any(total):
        matrix[np.ix_(valid, valid)] = _correlation(total)
    return matrix


def _correlation(covariance: np.ndarray) -> np.ndarray:
    std = np.sqrt(np.diag(covariance))
    std = np.where(std > 0, std, 1.0)
    matrix = covariance / std / std[:, None]
    np.fill_diagonal(matrix, 1.0)
    return matrix


def _of_window(
    result: DenoisedCube, valid: np.ndarray, rows: slice, cols: slice, ratio: float
) -> np.ndarray | None:
    """Return the (band, band) covariance of a pixel's errors from the estimate of a window."""
    pixels = np.asarray(result.estimate[rows, cols])[..., valid].astype(float)
    pixels = pixels[np.isfinite(pixels).all(axis=2)]
    if len(pixels) == 0:
        return None
    level = np.asarray(result.noise, dtype=float)
    if level.ndim == 2:  # L with L Lᵀ the noise covariance of the valid bands
        color = np.linalg.cholesky(level[np.ix_(valid, valid)])
    else:
        std = np.broadcast_to(level, valid.shape)[valid]
        color = np.diag(np.where(np.isfinite(std) & (std > 0), std, 1.0))
    ranks = result.ranks.reshape(*result.ranks.shape[:2], -1).max(axis=2)
    at = tuple(
        part.start * (count - 1) // max(size - (part.stop - part.start), 1)
        for part, count, size in zip((rows, cols), ranks.shape, result.estimate.shape, strict=False)
    )
    rank = int(np.clip(ranks[at], 1, len(color)))
    white = np.linalg.solve(color, pixels.T)
    right = np.linalg.eigh(white @ white.T)[1][:, -rank:]
    band_leverage = rank / len(color)
    leverage = (1 / ratio - band_leverage) / max(1 - band_leverage, 1e-9)
    # Windows over a pixel reach four times their own area, and no further.
    leverage = float(np.clip(leverage, rank / (4 * len(pixels)), 1.0))
    inner = (1 - leverage) * right @ right.T + leverage * np.eye(len(right))
    return np.asarray(color @ inner @ color.T)


def _variance_ratio(result: DenoisedCube) -> float:
    """Return the noise variance over that of the estimate, the median over the scene."""
    if result.std is None:
        raise ValueError("Invalid result: it has no standard deviation.")
    level = np.asarray(result.noise, dtype=float)
    variance = np.diag(level) if level.ndim == 2 else level**2
    rows, cols, bands = result.std.shape
    if isinstance(result.std, np.ndarray):
        thin = result.std[:: max(1, rows // 64), :: max(1, cols // 64)]
    else:  # stored by chunks: every 64th pixel would read all of them
        parts = [np.asarray(result.std[place]) for place in _places(result)]
        thin = np.concatenate([part.reshape(-1, bands) for part in parts])
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = variance / thin.astype(float) ** 2
    ratios = ratios[np.isfinite(ratios) & (ratios > 0)]
    return float(np.median(ratios)) if ratios.size else 1.0


def along_pixels(size: int, window: int, step: int, level: float) -> np.ndarray:
    """Return the (size, size) correlation of errors along one image axis, in single precision.

    Averaging windows spreads a pixel's noise by a kernel; errors correlate as this kernel with
    itself. It is a read-only view of one profile: a matrix of a large scene would take more memory
    than its tiles.

    Parameters
    ----------
    size
        Pixels along the axis.
    window, step
        In pixels.
    level
        Correlation at the shortest distance, see `ErrorCorrelation`.

    Examples
    --------
    >>> print(along_pixels(4, window=2, step=1, level=0.5).round(2))
    [[1.   0.33 0.08 0.  ]
     [0.33 1.   0.33 0.08]
     [0.08 0.33 1.   0.33]
     [0.   0.08 0.33 1.  ]]
    """
    kernel = _kernel(min(window, size), step)
    shape = np.correlate(kernel, kernel, mode="full")[len(kernel) - 1 :]
    profile = np.zeros(size, dtype=np.float32)
    count = min(size, len(shape))
    profile[:count] = level * (shape / shape[0])[:count]
    profile[0] = 1.0
    both_ways = np.concatenate([profile[:0:-1], profile])
    return sliding_window_view(both_ways, size)[::-1]


def _kernel(window: int, step: int) -> np.ndarray:
    """Return the mean of boxes of width ``window`` at offsets of ``step``."""
    kernel = np.zeros(2 * window - 1)
    for offset in range(0, window, max(1, min(step, window))):
        kernel[window - 1 - offset : 2 * window - 1 - offset] += 1
    return kernel / kernel.sum()


def _pixel_level(result: DenoisedCube) -> float:
    """Return the ``level`` of `along_pixels` for both image axes.

    A result that still has its window factors, and is not too large, is asked for the standard
    deviation of means over a window: the level is the one that gives the same. Otherwise it follows
    from every window keeping the mean of its pixels: errors at a distance (i, j) then correlate by
    c k(i) k(j), with k the shape along an axis and c the variance that averaging leaves over that
    of the estimate. The matrices of the two axes are multiplied, so each one has √c.
    """
    if result.error_model is not None:
        bands = np.flatnonzero(result.has_values())
        places = _places(result)[: _BUDGET // result.estimate.size]
        levels = [
            _fitted_level(result, place, int(bands[(2 * n + 1) * len(bands) // (2 * len(places))]))
            for n, place in enumerate(places)
        ]
        if any(level is not None for level in levels):
            return float(np.median([level for level in levels if level is not None]))
    left = [
        np.sum(_kernel(min(side, size), stride) ** 2)
        for side, size, stride in zip(
            _geometry(result)[0], result.estimate.shape, _geometry(result)[1], strict=False
        )
    ]
    return float(np.sqrt(min(1.0, left[0] * left[1] * _variance_ratio(result))))


def _fitted_level(result: DenoisedCube, place: tuple[slice, slice], band: int) -> float | None:
    """Return the level that gives the exact variance of a mean over a window; None if unknown."""
    if result.std is None:
        return None
    block = result.std[(*place, band)].astype(float)
    valid = np.isfinite(block)
    if valid.sum() < 4:
        return None
    weight, (top, left) = 1 / valid.sum(), (part.start for part in place)
    pixels = [(top + int(r), left + int(c), band) for r, c in np.argwhere(valid)]
    target = result.functional_std(dict.fromkeys(pixels, weight)) ** 2
    std = np.where(valid, block, 0.0) * weight
    off_y, off_x = (
        along_pixels(size, size, stride, 1.0) - np.eye(size)
        for size, stride in zip(block.shape, _geometry(result)[1], strict=True)
    )
    axis = np.sum(std * (off_y @ std)) + np.sum(std * (std @ off_x))
    both = np.sum(std * (off_y @ std @ off_x))
    # Σstd² + axis * level + both * level² = target
    excess = max(target - np.sum(std**2), 0.0)
    level = (-axis + np.sqrt(axis**2 + 4 * both * excess)) / (2 * both) if both > 0 else 0.0
    return float(min(level, 1.0))
