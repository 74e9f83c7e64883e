"""Components of pure noise that windows keep: how their errors are correlated between windows.

Where a rank above the signal's is asked for, windows keep components below the noise edge. They
carry no signal, so what is observed of them is their error; its correlation between overlapping
windows depends on the sizes of window and overlap and on the number of components, not on the
scene.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from sigmacube.core.lowrank.factors import Factors
from sigmacube.core.lowrank.pairs import PRECISION, Overlap, overlaps
from sigmacube.core.parallel import ParallelMap
from sigmacube.core.windows import Span, WindowGrid

__all__ = ["pool_noise_correlation", "sampled_regions"]

SAMPLED_ROWS = 8
# Windows side by side that noise is pooled over, along an axis.
POOLED = 8


def pool_noise_correlation(parts: Iterable[Factors], run: ParallelMap) -> np.ndarray:
    """Pool ρ = Σ_shared N_a N_b / (shared elements · √(q_a q_b)) over pairs with equal offset.

    N = U D Vᵀ of the noise components alone, so Σ_shared N_a N_b is the sum over the elementwise
    product of (U D)_aᵀ(U D)_b over shared pixels with V_aᵀV_b over shared bands. A sample of the
    window rows gives thousands of pairs for every offset.

    Parameters
    ----------
    parts
        Factors of some parts of the scene, see `sampled_regions`.
    run
        Parallel map.

    Returns
    -------
    correlation
        (row offset, band offset, col offset); offsets in elements, absolute.
    """
    sums = [_pair_powers(factors, run) for factors in parts]
    products, powers = (np.sum(arrays, axis=0) for arrays in zip(*sums, strict=True))
    table = np.divide(products, powers, out=np.zeros_like(products), where=powers > 0)
    table[0, 0, 0] = 1.0
    return np.asarray(table)


def sampled_regions(grid: WindowGrid) -> list[tuple[Span, Span]]:
    """Return the windows, as (first, stop) of rows and columns, that noise is pooled over.

    The whole of an axis no longer than ``POOLED`` windows side by side; else half of that at its
    start, middle and end.
    """
    ends = []
    for axis in (grid.rows, grid.cols):
        n, block = len(axis), POOLED * axis.size // axis.step
        if n <= block:
            ends.append([(0, n)])
        else:
            half = max(block // 2, 1)
            ends.append([(first, first + half) for first in (0, (n - half) // 2, n - half)])
    return [(rows, cols) for rows in ends[0] for cols in ends[1]]


def _pair_powers(factors: Factors, run: ParallelMap) -> tuple[np.ndarray, np.ndarray]:
    """Return Σ products of shared noise and Σ of what full correlation would give, by offset."""
    grid, rank = factors.grid, factors.left.shape[3]
    noise = factors.singular_values * (1 - factors.is_signal)
    left = np.multiply(factors.left, noise[..., None, None], dtype=PRECISION)
    left = left.reshape(-1, rank, *left.shape[4:])
    right = factors.right.astype(PRECISION).reshape(-1, rank, grid.bands.size)
    amplitude = np.sqrt(factors.noise_power).ravel()
    products = np.zeros((grid.rows.size, grid.bands.size, grid.cols.size))
    powers = np.zeros_like(products)
    # A sample of the rows of windows, each with the windows after it.
    row = np.arange(len(left)) // (grid.shape[1] * grid.shape[2])
    sampled = row % max(1, len(grid.rows) // SAMPLED_ROWS) == 0

    groups = [
        Overlap(group.first[pick], group.second[pick], group.apart)
        for group in overlaps(grid)
        if np.any(pick := sampled[group.first])
    ]

    def pool(group: Overlap) -> tuple[float, float]:
        product = np.sum(group.pixels(left) * group.bands(right), dtype=np.float64)
        return float(product), float(np.vdot(amplitude[group.first], amplitude[group.second]))

    for group, (product, power) in zip(groups, run(pool, groups), strict=True):
        apart = tuple(abs(distance) for distance in group.apart)
        products[apart] += product
        powers[apart] += power * np.prod(np.subtract(products.shape, apart))
    return products, powers
