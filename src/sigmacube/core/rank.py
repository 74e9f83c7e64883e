"""Rank of a window: the noise edge decides, and the eigenpairs above it are found.

A patch of pure unit noise, n pixels by P bands, has its largest singular value near √n + √P, with
fluctuations that follow the Tracy–Widom law. What rises above that edge is signal.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.linalg import eigh

# Upper 0.2 % point of the Tracy–Widom law of order 1: one pure-noise window in 500 passes the edge.
# For a 20 × 20 window of 224 bands it lies 2 % above √n + √P.
TRACY_WIDOM = 2.87


def noise_edge(n_pixels: int, n_bands: int) -> float:
    """Return the largest singular value to expect of unit noise, n pixels by P bands.

    The centre and scale of the largest eigenvalue of the Gram matrix are
    μ = (√(n−1) + √P)² and s = √μ (1/√(n−1) + 1/√P)^(1/3); the edge is √(μ + 2.87 s).

    Examples
    --------
    >>> round(noise_edge(400, 224) / (400**0.5 + 224**0.5), 3)
    1.019
    """
    n, p = math.sqrt(max(n_pixels - 1, 1)), math.sqrt(max(n_bands, 1))
    centre = (n + p) ** 2
    scale = (n + p) * (1 / n + 1 / p) ** (1 / 3)
    return math.sqrt(centre + TRACY_WIDOM * scale)


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
    strength = (excess + np.sqrt(np.maximum(np.square(excess) - 4 * beta, 0))) / 2
    return (1 + beta + 3 * beta / strength) / (1 + beta)


def leading_eigenpairs(
    gram: np.ndarray, *, floor: float | None = None, count: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return the eigenpairs above ``floor``, or the ``count`` largest, in descending order.

    A window needs the few eigenpairs above the noise edge of a matrix of 100-400 bands. LAPACK on
    a range of values or indices finds them at less than half the cost of a full decomposition.

    Parameters
    ----------
    gram
        (bands, bands) symmetric positive semi-definite matrix, float64.
    floor
        Eigenvalues must exceed this. Give either ``floor`` or ``count``.
    count
        How many eigenpairs.

    Returns
    -------
    (values, vectors)
        (k,) eigenvalues and (bands, k) orthonormal eigenvectors.

    Examples
    --------
    >>> import numpy as np
    >>> values, vectors = leading_eigenpairs(np.diag([1.0, 9.0, 4.0]), floor=2.0)
    >>> values
    array([9., 4.])
    """
    if floor is None and count is None:
        raise ValueError("Invalid request: neither floor nor count was given. Give one.")
    try:
        if floor is not None:
            values, vectors = eigh(gram, subset_by_value=(floor, np.inf), check_finite=False)
        else:
            ends = (len(gram) - int(count or 0), len(gram) - 1)
            values, vectors = eigh(gram, subset_by_index=ends, check_finite=False)
    except np.linalg.LinAlgError:  # clustered eigenvalues: divide and conquer converges there
        values, vectors = np.linalg.eigh(gram)
        wanted = values > floor if floor is not None else np.arange(len(gram))[-int(count or 0) :]
        values, vectors = values[wanted], vectors[:, wanted]
    return values[::-1].copy(), np.ascontiguousarray(vectors[:, ::-1])


def is_below(matrix: np.ndarray, bound: float) -> bool:
    """Tell whether every eigenvalue of a symmetric matrix is below a bound, to 1e-5 of it.

    By a Cholesky factorisation of the bound minus the matrix (Sylvester's law of inertia). Single
    precision is enough: an eigenvalue that close to the noise edge is as likely noise as signal.

    Examples
    --------
    >>> import numpy as np
    >>> is_below(np.diag([1.0, 2.0, 3.0]), 3.01), is_below(np.diag([1.0, 2.0, 3.0]), 2.99)
    (True, False)
    """
    # The largest eigenvalue is no smaller than any of these; single precision may not hold them.
    if matrix.diagonal().max(initial=0.0) > 2 * bound:
        return False
    slack = bound * np.eye(len(matrix), dtype=np.float32) - matrix.astype(np.float32)
    try:
        np.linalg.cholesky(slack)
    except np.linalg.LinAlgError:
        return False
    return True
