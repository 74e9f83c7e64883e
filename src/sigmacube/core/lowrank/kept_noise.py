"""Components of pure noise that windows keep: how their errors are correlated between windows.

Where a rank above the signal's is asked for, windows keep components below the noise edge. They
carry no signal, so what is observed of them is their error; its correlation between overlapping
windows depends on the sizes of window and overlap and on the number of components, not on the
scene.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from sigmacube.core.lowrank.factors import Factors
from sigmacube.core.lowrank.pairs import PRECISION, pair_products
from sigmacube.core.parallel import ParallelMap
from sigmacube.core.windows import Span, WindowGrid

__all__ = ["NoiseCorrelation", "pool_noise_correlation", "sampled_regions"]

SAMPLED_ROWS = 8
# Windows side by side that noise is pooled over, along an axis.
POOLED = 8


@dataclass(frozen=True, eq=False)
class NoiseCorrelation:
    """Correlation of the pure-noise components of two windows, by their offset."""

    table: np.ndarray
    """(row offset, band offset, col offset) correlation; offsets in elements, absolute."""

    def between(
        self, grid: WindowGrid, rows: np.ndarray, bands: np.ndarray, cols: np.ndarray
    ) -> np.ndarray:
        """Return (w, w) correlations for windows at (w,) rows, band windows and columns."""
        apart = []
        for axis, windows in ((grid.rows, rows), (grid.bands, bands), (grid.cols, cols)):
            start = axis.starts[windows]
            apart.append(np.abs(start[:, None] - start))
        return self.table[tuple(apart)]


def pool_noise_correlation(parts: Iterable[Factors], run: ParallelMap) -> NoiseCorrelation:
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
    """
    sums = [_pair_powers(factors, run) for factors in parts]
    products, powers = (np.sum(arrays, axis=0) for arrays in zip(*sums, strict=True))
    table = np.divide(products, powers, out=np.zeros_like(products), where=powers > 0)
    table[0, 0, 0] = 1.0
    return NoiseCorrelation(table)


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
    grid = factors.grid
    noise = (factors.singular_values * (1 - factors.is_signal))[..., None, None]
    left = np.multiply(factors.left, noise, dtype=PRECISION)
    right, amplitude = factors.right.astype(PRECISION), np.sqrt(factors.noise_power)
    products = np.zeros((grid.rows.size, grid.bands.size, grid.cols.size))
    powers = np.zeros_like(products)

    def pool(i: int) -> list[tuple[tuple[int, ...], float, float]]:
        found = []
        for pair in pair_products(left, right, grid, i):
            (_, k, cols), (below, other, beside) = pair.first, pair.second
            apart = [
                abs(int(axis.starts[b] - axis.starts[a]))
                for axis, a, b in (
                    (grid.rows, i, below),
                    (grid.bands, k, other),
                    (grid.cols, cols.start, beside.start),
                )
            ]
            shared = np.prod(np.subtract(products.shape, apart))
            product = float(np.sum(pair.pixels * pair.bands, dtype=np.float64))
            power = float(shared * np.vdot(amplitude[pair.first], amplitude[pair.second]))
            found.append((tuple(apart), product, power))
        return found

    stride = max(1, len(grid.rows) // SAMPLED_ROWS)
    for row in run(pool, range(0, len(grid.rows), stride)):
        for where, product, power in row:
            products[where] += product
            powers[where] += power
    return products, powers
