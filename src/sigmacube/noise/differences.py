"""Noise from differences of neighbouring pixels: a full band covariance.

Signal is smooth in space, noise is not. The mixed second difference (x₀₀ − x₀₁ − x₁₀ + x₁₁)/2 of
four neighbours takes out every plane and every edge along an axis, and keeps the noise with its
variance. What texture is left is met in two ways: only the most homogeneous places count, and the
spectral directions that carry signal are left out; a covariance of few parameters says from the
others what noise is in them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sigmacube.core.parallel import ParallelMap, in_turn
from sigmacube.core.whitening import Noise
from sigmacube.noise.band_correlation import BandCorrelation, fit_correlation
from sigmacube.noise.products import Products
from sigmacube.noise.sample import NoiseSample

__all__ = [
    "DifferencesNoise",
    "calm_differences",
    "differences_noise",
    "second_differences",
    "signal_directions",
]

# Share of the places that count, by how little their signal changes.
HOMOGENEOUS = 0.25
# A direction carries signal while its autocorrelation in space exceeds that of the noise by this.
AUTOCORRELATION = 0.1
SMOOTHING = 5


class DifferencesNoise(NamedTuple):
    """What differences of neighbouring pixels say about the noise."""

    bands: BandCorrelation
    """Standard deviations of bands and the correlation between them."""
    spatial_lag1: float
    """Correlation between neighbouring pixels; not zero where a product was resampled."""


def differences_noise(
    sample: NoiseSample, std: np.ndarray, run: ParallelMap = in_turn
) -> DifferencesNoise:
    """Return the noise by band and its correlation by band distance from neighbouring pixels.

    Parameters
    ----------
    sample
        Windows of the scene.
    std
        (bands,) rough standard deviations, only to put bands on one scale.
    run
        Parallel map over windows.
    """
    scaled = sample.scaled(std)
    products = sample.products(run).whitened(Noise.create(std, sample.n_bands))
    directions, spatial_lag1 = signal_directions(products)
    quiet = calm_differences(scaled, directions, run)
    if not len(quiet):
        raise ValueError(
            "Invalid scene for a noise estimate: no four pixels of a square are valid. Give the "
            "noise instead."
        )
    found = fit_correlation(quiet.T @ quiet / len(quiet), directions, sample.positions)
    return DifferencesNoise(found._replace(std=found.std * std), spatial_lag1)


def second_differences(block: np.ndarray, valid: np.ndarray) -> np.ndarray:
    """Return (places, bands) mixed second differences of a block (rows, cols, bands).

    Examples
    --------
    >>> import numpy as np
    >>> rows, cols = np.mgrid[:4, :5]
    >>> plane = (2.0 * rows + 3.0 * cols)[..., None]
    >>> bool(np.allclose(second_differences(plane, np.ones((4, 5), dtype=bool)), 0))
    True
    """
    changes = block[:-1] - block[1:]
    changes = (changes[:, :-1] - changes[:, 1:]) / 2
    return changes[_whole(valid)]


def _whole(valid: np.ndarray) -> np.ndarray:
    """Return places whose four pixels are valid."""
    return valid[:-1, :-1] & valid[:-1, 1:] & valid[1:, :-1] & valid[1:, 1:]


def signal_directions(products: Products) -> tuple[np.ndarray, float]:
    """Return the principal directions that are smoother in space than the noise, and its lag-1.

    Principal directions are sorted by variance; their spatial autocorrelation falls from near one
    to that of the noise, which is not zero where a product was resampled.

    Returns
    -------
    (directions, spatial_lag1)
        (bands, k) orthonormal directions; autocorrelation of the noise between neighbours.
    """
    vectors = np.linalg.eigh(products.total)[1][:, ::-1]
    alike, power = (
        np.einsum("vk,vk->k", vectors, matrix @ vectors)
        for matrix in (products.beside.sum(axis=0) / 2, products.own)
    )
    correlation = (alike / max(products.pairs, 1)) / np.maximum(
        power / max(products.number, 1), 1e-300
    )
    n_bands = len(correlation)
    noise_level = np.median(correlation[n_bands // 2 :])
    kernel = np.ones(min(SMOOTHING, n_bands)) / min(SMOOTHING, n_bands)
    smooth = np.convolve(np.pad(correlation, SMOOTHING // 2, mode="edge"), kernel, "valid")
    noisy = np.flatnonzero(smooth < noise_level + AUTOCORRELATION)
    count = int(noisy[0]) if len(noisy) else n_bands // 2
    count = int(np.clip(count, 1, max(n_bands // 2, 1)))
    return vectors[:, :count], float(noise_level)


def calm_differences(
    sample: NoiseSample, directions: np.ndarray, run: ParallelMap = in_turn
) -> np.ndarray:
    """Return (places, bands) mixed second differences where the signal changes least.

    Places are chosen by how much pixels on either side of their four differ along the signal's
    directions, so that their own noise knows nothing of the choice.

    Parameters
    ----------
    sample
        Windows of the scene.
    directions
        (bands, k) directions of the signal.
    run
        Parallel map over windows.
    """

    def look(window: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        block, valid = window
        return second_differences(block, valid), _beside(block @ directions)[_whole(valid)]

    parts = run(look, zip(sample.blocks, sample.valid, strict=True))
    changes, size = (np.concatenate(part) for part in zip(*parts, strict=True))
    if not len(changes):
        return changes
    size = (size / np.maximum(np.median(size, axis=0), 1e-300)).sum(axis=1)
    share = max(HOMOGENEOUS, min(1.0, 4 * sample.n_bands / len(size)))
    return changes[size <= np.quantile(size, share)]


def _beside(scores: np.ndarray) -> np.ndarray:
    """Return (rows − 1, cols − 1, k) how much pixels before and after a place differ, squared."""
    total = np.zeros((scores.shape[0] - 1, scores.shape[1] - 1, scores.shape[2]))
    for image, out in ((scores, total), (scores.swapaxes(0, 1), total.swapaxes(0, 1))):
        last = len(image) - 1
        before, after = np.maximum(np.arange(last) - 1, 0), np.minimum(np.arange(last) + 2, last)
        change = image[before] - image[after]
        out += np.square(change[:, 1:] + change[:, :-1])
    return total
