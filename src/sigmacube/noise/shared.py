"""Noise that all bands of a pixel share: common mode, gains, wherever it is told from texture.

Such noise is strong and of low rank, so windows take it for signal. In space it is white, which no
surface is: the power of a surface falls with frequency. In small tiles of the scene, along the
leading directions of the spectra, the covariance of cosine coefficients at the highest
frequencies is compared with that at medium ones, on the tiles that are quietest at low ones (which
knows nothing of the noise at others). What power falls by is carried on, with the square of the
frequency, to what a surface would have at the highest ones; what is left beyond one is noise.
"""

from __future__ import annotations

import numpy as np
from scipy.fft import dctn

from sigmacube.core.whitening import Noise
from sigmacube.noise.sample import NoiseSample

__all__ = ["shared_noise"]

TILE, STEP = 8, 6
# Directions that are looked at, and tiles that it needs.
DIRECTIONS, FEWEST = 12, 24
# Bounds of low, medium and high frequencies, and the share of tiles that count.
LOW, HIGH, QUIET = 0.4, 0.7, 0.25
# What a surface, whose power falls as 1/f², has at high frequencies over what it loses from medium
# ones.
CARRIED = 0.68
# Noise must be so many times that of a band, and so large a share of what is there.
NOTABLE, FLAT = 3.0, 0.6
# How unlike tiles may be: ratio of the 60th to the 10th percentile of their power; 1.45 for noise.
ALIKE = 1.9


def shared_noise(sample: NoiseSample, noise: Noise) -> tuple[np.ndarray | None, bool]:
    """Return the covariance (bands, bands) of noise that bands share beyond a known noise.

    Parameters
    ----------
    sample
        Windows of the scene.
    noise
        Noise of its bands as known so far.

    Returns
    -------
    (covariance, doubtful)
        None where there is none to be told; whether there may be some that looks like texture.

    Examples
    --------
    >>> import numpy as np, sigmacube as sc
    >>> rng = np.random.default_rng(0)
    >>> clean = sc.synthetic.smooth_fields((60, 60, 40))
    >>> noisy = clean + 0.02 * rng.normal(size=clean.shape)
    >>> every = np.ones((60, 60), dtype=bool)
    >>> known = Noise.create(0.02, 40)
    >>> shared_noise(NoiseSample.create(noisy, np.arange(40), every), known)[0] is None
    True
    >>> noisy += 0.03 * rng.normal(size=(60, 60, 1))
    >>> found, _ = shared_noise(NoiseSample.create(noisy, np.arange(40), every), known)
    >>> bool(0.8 < np.sqrt(found[3, 7]) / 0.03 < 1.2)
    True
    """
    spectra = noise.whiten(sample.spectra)
    spectra = spectra - spectra.mean(axis=0)
    count = min(DIRECTIONS, sample.n_bands // 2)
    directions = np.linalg.eigh(spectra.T @ spectra)[1][:, ::-1][:, :count]
    waves, radius = _waves(sample, noise, directions)
    if len(waves) < FEWEST or count < 1:
        return None, False
    low, high = (radius > 0) & (radius <= LOW), radius > HIGH
    power = np.square(waves[..., low]).mean(axis=2)
    power = (power / np.maximum(np.median(power, axis=0), 1e-300)).sum(axis=1)
    calm = waves[np.argsort(power, kind="stable")]
    quiet, calm = calm[: int(QUIET * len(calm))], calm[: len(calm) // 2]
    at_high = _covariance(quiet[..., high])
    at_medium = _covariance(quiet[..., (radius > LOW) & ~high])
    size, vectors = np.linalg.eigh(at_high - CARRIED * (at_medium - at_high))
    found, doubtful = [], False
    for value, vector in zip(size, vectors.T, strict=True):
        if value < NOTABLE:
            continue
        flat = value > FLAT * (vector @ at_high @ vector)
        if flat and _alike(calm[..., high], vector):
            found.append(np.sqrt(value - 1) * noise.unwhiten(directions @ vector))
        elif flat:
            doubtful = True
    if not found:
        return None, doubtful
    return np.transpose(found) @ np.array(found), doubtful


def _waves(
    sample: NoiseSample, noise: Noise, directions: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return cosine coefficients (tiles, directions, TILE, TILE), and their frequencies."""
    tiles = []
    for block, valid in zip(sample.blocks, sample.valid, strict=True):
        scores = noise.whiten(block) @ directions
        for top in range(0, block.shape[0] - TILE + 1, STEP):
            for left in range(0, block.shape[1] - TILE + 1, STEP):
                here = np.s_[top : top + TILE, left : left + TILE]
                if valid[here].all():
                    tiles.append(scores[here].transpose(2, 0, 1))
    radius = np.hypot(*np.mgrid[:TILE, :TILE]) / TILE
    if not tiles:
        return np.zeros((0, directions.shape[1], TILE, TILE)), radius
    return dctn(np.array(tiles), axes=(2, 3), norm="ortho"), radius


def _covariance(waves: np.ndarray) -> np.ndarray:
    """Return the covariance (directions, directions) of coefficients (tiles, directions, n)."""
    flat = np.moveaxis(waves, 1, 2).reshape(-1, waves.shape[1])
    return flat.T @ flat / len(flat)


def _alike(waves: np.ndarray, vector: np.ndarray) -> bool:
    """Tell whether most tiles have the same power along a direction, as noise has."""
    power = np.square(np.tensordot(waves, vector, axes=(1, 0))).mean(axis=1)
    low, high = np.quantile(power, (0.1, 0.6))
    return bool(high < ALIKE * low)
