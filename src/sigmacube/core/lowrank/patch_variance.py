"""Closed-form variance of one window's low-rank estimate, in units of the noise variance.

To first order the error of a truncated SVD is T(G) = P_U G + G P_V − P_U G P_V, an orthogonal
projection of the noise G. Everything below follows from the squared row norms of U and V.
"""

from __future__ import annotations

import numpy as np

__all__ = ["exact_variance", "near_edge_inflation", "residual_share"]


def exact_variance(pixel_leverage: np.ndarray, band_leverage: np.ndarray) -> np.ndarray:
    """Return the first-order variance a_u + b_v − a_u b_v of every element of a window.

    Examples
    --------
    >>> import numpy as np
    >>> exact_variance(np.array([0.5, 1.0]), np.array([0.2]))
    array([[0.6],
           [1. ]])
    """
    a, b = pixel_leverage[:, None], band_leverage[None, :]
    return a + b - a * b


def residual_share(squares: np.ndarray, inflation: np.ndarray) -> np.ndarray:
    """Return the share of the noise that a fit leaves at a pixel or in a band.

    Strong components leave 1 − Σ q, with q their squared elements; one near the noise edge takes
    more of the noise with it, by its inflation f. To first order that is 1 − Σ f q; the form here
    agrees with it and stays positive.

    Parameters
    ----------
    squares
        (components, ...) squared elements of U or V.
    inflation
        (components,) factor of every component, at least one.

    Examples
    --------
    >>> import numpy as np
    >>> residual_share(np.array([[0.1], [0.02]]), np.array([1.0, 1.5])).round(4)
    array([0.8701])
    """
    left = np.maximum(1 - squares.sum(axis=0), 0.0)
    extra = np.tensordot(inflation - 1, squares, axes=1)
    return np.divide(left**2, left + extra, out=np.zeros_like(left), where=left > 0)


def near_edge_inflation(singular_values: np.ndarray, n_pixels: int, n_bands: int) -> np.ndarray:
    """Return the factor on the mean squared error of components close above the noise edge.

    In units of √max(n, P), with β = min(n, P) / max(n, P), a component of strength x is observed
    at y² = x² + 1 + β + β/x². Its mean squared error is 1 + β + 3β/x², where the first order says
    1 + β.

    Parameters
    ----------
    singular_values
        Observed singular values of a patch of unit noise.
    n_pixels, n_bands
        Size of the patch.

    Examples
    --------
    >>> import numpy as np
    >>> near_edge_inflation(np.array([1000.0, 70.0, 36.0]), 400, 224).round(2)
    array([1.  , 1.1 , 1.88])
    """
    larger, smaller = max(n_pixels, n_bands), max(min(n_pixels, n_bands), 1)
    beta = smaller / larger
    excess = np.maximum(np.square(singular_values) / larger - 1 - beta, 2 * np.sqrt(beta))
    strength = (excess + np.sqrt(np.square(excess) - 4 * beta)) / 2
    return (1 + beta + 3 * beta / strength) / (1 + beta)
