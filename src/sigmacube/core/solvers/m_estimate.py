"""Low-rank M-estimation: the iteration that the robust solvers differ in by one function.

An influence function ψ bounds what a residual may do. L is low-rank and solves
"the low-rank part of L + ψ(Y − L) is L"; the iteration is L ← low-rank part of L + ψ(Y − L)/q with
q the mean slope of ψ, the Newton step of the average element.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from sigmacube.core.solvers.base import PatchSolution
from sigmacube.core.solvers.low_rank import LowRank, rms

__all__ = [
    "Influence",
    "MEstimate",
    "correction",
    "fence_bands",
    "fill_bands",
    "full_influence",
    "iterate",
    "rank_again",
    "settle",
    "to_solution",
]

Influence = Callable[[np.ndarray], tuple[np.ndarray, float]]
"""Takes residuals (zero where missing); returns ψ of them and its mean slope."""

MAX_STEPS = 100
MAX_RANK_ROUNDS = 8
# Slopes below this share make steps so long that they may not settle.
SMALLEST_SLOPE = 0.2
# A clipped residual is not Gaussian and its noise level is estimated: a little above the edge.
EDGE_MARGIN = 1.01
FENCE = 1.5
# Residuals count as at most this in the loss of a pixel, which windows are compared by.
LOSS_BOUND = 3.0
FIRST_RANK = 1


@dataclass(frozen=True, eq=False)
class MEstimate:
    """State of the iteration."""

    low: LowRank
    matrix: np.ndarray
    """L."""
    change: float
    """Root mean square of the last step, in units of the noise."""


def iterate(
    patch: np.ndarray,
    missing: np.ndarray | None,
    start: LowRank,
    influence: Influence,
    tolerance: float,
) -> MEstimate:
    """Iterate with a fixed rank until a step moves L by less than ``tolerance`` noise std."""
    low, matrix, change = start, start.matrix(), np.inf
    for _ in range(MAX_STEPS):
        low = low.step(correction(patch, missing, matrix, influence))
        moved = low.matrix()
        change = rms(moved - matrix)
        matrix = moved
        if change <= tolerance:
            break
    return MEstimate(low, matrix, change)


def correction(
    patch: np.ndarray, missing: np.ndarray | None, matrix: np.ndarray, influence: Influence
) -> np.ndarray:
    """Return ψ(Y − L)/q, zero where values are missing."""
    residual = patch - matrix
    if missing is not None:
        residual[missing] = 0
    bounded, slope = influence(residual)
    if missing is not None:
        slope -= np.count_nonzero(missing) / missing.size  # their residual, zero, has slope one
        bounded[missing] = 0
    bounded *= 1 / max(slope, SMALLEST_SLOPE)
    return bounded


def settle(
    patch: np.ndarray,
    missing: np.ndarray | None,
    influence: Influence,
    rank: int | str,
    tolerance: float,
) -> MEstimate:
    """Iterate from the SVD of the patch held to its fences, and choose the rank along with it.

    With ``rank="auto"`` the rank starts low, because noise that differs between bands (filled
    values, crowded impulses) would pass for signal. The components of L + ψ/q that rise above the
    edge of its own noise are taken in whenever L has settled, until their number stays.
    """
    filled = fence_bands(patch, missing)
    if rank != "auto":
        start = LowRank.leading(filled, int(rank))
        return iterate(patch, missing, start, influence, tolerance)
    low = LowRank.leading(filled, FIRST_RANK)
    for _ in range(MAX_RANK_ROUNDS):
        state = iterate(patch, missing, low, influence, 10 * tolerance)
        low = rank_again(patch, missing, state, influence)
        if low.rank == state.low.rank:
            break
    return iterate(patch, missing, low, influence, tolerance)


def full_influence(residual: np.ndarray) -> tuple[np.ndarray, float]:
    """Let every residual count in full: least squares."""
    return residual, 1.0


def rank_again(
    patch: np.ndarray,
    missing: np.ndarray | None,
    state: MEstimate,
    influence: Influence,
    margin: float = EDGE_MARGIN,
) -> LowRank:
    """Return the components of L + ψ/q above the edge of its noise, times a margin."""
    change = correction(patch, missing, state.matrix, influence)
    n, p, k = *patch.shape, state.low.rank
    freedom = max((n - k) * (p - k), 1)
    level = np.sqrt(float(np.vdot(change, change)) / freedom)
    return LowRank.above_noise(state.matrix + change, floor=margin * float(level))


def fill_bands(patch: np.ndarray, missing: np.ndarray) -> np.ndarray:
    """Return the patch with the mean of its band at every missing value: a start, no more."""
    counts = len(patch) - np.count_nonzero(missing, axis=0)
    known = np.where(missing, 0, patch)
    means = known.sum(axis=0) / np.maximum(counts, 1)
    return np.where(missing, means.astype(patch.dtype), patch)


def fence_bands(patch: np.ndarray, missing: np.ndarray | None) -> np.ndarray:
    """Return the patch with every band held to its fences, 1.5 quartile distances out.

    Impulses crowded into a few bands would rise above the noise edge and be taken for signal; in
    this start they are not. What is signal beyond the fences comes back with the iteration.
    Missing values take the median.
    """
    across = np.ascontiguousarray(patch.T)
    if missing is not None:
        across[missing.T] = np.nan
    across.sort(axis=1)
    counts = np.full(len(across), len(patch))
    if missing is not None:
        counts -= np.count_nonzero(missing, axis=0)
    last, bands = np.maximum(counts - 1, 0), np.arange(len(across))
    low, middle, high = (across[bands, (last * share) // 4] for share in (1, 2, 3))
    reach = FENCE * (high - low)
    fenced = np.clip(patch, low - reach, high + reach)
    if missing is None:
        return fenced
    return np.where(missing, np.where(counts > 0, middle, 0), fenced)


def to_solution(
    patch: np.ndarray,
    missing: np.ndarray | None,
    low: LowRank,
    kept: np.ndarray,
    spread: float,
    slope: float,
    bound: float = LOSS_BOUND,
) -> PatchSolution:
    """Return the solution with what its variance rests on: the sandwich of M-estimation.

    Parameters
    ----------
    patch, missing
        What was given.
    low
        The estimate.
    kept
        (pixels, bands) True where ψ follows the residual.
    spread
        Σψ² over all elements.
    slope
        Mean slope of ψ over the kept elements.
    bound
        Residuals count as at most this in the loss of a pixel.
    """
    left, values, right = low.factors()
    n, p, r = *patch.shape, len(values)
    residual = patch - (left * values) @ right.T
    if missing is not None:
        residual[missing] = 0
    n_kept = int(np.count_nonzero(kept))
    freedom = n_kept - r * (n + p - r)
    # A patch with hardly more elements than parameters says nothing about its noise.
    variance = spread / freedom if freedom > 0.1 * n_kept else 1.0
    inflation = variance / max(slope, SMALLEST_SLOPE) ** 2
    bounded = np.clip(residual, -bound, bound)
    return PatchSolution(
        left,
        values,
        right,
        residual=float(np.vdot(residual * kept, residual)),
        kept=kept,
        inflation=float(inflation),
        level=float(np.sqrt(inflation * kept.size / max(n_kept, 1))),
        loss=np.einsum("nv,nv->n", bounded, bounded),
    )
