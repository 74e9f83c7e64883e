"""Low-rank least squares on the kept elements of a patch, and the leverages that go with it.

With Ω the kept elements, the coefficients of pixel u solve (VᵀΩ_uV) c = VᵀΩ_u y_u, those of band v
(UᵀΩ_vU) c = UᵀΩ_v y_v. All the r×r matrices of a side come from one product of Ω with the products
of pairs of columns.
"""

from __future__ import annotations

import numpy as np

from sigmacube.core.lowrank.solvers.low_rank import LowRank, Observed, full_influence, iterate, rms

# Strength of the prior that a pixel's coefficients are as large as those of the window, relative
# to what a Bayesian would take. It is felt only where a pixel or a band has hardly any elements
# left: estimate and leverage stay finite there, and the leverage becomes large.
PRIOR = 0.25
MAX_SWEEPS = 50
# Above this rank, normal equations of every pixel cost more than all the rest: the fit goes by
# steps, and leverages by their first-order expansion.
LARGE_RANK = 24
# Pixels and bands that have lost at most this share of their elements need no equations of their
# own: steps settle at once, and leverages are those of the complete patch to 1 %.
NEARLY = 0.03


def alternate(
    patch: np.ndarray,
    kept: np.ndarray,
    start: LowRank,
    tolerance: float,
    max_sweeps: int = MAX_SWEEPS,
) -> LowRank:
    """Minimise the sum of squares over the kept elements, alternating between U and V.

    Parameters
    ----------
    patch
        (pixels, bands); values that are not kept are not looked at.
    kept
        (pixels, bands) boolean, or weights from 0 to 1.
    start
        Where to begin; its rank is kept.
    tolerance
        Stop when a sweep moves L by less than this root mean square.
    max_sweeps
        Stop after so many sweeps at the latest.
    """
    if start.rank == 0:
        return start
    weights = kept.astype(patch.dtype, copy=False)
    if start.rank > LARGE_RANK or is_nearly_complete(kept):
        data = Observed(patch, weights, float(weights.mean(dtype=np.float64)))
        return iterate(data, start, full_influence, tolerance, max_sweeps).low
    known = np.where(kept, patch, 0) if kept.dtype == bool else weights * patch
    across, weights_across = np.ascontiguousarray(known.T), np.ascontiguousarray(weights.T)
    left, values, right = (part.astype(patch.dtype) for part in start.factors())
    matrix = start.matrix()
    # The strength of components is taken from the start: one that grows because elements are
    # missing would weaken the prior that holds it.
    by_pixel, by_band = (PRIOR * len(side) / np.square(values) for side in (left, right))
    basis = np.linalg.qr(right)[0]  # along singular directions, which the prior knows
    right = basis @ np.linalg.svd(matrix @ basis, full_matrices=False)[2].T
    for _ in range(max_sweeps):
        left = _solve(weights, known, np.linalg.qr(right)[0], by_pixel)
        basis = np.linalg.qr(left)[0]
        right = _solve(weights_across, across, basis, by_band)
        moved = basis @ right.T
        change = rms(moved - matrix)
        matrix = moved
        if change <= tolerance:
            break
    final, triangle = np.linalg.qr(right)
    return LowRank(basis @ triangle.T, final)


def is_nearly_complete(kept: np.ndarray) -> bool:
    """Tell whether no pixel and no band has lost more than a few of its elements."""
    if kept.dtype != bool:
        return False
    n, p = kept.shape
    if np.count_nonzero(kept) < (1 - NEARLY) * kept.size:
        return False
    by_pixel, by_band = (np.count_nonzero(kept, axis=axis).min() for axis in (1, 0))
    return bool(by_pixel >= (1 - NEARLY) * p and by_band >= (1 - NEARLY) * n)


def leverages(
    left: np.ndarray, singular_values: np.ndarray, right: np.ndarray, kept: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return ρ_uv = V_vᵀ(VᵀΩ_uV)⁻¹V_v and γ_uv = U_uᵀ(UᵀΩ_vU)⁻¹U_u, each (pixels, bands).

    Examples
    --------
    Where all elements are kept they are the leverages of bands and of pixels:

    >>> import numpy as np
    >>> u, v = np.array([[0.6], [0.8]]), np.array([[1.0], [0.0]])
    >>> rho, gamma = leverages(u, np.array([1e6]), v, np.ones((2, 2), dtype=bool))
    >>> np.allclose(rho, [[1, 0], [1, 0]]), np.allclose(gamma, [[0.36, 0.36], [0.64, 0.64]])
    (True, True)
    """
    weights = kept.astype(np.float32)
    u, v = left.astype(np.float32), right.astype(np.float32)
    if u.shape[1] > LARGE_RANK:
        return _expanded(weights, v), _expanded(np.ascontiguousarray(weights.T), u).T
    prior = PRIOR / np.square(singular_values)
    rho = _quadratic(weights, v, prior * len(u))
    gamma = _quadratic(np.ascontiguousarray(weights.T), u, prior * len(v)).T
    return rho, gamma


def _expanded(weights: np.ndarray, basis: np.ndarray) -> np.ndarray:
    """Return basis_vᵀ(basisᵀ diag(w_u) basis)⁻¹basis_v to first order about the mean of w_u."""
    share = np.maximum(weights.mean(axis=1, keepdims=True), 0.05)
    projection = basis @ basis.T
    plain = np.diag(projection)
    return np.maximum(2 * plain - (weights @ np.square(projection)) / share, plain) / share


def _normal_matrices(weights: np.ndarray, basis: np.ndarray, prior: np.ndarray) -> np.ndarray:
    """Return basisᵀ diag(w) basis + diag(prior) for every row w of the weights."""
    rank = basis.shape[1]
    i, j = np.tril_indices(rank)
    entries = weights @ (basis[:, i] * basis[:, j])
    matrices = np.empty((len(weights), rank, rank))
    matrices[:, i, j] = entries
    matrices[:, j, i] = entries
    diagonal = np.arange(rank)
    matrices[:, diagonal, diagonal] += prior
    return matrices


def _solve(
    weights: np.ndarray, known: np.ndarray, basis: np.ndarray, prior: np.ndarray
) -> np.ndarray:
    """Return the coefficients of every row on the basis, from its kept elements."""
    matrices = _normal_matrices(weights, basis, prior)
    image = (known @ basis).astype(np.float64)
    return np.linalg.solve(matrices, image[..., None])[..., 0].astype(known.dtype)


def _quadratic(weights: np.ndarray, basis: np.ndarray, prior: np.ndarray) -> np.ndarray:
    """Return basis_vᵀ (basisᵀ diag(w_u) basis + diag(prior))⁻¹ basis_v, (rows of w, v)."""
    inverse = np.linalg.inv(_normal_matrices(weights, basis, prior))
    i, j = np.tril_indices(basis.shape[1])
    twice = np.where(i == j, 1, 2)
    return (inverse[:, i, j] * twice).astype(np.float32) @ (basis[:, i] * basis[:, j]).T
