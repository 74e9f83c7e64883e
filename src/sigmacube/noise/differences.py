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

from sigmacube.noise.band_correlation import BandCorrelation, fit_correlation
from sigmacube.noise.sample import NoiseSample, precision

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


def differences_noise(sample: NoiseSample, std: np.ndarray) -> DifferencesNoise:
    """Return the noise by band and its correlation by band distance from neighbouring pixels.

    Parameters
    ----------
    sample
        Windows of the scene.
    std
        (bands,) rough standard deviations, only to put bands on one scale.
    """
    scaled = sample.scaled(std)
    directions, spatial_lag1 = signal_directions(scaled)
    quiet = calm_differences(scaled, directions)
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


def signal_directions(sample: NoiseSample) -> tuple[np.ndarray, float]:
    """Return the principal directions that are smoother in space than the noise, and its lag-1.

    Principal directions are sorted by variance; their spatial autocorrelation falls from near one
    to that of the noise, which is not zero where a product was resampled.

    Returns
    -------
    (directions, spatial_lag1)
        (bands, k) orthonormal directions; autocorrelation of the noise between neighbours.
    """
    spectra = sample.spectra
    vectors = np.linalg.eigh(spectra.T @ spectra)[1][:, ::-1]
    correlation = _autocorrelation(sample, vectors)
    n_bands = len(correlation)
    noise_level = np.median(correlation[n_bands // 2 :])
    kernel = np.ones(min(SMOOTHING, n_bands)) / min(SMOOTHING, n_bands)
    smooth = np.convolve(np.pad(correlation, SMOOTHING // 2, mode="edge"), kernel, "valid")
    noisy = np.flatnonzero(smooth < noise_level + AUTOCORRELATION)
    count = int(noisy[0]) if len(noisy) else n_bands // 2
    count = int(np.clip(count, 1, max(n_bands // 2, 1)))
    return vectors[:, :count], float(noise_level)


def _autocorrelation(sample: NoiseSample, vectors: np.ndarray) -> np.ndarray:
    """Return the correlation of neighbouring pixels along each direction, over all windows."""
    dtype = precision(sample.by_window)
    scores = [block.astype(dtype) @ vectors.astype(dtype) for block in sample.blocks]
    mean = np.mean([s[v].mean(axis=0) for s, v in zip(scores, sample.valid, strict=True)], axis=0)
    product, power = np.zeros(len(mean)), np.zeros(len(mean))
    n_pairs = n_pixels = 0
    for score, valid in zip(scores, sample.valid, strict=True):
        centred = score - mean
        if not valid.all():
            centred *= valid[..., None]
        power += np.einsum("rcv,rcv->v", centred, centred)
        n_pixels += int(np.count_nonzero(valid))
        for a, b in ((np.s_[1:], np.s_[:-1]), (np.s_[:, 1:], np.s_[:, :-1])):
            product += np.einsum("rcv,rcv->v", centred[a], centred[b])
            n_pairs += int(np.count_nonzero(valid[a] & valid[b]))
    return (product / max(n_pairs, 1)) / np.maximum(power / max(n_pixels, 1), 1e-300)


def calm_differences(sample: NoiseSample, directions: np.ndarray) -> np.ndarray:
    """Return (places, bands) mixed second differences where the signal changes least.

    Places are chosen by how much pixels on either side of their four differ along the signal's
    directions, so that their own noise knows nothing of the choice.

    Parameters
    ----------
    sample
        Windows of the scene.
    directions
        (bands, k) directions of the signal.
    """
    pairs = list(zip(sample.blocks, sample.valid, strict=True))
    changes = np.concatenate([second_differences(block, valid) for block, valid in pairs])
    if not len(changes):
        return changes
    size = np.concatenate([_beside(b @ directions)[_whole(v)] for b, v in pairs])
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
