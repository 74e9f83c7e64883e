"""Low-rank M-estimation: where it starts, how its rank grows, and the variance of what it gives.

The robust solvers differ in the influence function ψ alone; `low_rank.iterate` is the iteration.
"""

from __future__ import annotations

import numpy as np

from sigmacube.core.lowrank.solvers.base import PatchSolution
from sigmacube.core.lowrank.solvers.low_rank import (
    SMALLEST_SLOPE,
    Influence,
    LowRank,
    MEstimate,
    Observed,
    correction,
    iterate,
    rms,
)
from sigmacube.core.lowrank.solvers.weighted import alternate
from sigmacube.core.rank import noise_edge

# While the rank still grows: steps in between at most, the change at which L is near enough, and
# rounds of growth at most.
STEPS_PER_ROUND = 15
NEAR = 0.1
MAX_REWEIGHTS = 30
MAX_RANK_ROUNDS = 25
# An estimate so many times larger than all values has run away into what is missing.
RUN_AWAY = 10.0
# A clipped residual is not Gaussian and its noise level is estimated: a little above the edge.
EDGE_MARGIN = 1.01
FENCE = 1.5
# Residuals count as at most this in the loss of a pixel, which windows are compared by.
LOSS_BOUND = 3.0
# Half of the width of residual sizes that their density is counted in.
HALF_BIN = 0.25


def reweight(data: Observed, state: MEstimate, influence: Influence) -> MEstimate:
    """Move L by least squares with the weights ψ(r)/r of its residuals r, until it is near.

    A step of `iterate` moves no element by more than ψ allows; where residuals are hundreds of
    noise std because factors of a strong signal are a little off, this gets there.
    """
    for _ in range(MAX_REWEIGHTS):
        residual = data.residual(state.matrix)
        bounded = influence(residual.copy())[0]
        weights = np.divide(bounded, residual, out=np.ones_like(residual), where=residual != 0)
        if data.present is not None:
            weights *= data.present
        low = alternate(data.values, weights, state.low, tolerance=0.0, max_sweeps=2)
        matrix = low.matrix()
        state = MEstimate(low, matrix, rms(matrix - state.matrix))
        if state.change <= NEAR:
            break
    return state


def settle(
    data: Observed, influence: Influence, rank: int | str, tolerance: float, *, proof: bool = True
) -> MEstimate:
    """Iterate from the patch held to its fences, and choose the rank along with it.

    With ``rank="auto"`` the rank starts at one, because noise that differs between bands (filled
    values, crowded impulses) would pass for signal. Components of L + ψ/q that rise above the edge
    of its own noise are taken in, and others dropped, until their number stays; with ``proof``,
    down to the last one just above the edge.
    """
    if rank != "auto":
        start = LowRank.leading(fence_bands(data), int(rank))
        return held(data, iterate(data, start, influence, tolerance), tolerance)
    low, thorough = LowRank.dominant(fence_bands(data)), False
    for _ in range(MAX_RANK_ROUNDS):
        if thorough:
            state = iterate(data, low, influence, tolerance)
        else:
            state = iterate(data, low, influence, max(tolerance, NEAR), STEPS_PER_ROUND)
            if state.change > 2 * NEAR:
                state = reweight(data, state, influence)
        low = grown(data, state, influence, proof=thorough)
        if low is state.low:
            if thorough or not proof:
                break
            thorough = True
    state = state if thorough else iterate(data, low, influence, tolerance)
    return held(data, state, tolerance)


def held(data: Observed, state: MEstimate, tolerance: float) -> MEstimate:
    """Return the state; where it has run away, one of its rank that a prior holds to the values."""
    if data.present is None:
        return state
    largest = float(np.abs(data.values * data.present).max())
    if float(np.abs(state.matrix).max()) <= RUN_AWAY * largest:
        return state
    start = LowRank.leading(fence_bands(data), state.low.rank)
    low = alternate(data.values, data.present, start, tolerance)
    return MEstimate(low, low.matrix())


def grown(
    data: Observed,
    state: MEstimate,
    influence: Influence,
    margin: float = EDGE_MARGIN,
    *,
    proof: bool = True,
) -> LowRank:
    """Return the components of L + ψ/q above the edge of its noise, times a margin.

    It is the state's own ``low`` where these are as many as it has.
    """
    change = correction(data, state.matrix, influence)
    n, p, k = *change.shape, state.low.rank
    freedom = max((n - k) * (p - k), 1)
    measured = np.sqrt(float(np.vdot(change, change)) / freedom)
    # No less than that of unit noise; there may be no value left at all.
    level = max(float(measured), max(data.share, 1 / (n * p)) ** -0.5)
    return state.low.above(change, margin * level * noise_edge(n, p), proof=proof)


def fill_bands(patch: np.ndarray, missing: np.ndarray) -> np.ndarray:
    """Return the patch with the mean of its band at every missing value: a start, no more."""
    counts = len(patch) - np.count_nonzero(missing, axis=0)
    known = np.where(missing, 0, patch)
    means = known.sum(axis=0) / np.maximum(counts, 1)
    return np.where(missing, means.astype(patch.dtype), patch)


def fence_bands(data: Observed) -> np.ndarray:
    """Return the patch with every band held to its fences, 1.5 quartile distances out.

    Impulses crowded into a few bands would rise above the noise edge and be taken for signal; in
    this start they are not. What is signal beyond the fences comes back with the iteration.
    Missing values take the median.
    """
    across = np.ascontiguousarray(data.values.T)
    counts = np.full(len(across), across.shape[1])
    if data.present is not None:
        there = np.ascontiguousarray(data.present.T)
        across = np.where(there, across, np.nan)
        counts = np.count_nonzero(there, axis=1)
    across.sort(axis=1)
    last, bands = np.maximum(counts - 1, 0), np.arange(len(across))
    low, middle, high = (across[bands, (last * share) // 4] for share in (1, 2, 3))
    reach = FENCE * (high - low)
    fenced = np.clip(data.values, low - reach, high + reach)
    if data.present is None:
        return fenced
    return np.where(data.present, fenced, np.where(counts > 0, middle, 0))


def density_at(size: np.ndarray, cut: float, n_kept: int) -> float:
    """Return the density of residual sizes at the cut, per kept element."""
    near = int(np.count_nonzero((size > cut - HALF_BIN) & (size < cut + HALF_BIN)))
    return near / max(n_kept, 1) / (2 * HALF_BIN)


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
        residual[missing], kept = 0, kept & ~missing
    n_kept = int(np.count_nonzero(kept))
    freedom = n_kept - r * (n + p - r)
    # A patch with hardly more elements than parameters says nothing about its noise.
    variance = spread / freedom if freedom > 0.1 * n_kept else 1.0
    sandwich = variance / max(slope, SMALLEST_SLOPE) ** 2
    bounded = np.clip(residual, -bound, bound)
    return PatchSolution(
        left,
        values,
        right,
        residual=float(np.vdot(residual * kept, residual)),
        kept=kept,
        sandwich=float(sandwich),
        level=float(np.sqrt(sandwich * kept.size / max(n_kept, 1))),
        loss=np.einsum("nv,nv->n", bounded, bounded),
    )
