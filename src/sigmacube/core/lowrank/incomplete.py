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

from dataclasses import dataclass

import numpy as np

from sigmacube.core.lowrank.factors import Factors, Selection, known_bands
from sigmacube.core.lowrank.solvers.weighted import is_nearly_complete, leverages
from sigmacube.core.parallel import ParallelMap

__all__ = ["Incompleteness", "incompleteness"]

SMALLEST_VARIANCE = 1e-9


@dataclass(frozen=True, eq=False)
class Incompleteness:
    """Effect of left-out elements on the mean over windows; all (row, col, band)."""

    gap_factor: np.ndarray
    """f̄, factor on the standard deviation."""
    support: np.ndarray
    """Share of the weight that lies with windows that know the element's pixel and band."""
    left_out: np.ndarray
    """True where windows with most of the weight left the element out."""

    def of(self, part: tuple[slice, slice]) -> Incompleteness:
        """Return some rows and columns."""
        return Incompleteness(self.gap_factor[part], self.support[part], self.left_out[part])

    def apply(
        self,
        estimate: np.ndarray,
        variance: np.ndarray | None,
        noise_variance: np.ndarray | None,
        widths: np.ndarray,
    ) -> None:
        """Correct the mean over windows and its variance in place.

        Windows that do not know an element give zero for it, so the mean is divided by the share
        of the others. Kept components of pure noise are observed, not predicted: their variance
        is left as it is.
        """
        with np.errstate(invalid="ignore", divide="ignore"):
            estimate /= np.where(self.support > 0, self.support, np.nan)
        if variance is None:
            return
        observed = 0.0 if noise_variance is None else np.repeat(noise_variance, widths, axis=2)
        variance -= observed
        variance *= np.square(self.gap_factor)
        variance += observed


def incompleteness(
    factors: Factors, run: ParallelMap, *, uncertainty: bool = True
) -> Incompleteness | None:
    """Return the effect of left-out elements; None where every window kept everything."""
    selection = factors.selection
    if selection is None:
        return None
    shape = factors.grid.cube_shape
    sums = _Sums(*(np.zeros(shape, dtype=np.float32) for _ in range(3)))
    # Rows of windows that do not overlap run in parallel; the order of sums stays the same.
    stride = factors.grid.rows.reach + 1
    for first in range(min(stride, len(factors.grid.rows))):
        run(
            lambda i: _add_row(sums, factors, selection, i, uncertainty),
            range(first, len(factors.grid.rows), stride),
        )
    known = sums.support > 0
    factor = np.divide(sums.gap_factor, sums.support, out=sums.gap_factor, where=known)
    factor[~known] = np.nan
    return Incompleteness(factor, sums.support, sums.left_out > 0.5)


@dataclass(frozen=True, eq=False)
class _Sums:
    gap_factor: np.ndarray
    support: np.ndarray
    left_out: np.ndarray


def _add_row(
    sums: _Sums, factors: Factors, selection: Selection, i: int, uncertainty: bool
) -> None:
    """Add what one row of windows contributes."""
    grid = factors.grid
    for k, j in np.ndindex(*factors.left.shape[1:3]):
        where, window = grid.slices(i, j, k), (i, k, j)
        weight, kept = factors.share_of_elements(window).astype(np.float32), selection.kept(window)
        if kept is None:
            sums.support[where] += weight
            sums.gap_factor[where] += weight * np.float32(np.sqrt(selection.sandwich[window]))
            continue
        shape = weight.shape
        sums.left_out[where] += weight * ~kept.reshape(shape)
        known = kept.any(axis=1, keepdims=True) & known_bands(kept, int(factors.ranks[window]))
        weight = weight * known.reshape(shape)
        sums.support[where] += weight
        if uncertainty:
            factor = std_factor(factors, selection, window, kept)
            sums.gap_factor[where] += weight * factor.reshape(shape)


def std_factor(
    factors: Factors, selection: Selection, window: tuple[int, int, int], kept: np.ndarray
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
        factor = np.full(kept.shape, np.sqrt(selection.sandwich[window]), dtype=np.float32)
        alone = np.sqrt(np.maximum((1 - a) * (1 - b), 1e-2))  # an element predicted by all others
        np.divide(factor, alone, out=factor, where=~kept)
        return factor
    rho, gamma = leverages(left, factors.singular_values[window][:rank], right, kept)
    both = rho * gamma
    rho += gamma
    rho += np.where(kept, -both, both)
    rho /= np.maximum(a + b - a * b, SMALLEST_VARIANCE)
    rho *= np.float32(selection.sandwich[window])
    return np.sqrt(np.maximum(rho, SMALLEST_VARIANCE), out=rho)
