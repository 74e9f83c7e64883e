"""Rough scale of every band and the directions of the signal, before the noise is known."""

from __future__ import annotations

import numpy as np

from sigmacube.noise.regression import regression_noise
from sigmacube.noise.sample import NoiseSample

__all__ = ["scales", "smooth_directions"]

# Eigenvalues of noise and offsets reach as far below the middle as above it. Signal reaches
# further; a few directions of it have neighbours of opposite sign.
BEYOND, FEW = 1.3, 1


def scales(
    values: np.ndarray, mask: np.ndarray | None, bands: np.ndarray
) -> tuple[NoiseSample, np.ndarray] | None:
    """Return windows of a scene in units of a rough noise (bands,), and that noise.

    None where there are too few pixels to tell, or there is no noise.

    Parameters
    ----------
    values
        (row, col, band) cube of whole spectra.
    mask
        True where values are valid.
    bands
        Bands that hold data.
    """
    valid = np.isfinite(values[..., bands]).all(axis=2)
    if mask is not None:
        valid &= np.broadcast_to(mask, values.shape)[..., bands].all(axis=2)
    sample = NoiseSample.create(values, bands, valid)
    if len(sample.spectra) < 2 * sample.n_bands:
        return None
    std = regression_noise(sample.spectra)
    if not np.all(std > 1e-6 * np.sqrt(np.mean(np.square(sample.spectra), axis=0))):
        return None
    return sample.scaled(std), std


def smooth_directions(sample: NoiseSample, axis: int) -> np.ndarray:
    """Return (bands, k) orthonormal directions in which neighbours along an axis are alike.

    The covariance of neighbours holds no noise and no offsets of lines across the axis: its
    eigenvalues scatter about zero (about the noise's own correlation) but for the signal's.

    Parameters
    ----------
    sample
        Windows in units of the noise.
    axis
        0 for neighbours down the rows, 1 across the columns.
    """
    mean = sample.spectra.mean(axis=0)
    total = np.zeros((sample.n_bands, sample.n_bands))
    for block, valid in zip(sample.blocks, sample.valid, strict=True):
        centred = np.where(valid[..., None], block - mean, 0.0)
        one, other = np.delete(centred, -1, axis=axis), np.delete(centred, 0, axis=axis)
        total += np.tensordot(one, other, axes=((0, 1), (0, 1)))
    values, vectors = np.linalg.eigh(total + total.T)
    middle = float(np.median(values))
    lowest = float(values[min(FEW, len(values) - 1)])
    return vectors[:, values - middle > BEYOND * (middle - lowest)]
