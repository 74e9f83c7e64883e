"""Rough scale of every band and the directions of the signal, before the noise is known."""

from __future__ import annotations

import numpy as np

from sigmacube.noise.products import Products
from sigmacube.noise.regression import regression_by

__all__ = ["scales", "smooth_directions"]

# Eigenvalues of noise and offsets reach as far below the middle as above it. Signal reaches
# further; a few directions of it have neighbours of opposite sign.
BEYOND, FEW = 1.3, 1


def scales(products: Products) -> np.ndarray | None:
    """Return a rough noise (bands,); None where there are too few pixels to tell, or no noise."""
    total, count = products.total, products.number
    if count < 2 * len(total):
        return None
    std = regression_by(total, count)
    size = np.sqrt(np.diag(total) / count)
    return std if np.all(std > 1e-6 * size) else None


def smooth_directions(products: Products, axes: tuple[int, ...] = (0, 1)) -> np.ndarray:
    """Return (bands, k) orthonormal directions in which neighbours along some axes are alike.

    The covariance of neighbours holds no noise and no offsets of lines across the axis: its
    eigenvalues scatter about zero (about the noise's own correlation) but for the signal's.

    Parameters
    ----------
    products
        Of windows in units of the noise.
    axes
        0 for neighbours down the rows, 1 across the columns.
    """
    values, vectors = np.linalg.eigh(products.beside[list(axes)].sum(axis=0))
    middle = float(np.median(values))
    lowest = float(values[min(FEW, len(values) - 1)])
    return vectors[:, values - middle > BEYOND * (middle - lowest)]
