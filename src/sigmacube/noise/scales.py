"""Rough scale of every band and the directions of the signal, before the noise is known."""

from __future__ import annotations

import numpy as np

from sigmacube.core.parallel import ParallelMap, in_turn
from sigmacube.noise.regression import regression_noise
from sigmacube.noise.sample import NoiseSample

__all__ = ["scales", "smooth_directions"]

# Eigenvalues of noise and offsets reach as far below the middle as above it. Signal reaches
# further; a few directions of it have neighbours of opposite sign.
BEYOND, FEW = 1.3, 1


def scales(sample: NoiseSample) -> np.ndarray | None:
    """Return a rough noise (bands,); None where there are too few pixels to tell, or no noise."""
    if len(sample.spectra) < 2 * sample.n_bands:
        return None
    std = regression_noise(sample.spectra)
    size = np.sqrt(np.mean(np.square(sample.spectra), axis=0))
    return std if np.all(std > 1e-6 * size) else None


def smooth_directions(
    sample: NoiseSample, axes: tuple[int, ...] = (0, 1), run: ParallelMap = in_turn
) -> np.ndarray:
    """Return (bands, k) orthonormal directions in which neighbours along some axes are alike.

    The covariance of neighbours holds no noise and no offsets of lines across the axis: its
    eigenvalues scatter about zero (about the noise's own correlation) but for the signal's.

    Parameters
    ----------
    sample
        Windows in units of the noise.
    axes
        0 for neighbours down the rows, 1 across the columns.
    run
        Parallel map over windows.
    """
    mean = sample.spectra.mean(axis=0)

    def products(window: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
        block, valid = window
        centred = block - mean
        if not valid.all():
            centred *= valid[..., None]
        total = -2 * len(axes) * _gram(centred)
        for axis in axes:
            # 2ab = (a + b)² − a² − b²: a product of a matrix with itself takes half the time.
            one, other = (centred[:-1], centred[1:]) if axis == 0 else (
                centred[:, :-1], centred[:, 1:])  # fmt: skip
            total += _gram(one + other) + _gram(np.take(centred, (0, -1), axis=axis))
        return np.asarray(total)

    total = sum(run(products, zip(sample.blocks, sample.valid, strict=True)))
    values, vectors = np.linalg.eigh(total)
    middle = float(np.median(values))
    lowest = float(values[min(FEW, len(values) - 1)])
    return vectors[:, values - middle > BEYOND * (middle - lowest)]


def _gram(spectra: np.ndarray) -> np.ndarray:
    """Return (bands, bands) sums of products of spectra (..., bands)."""
    flat = spectra.reshape(-1, spectra.shape[-1])
    return np.asarray(flat.T @ flat)
