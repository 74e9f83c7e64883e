"""What elements left out of the windows do to the combined estimate and its variance.

Windows rest on the elements they kept, Ω. The leverages of a band and of a pixel then are
ρ_uv = V_vᵀ(VᵀΩ_uV)⁻¹V_v and γ_uv = U_uᵀ(UᵀΩ_vU)⁻¹U_u in place of b_v and a_u. The variance of one
window is κ(ρ + γ − ργ) for a kept element and κ(ρ + γ + ργ) for one that was left out: there the
errors along the row and along the column rest on different elements, as when leaving one out. With
f² this over a + b − ab, and the correlation of windows that of the complete case,

    var = Σ_ab w_a w_b cov_ab f_a f_b = f̄² Σ_ab w_a w_b cov_ab

up to second order in the differences of f between the windows over an element, f̄ their mean.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sigmacube.core.lowrank.factors import Factors
from sigmacube.core.lowrank.solvers.weighted import is_nearly_complete, leverages
from sigmacube.core.parallel import ParallelMap

if TYPE_CHECKING:
    from sigmacube.core.lowrank.combine import Combined

__all__ = ["correct"]

SMALLEST_VARIANCE = 1e-9


def correct(
    out: Combined,
    here: tuple[slice, slice],
    factors: Factors,
    inside: tuple[slice, slice],
    run: ParallelMap,
) -> None:
    """Correct the mean over windows and its variance for elements that they lack.

    Windows that do not know an element give zero for it, so the mean is divided by the share of
    the others. Kept components of pure noise are observed, not predicted: their variance is left
    as it is, and the gap factor is that of both together.

    Parameters
    ----------
    out
        What is corrected, in place.
    here
        Pixels of it.
    factors
        Factors of all windows over these pixels.
    inside
        The same pixels in what the factors cover.
    run
        Parallel map.
    """
    shape, grid = out.estimate.shape, factors.grid
    if out.left_out is None or out.gap_factor is None:
        out.left_out, out.gap_factor = np.zeros(shape, bool), np.ones(shape, np.float32)
    factor, support, left_out = sums = np.zeros((3, *grid.cube_shape), dtype=np.float32)
    # Rows of windows that do not overlap run in parallel; the order of sums stays the same.
    stride = grid.rows.reach + 1
    for first in range(min(stride, len(grid.rows))):
        run(
            lambda i: _add_row(sums, factors, i, out.variance is not None),
            range(first, len(grid.rows), stride),
        )
    known = support > 0
    np.divide(factor, support, out=factor, where=known)
    factor[~known] = np.nan
    with np.errstate(invalid="ignore", divide="ignore"):
        out.estimate[here] /= np.where(known, support, np.nan)[inside]
    out.left_out[here], out.gap_factor[here] = left_out[inside] > 0.5, factor[inside]
    if out.variance is not None and out.noise_variance is not None:
        observed = np.repeat(out.noise_variance[here], np.diff(grid.bands.edges), axis=2)
        variance, before = out.variance[here], out.variance[here].copy()
        variance -= observed
        variance *= np.square(factor[inside])
        variance += observed
        if np.any(observed):
            out.gap_factor[here] = np.sqrt(variance / np.maximum(before, SMALLEST_VARIANCE))


def _add_row(sums: np.ndarray, factors: Factors, i: int, uncertainty: bool) -> None:
    """Add what one row of windows contributes to std factor, support and what is left out."""
    grid = factors.grid
    gap_factor, support, left_out = sums
    for k, j in np.ndindex(*factors.left.shape[1:3]):
        where, window = grid.slices(i, j, k), (i, k, j)
        weight, own = factors.share_of_elements(window).astype(np.float32), factors.kept.get(window)
        kept = None if own is None else own.elements()
        if own is None or kept is None:
            support[where] += weight
            sandwich = 1.0 if own is None else own.sandwich
            gap_factor[where] += weight * np.float32(np.sqrt(sandwich))
            continue
        shape = weight.shape
        left_out[where] += weight * ~kept.reshape(shape)
        known = kept.any(axis=1, keepdims=True) & own.known_bands()
        weight = weight * known.reshape(shape)
        support[where] += weight
        if uncertainty:
            factor = _std_factor(factors, window, kept, own.sandwich)
            gap_factor[where] += weight * factor.reshape(shape)


def _std_factor(
    factors: Factors, window: tuple[int, int, int], kept: np.ndarray, sandwich: float
) -> np.ndarray:
    """Return f (pixels, bands): standard deviation over that of the complete window."""
    rank = int(factors.n_signal[window])
    if rank == 0:
        return np.ones(kept.shape, dtype=np.float32)
    left = factors.left[window][:rank].reshape(rank, -1).T
    right = factors.right[window][:rank].T
    a = np.einsum("nr,nr->n", left, left).astype(np.float32)[:, None]
    b = np.einsum("vr,vr->v", right, right).astype(np.float32)
    if is_nearly_complete(kept):
        factor = np.full(kept.shape, np.sqrt(sandwich), dtype=np.float32)
        alone = np.sqrt(np.maximum((1 - a) * (1 - b), 1e-2))  # an element predicted by all others
        np.divide(factor, alone, out=factor, where=~kept)
        return factor
    rho, gamma = leverages(left, factors.singular_values[window][:rank], right, kept)
    both = rho * gamma
    variance = rho + gamma + np.where(kept, -both, both)
    variance *= np.float32(sandwich) / np.maximum(a + b - a * b, SMALLEST_VARIANCE)
    return np.sqrt(np.maximum(variance, SMALLEST_VARIANCE))
