"""A field spectrum, taken into account at the pixel it was measured at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from sigmacube.core.card import Card, count_of, spread_of
from sigmacube.core.validity import check_pixel
from sigmacube.result import EstimatedCube


@dataclass(frozen=True, eq=False)
class ConditionedSpectrum(Card):
    """A pixel's spectrum after a measurement of it was taken into account."""

    estimate: np.ndarray
    """(band,)"""
    std: np.ndarray
    """(band,)"""
    covariance: np.ndarray
    """(band, band)"""
    surprise: float
    """Squared distance of the measurement from what was expected, over its number of values: near
    one when cube and measurement agree within their errors."""

    def _facts(self) -> Mapping[str, str]:
        return {
            "size": count_of(len(self.estimate), "band"),
            "values": spread_of(self.estimate),
            "σ": spread_of(self.std),
            "surprise": f"{self.surprise:.3g}, near 1 where both agree",
        }


def condition(
    cube: EstimatedCube,
    row: int,
    col: int,
    spectrum: np.ndarray,
    noise: float | np.ndarray,
    *,
    bands: Sequence[int] | None = None,
    operator: np.ndarray | None = None,
) -> ConditionedSpectrum:
    """Take a field spectrum into account at one pixel, with the full spectral covariance.

    The errors of a pixel's bands are correlated, so a measurement of some bands improves the others
    too: x + Σ Aᵀ (A Σ Aᵀ + R)⁻¹ (y − A x).

    Parameters
    ----------
    cube
        Result of `sigmacube.denoise` or `fuse`.
    row, col
        The pixel.
    spectrum
        (n,) measured values y, independent of the cube.
    noise
        Their error: a standard deviation, one per value, or a covariance R (n, n).
    bands
        Indices of the bands that were measured; all bands by default.
    operator
        (n, bands) matrix A instead, for a measurement of combinations of bands.

    Examples
    --------
    >>> import numpy as np, sigmacube as sc
    >>> from sigmacube import products
    >>> truth = sc.synthetic.scene((24, 30, 40), rng=1)
    >>> result = sc.denoise(sc.synthetic.add_noise(truth, 0.05, rng=2), 0.05, window=12)
    >>> better = products.condition(result, 5, 6, truth.values[5, 6, ::4], 0.001,
    ...                             bands=range(0, 40, 4))
    >>> bool(np.all(better.std < result.std[5, 6]))
    True
    """
    errors = cube.known_errors()
    n_bands = errors.shape[2]
    check_pixel(row, col, errors.shape)
    known = np.isfinite(cube.estimate[row, col])
    if not known.any():
        raise ValueError(f"Invalid pixel ({row}, {col}). It has no data.")
    observe = _operator(bands, operator, n_bands)
    if np.any(observe[:, ~known]):
        raise ValueError("Invalid measurement of a band without data.")
    observe = observe[:, known]
    y = np.asarray(spectrum, dtype=np.float64)
    if y.shape != (len(observe),) or not np.all(np.isfinite(y)):
        raise ValueError(
            f"Invalid spectrum of shape {y.shape}. It must be {len(observe)} finite values."
        )
    r = _noise_covariance(noise, len(y))
    prior = errors.spectral_covariance(row, col)[np.ix_(known, known)]
    x = np.asarray(cube.estimate[row, col, known], dtype=np.float64)
    expected = observe @ prior @ observe.T + r
    gain = np.linalg.solve(expected, observe @ prior).T
    difference = y - observe @ x
    # Joseph's form stays positive definite when the measurement is much better than the cube.
    keep = np.eye(len(x)) - gain @ observe
    posterior = keep @ prior @ keep.T + gain @ r @ gain.T
    estimate = np.full(n_bands, np.nan)
    estimate[known] = x + gain @ difference
    covariance = np.full((n_bands, n_bands), np.nan)
    covariance[np.ix_(known, known)] = posterior
    surprise = float(difference @ np.linalg.solve(expected, difference)) / len(y)
    return ConditionedSpectrum(estimate, np.sqrt(np.diag(covariance)), covariance, surprise)


def _operator(bands: Sequence[int] | None, operator: np.ndarray | None, n_bands: int) -> np.ndarray:
    if operator is not None:
        matrix = np.asarray(operator, dtype=np.float64)
        if matrix.ndim != 2 or matrix.shape[1] != n_bands:
            raise ValueError(
                f"Invalid operator of shape {matrix.shape}. It must be (values, {n_bands})."
            )
        return matrix
    picked = np.arange(n_bands) if bands is None else np.asarray(list(bands), dtype=int)
    if np.any((picked < 0) | (picked >= n_bands)):
        raise ValueError(f"Invalid bands. They must be from 0 to {n_bands - 1}.")
    return np.eye(n_bands)[picked]


def _noise_covariance(noise: float | np.ndarray, count: int) -> np.ndarray:
    level = np.asarray(noise, dtype=np.float64)
    if level.ndim == 2 and level.shape == (count, count):
        return level
    if level.ndim > 1 or level.size not in (1, count) or np.any(level <= 0):
        raise ValueError(
            f"Invalid noise of shape {level.shape}. It must be a standard deviation above 0, "
            f"{count} of them, or a {count}×{count} covariance."
        )
    return np.diag(np.broadcast_to(np.square(level), (count,)))
