"""Correlation of the noise between bands, as a function of their distance: banded Toeplitz.

Detectors, read-out and spectral resampling mix neighbouring bands alike wherever they sit, so a
handful of numbers describe the correlation of hundreds of bands. So few can be told from signal;
a free covariance could not.
"""

from __future__ import annotations

import numpy as np

__all__ = ["LAGS", "correlation_by_lag", "correlation_matrix", "fit_complement"]

LAGS = 8
# The spectral density of the noise across bands is kept above this share of its mean: it bounds
# what whitening can amplify.
LOWEST_DENSITY = 0.01
MAX_ROUNDS = 40
# Correlation at the last lag from which on it goes on beyond.
TAIL = 0.1
SETTLED = 1e-3


def correlation_by_lag(covariance: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """Return the mean correlation of bands at distance 0, 1, … LAGS.

    Parameters
    ----------
    covariance
        (bands, bands) covariance.
    positions
        (bands,) index of each band in the sensor's own numbering: a gap is a distance.

    Examples
    --------
    >>> import numpy as np
    >>> positions = np.arange(30)
    >>> covariance = 4 * 0.5 ** np.abs(positions[:, None] - positions)
    >>> correlation_by_lag(covariance, positions)[:3].round(2)
    array([1.  , 0.5 , 0.25])
    """
    std = np.sqrt(np.diag(covariance))
    both = np.outer(std, std)
    correlation = np.divide(covariance, both, out=np.eye(len(std)), where=both > 0)
    distance = np.abs(np.subtract.outer(positions, positions))
    near = distance <= LAGS
    sums = np.bincount(distance[near], correlation[near], minlength=LAGS + 1)
    counts = np.bincount(distance[near], minlength=LAGS + 1)
    return sums / np.maximum(counts, 1)


def correlation_matrix(by_lag: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """Return the positive definite (bands, bands) correlation with these values by distance.

    Examples
    --------
    >>> import numpy as np
    >>> matrix = correlation_matrix(np.array([1.0, 0.9, 0.1]), np.array([0, 1, 2, 7]))
    >>> bool(np.linalg.eigvalsh(matrix).min() > 0)
    True
    >>> matrix[0].round(2)[[0, 3]]
    array([1., 0.])
    """
    span = int(positions[-1] - positions[0]) + 1
    size = 4 * max(span, 4 * LAGS)
    by_lag = _with_tail(by_lag, size // 2)
    ring = np.zeros(size)
    ring[: len(by_lag)] = by_lag
    ring[size - len(by_lag) + 1 :] = by_lag[:0:-1]
    density = np.maximum(np.fft.rfft(ring).real, LOWEST_DENSITY)
    by_distance = np.fft.irfft(density, n=size)
    by_distance /= by_distance[0]
    return by_distance[np.abs(np.subtract.outer(positions, positions))]


def _with_tail(by_lag: np.ndarray, most: int) -> np.ndarray:
    """Return correlations by distance that go on beyond the last lag as they fall before it.

    Noise that is still notable there is autoregressive: its correlation falls by the same factor
    from one distance to the next.
    """
    half = len(by_lag) // 2
    if len(by_lag) <= LAGS or min(by_lag[half], by_lag[-1]) < TAIL:
        return by_lag
    factor = float(np.clip((by_lag[-1] / by_lag[half]) ** (1 / (len(by_lag) - 1 - half)), 0, 0.995))
    tail = by_lag[-1] * factor ** np.arange(1, most - len(by_lag) + 1)
    return np.concatenate([by_lag, tail])


def fit_complement(
    covariance: np.ndarray, directions: np.ndarray, positions: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Fit diag(s) R diag(s), R banded Toeplitz, to noise that is seen outside some directions.

    The directions hold signal, so the noise in them is missing data: expectation–maximisation
    fills it in from the noise outside.

    Parameters
    ----------
    covariance
        (bands, bands) covariance; only its part outside the directions is used.
    directions
        (bands, k) orthonormal directions of the signal.
    positions
        (bands,) index of each band.

    Returns
    -------
    (std, by_lag)
        (bands,) standard deviations and (LAGS + 1,) correlations by distance.

    Examples
    --------
    >>> import numpy as np
    >>> positions = np.arange(60)
    >>> noise = 4 * 0.5 ** np.abs(positions[:, None] - positions)
    >>> signal = np.linalg.qr(np.random.default_rng(0).normal(size=(60, 5)))[0]
    >>> contaminated = noise + 1e4 * signal @ signal.T
    >>> std, by_lag = fit_complement(contaminated, signal, positions)
    >>> bool(np.allclose(std, 2, rtol=0.02)), by_lag[:3].round(2)
    (True, array([1.  , 0.5 , 0.25]))
    """
    from scipy.linalg import cho_factor, cho_solve

    outside = np.linalg.qr(directions, mode="complete")[0][:, directions.shape[1] :]
    seen = outside.T @ covariance @ outside
    share = np.maximum(np.einsum("vk,vk->v", outside, outside), 0.05)
    power = np.einsum("vk,vk->v", outside @ seen, outside)
    std = np.sqrt(np.maximum(power, 1e-12 * np.max(power)) / share)
    by_lag = np.eye(1, LAGS + 1)[0]
    if not outside.shape[1]:  # no direction is left to see the noise in
        return np.zeros(len(covariance)), by_lag
    model = np.diag(std**2)
    for _ in range(MAX_ROUNDS):
        gain = model @ outside
        inner = outside.T @ gain
        fill = cho_solve(cho_factor(inner), gain.T)
        filled = model + fill.T @ (seen - inner) @ fill
        previous, by_lag = by_lag, correlation_by_lag(filled, positions)
        std = np.sqrt(np.maximum(np.diag(filled), 1e-12 * np.max(np.diag(filled))))
        model = correlation_matrix(by_lag, positions) * np.outer(std, std)
        if np.max(np.abs(by_lag - previous)) < SETTLED:
            break
    return std, by_lag
