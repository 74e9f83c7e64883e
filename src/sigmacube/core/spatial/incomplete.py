"""Directions of a scene of which much is missing: learnt from what is there.

A spectrum is y = Lx + noise, x of unit power. Given L, what is there of a pixel tells mean and
covariance of its x; given these, a band's row of L is a regression on the pixels that have it
(expectation–maximisation). Filling the gaps and looking for principal directions has the same end,
but gaps hold what was put there: the more is missing the slower it gets there. It finds directions
that nobody knows of yet, though. So both, in turn.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from sigmacube.core.spatial.geometry import Block, Box
from sigmacube.core.spatial.holes import find_holes
from sigmacube.core.spatial.missing import FEW, imputed, surrounded
from sigmacube.core.spatial.smoothing import Run
from sigmacube.core.spatial.subspace import batches, blocks, gram, principal

__all__ = ["learnt_directions", "regressed", "with_rare"]

# Turns of regression and of drawing; regressions of a turn; pixels looked at, at most, and at once.
TURNS, REGRESSIONS = 3, 2
PIXELS, AT_ONCE = 20_000, 500
# A share of the elements of a band that are missing, from which on regressions pay.
GONE = 0.05


def learnt_directions(
    block: Block,
    shape: tuple[int, int, int],
    directions: np.ndarray,
    total: np.ndarray,
    count: float,
    share: float,
    run: Run,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return directions (P, k) of incomplete spectra, the power along each, the sum of y yᵀ.

    Parameters
    ----------
    directions
        (P, j) what is known of them.
    total, count, share
        See `gram`.
    """
    power = np.einsum("pk,pq,qk->k", directions, total, directions) / max(count, 1)
    for turn in range(TURNS):
        if share < 1 - GONE:
            for _ in range(REGRESSIONS):
                directions, power = regressed(block, shape, directions, power, run)
        total, count, _ = gram(drawn_spectra(block, directions, power, turn), shape, run)
        directions = principal(total, count)
        power = np.einsum("pk,pq,qk->k", directions, total, directions) / max(count, 1)
    return directions, power, total


def with_rare(
    block: Block,
    shape: tuple[int, int, int],
    basis: np.ndarray,
    total: np.ndarray,
    count: float,
    share: float,
    run: Run,
) -> tuple[Block, np.ndarray, np.ndarray]:
    """Return the scene with its gaps filled, B with directions that came in last, and Σ y yᵀ.

    What was put into gaps before these were known lacks them.
    """
    power = np.einsum("pk,pq,qk->k", basis, total, basis) / max(count, 1)
    if share < 1 - GONE:
        for _ in range(REGRESSIONS):
            basis, power = regressed(block, shape, basis, power, run)
    total, _, _ = gram(drawn_spectra(block, basis, power, TURNS), shape, run)
    return imputed(block, basis, power), basis, total


def regressed(
    block: Block, shape: tuple[int, int, int], directions: np.ndarray, power: np.ndarray, run: Run
) -> tuple[np.ndarray, np.ndarray]:
    """Return directions and power after one round of expectation–maximisation."""
    loading = directions * np.sqrt(np.maximum(power - 1, 0.1))
    every = blocks(shape[:2])
    step = max(shape[0] * shape[1] // PIXELS, 1)
    bands, k = loading.shape
    squares, products, spread, number = np.zeros((bands, k, k)), np.zeros((bands, k)), 0.0, 0
    for batch in batches(every):
        for part in run(partial(_expected, block, loading, step), batch):
            squares += part[0]
            products += part[1]
            spread, number = spread + part[2], number + part[3]
    if not number:
        return directions, power
    least = 1e-9 * np.trace(squares, axis1=1, axis2=2).max() * np.eye(k)
    loading = np.linalg.solve(squares + least, products[:, :, None])[:, :, 0]
    loading = loading @ np.linalg.cholesky(np.asarray(spread) / number)
    directions, size, _ = np.linalg.svd(loading, full_matrices=False)
    return directions, size**2 + 1


def _expected(
    block: Block, loading: np.ndarray, step: int, box: Box
) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    """Return sums over pixels of a block: by band of E xxᵀ and of y E x, and of all E xxᵀ."""
    y, kept = block(*box.slices)
    bands, k = loading.shape
    there = np.ones(y.shape, dtype=bool) if kept is None else kept
    y, there = y.reshape(-1, bands)[::step], there.reshape(-1, bands)[::step]
    some = there.mean(axis=1) > FEW
    y, there = np.where(there, y, 0.0)[some], there[some].astype(np.float64)
    pairs = (loading[:, :, None] * loading[:, None, :]).reshape(bands, k * k)
    squares, products = np.zeros((bands, k * k)), np.zeros((bands, k))
    spread = np.zeros(k * k)
    for first in range(0, len(y), AT_ONCE):
        held, values = there[first : first + AT_ONCE], y[first : first + AT_ONCE]
        inverse = np.linalg.inv((held @ pairs).reshape(-1, k, k) + np.eye(k))
        mean = np.einsum("nij,nj->ni", inverse, values @ loading)
        square = (inverse + mean[:, :, None] * mean[:, None, :]).reshape(len(mean), k * k)
        squares += held.T @ square
        products += values.T @ mean
        spread += square.sum(axis=0)
    return squares.reshape(bands, k, k), products, spread.reshape(k, k), len(y)


def drawn_spectra(block: Block, directions: np.ndarray, power: np.ndarray, turn: int) -> Block:
    """Return a block whose missing elements are drawn, as likely as they are given the others.

    A mean of what is likely would make directions that few pixels tell look better known than they
    are. Of a pixel that was hardly seen those around tell. The draw depends on where the block
    lies, and on nothing else.
    """

    def complete(rows: slice, cols: slice) -> tuple[np.ndarray, None]:
        y, kept = block(rows, cols)
        if kept is None or kept.all():
            return y, None
        rng = np.random.default_rng([12, turn, rows.start, cols.start])
        noise = rng.standard_normal(y.shape)
        holes = find_holes(kept, directions)
        where, prior = holes.where, 1 / np.maximum(power - 1, 0.05)
        seen = np.where(kept, y, 0.0) @ directions
        hardly = holes.share[where][:, None] <= FEW
        trust = np.where(hardly, np.maximum(prior, 1.0), prior)
        guess = np.where(hardly, surrounded(seen, holes, power - 1)[where], 0.0)
        guess += rng.standard_normal(guess.shape) / np.sqrt(trust)
        moved = seen[where] + (np.where(kept, noise, 0.0) @ directions)[where]
        seen[where] = holes.solve(moved, guess, trust)
        return np.where(kept, y, seen @ directions.T + noise), None

    return complete
