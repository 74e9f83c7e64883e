"""What pairs of overlapping windows share, and the covariance of the mean that follows from it.

A linear functional of the estimate takes x_a from the pixels of window a: its weights times the
share of the window in the mean. To first order the window passes on p_a rᵀ + q_a (P_a r)ᵀ of the
noise, with r the weights on bands, P_a = V_aV_aᵀ, p_a = U_a z_a, z_a = U_aᵀx_a and q_a = x_a − p_a.
The covariance of two such functionals with bands r and r' is

    |p|² r·r' + Σ_a (p·q_a) 2 b_a + Σ_ab (q_a·q_b) t_ab,
    p = Σ_a p_a,  b_a = rᵀP_a r',  t_ab = rᵀP_a P_b r'

in whitened space. For one pixel and one band it is Σ_ab w_a w_b cov_ab with

    cov_ab = s_ab (1 − b_a − b_b + t_ab) + t_ab (1 − a_a − a_b) + a_a b_b + a_b b_a,

since x_a = w_a e_u gives p_a·p_b = w_a w_b s_ab and x_a·p_b = w_a w_b a_b. All of it needs only the
small matrices U_aᵀU_b over shared pixels and V_aᵀV_b over shared bands of each pair of windows.

Leverages are pure numbers of order one, so single precision does: its relative error stays near
1e-7 (tests hold it to 1e-6 against a double-precision pair loop).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import product

import numpy as np

from sigmacube.core.lowrank.factors import Factors
from sigmacube.core.parallel import ParallelMap
from sigmacube.core.windows import Cell, WindowGrid

__all__ = ["PRECISION", "PairProducts", "Pairs", "pair_products", "rows_on_cell"]

PRECISION = np.float32

Windows = tuple[slice, slice, slice]
"""Rows, band windows and columns of windows."""
Sides = tuple[np.ndarray, np.ndarray]
"""Two sets of weights (n, bands) on whitened bands: number i of one goes with i of the other."""


@dataclass(frozen=True, eq=False)
class PairProducts:
    """Products of neighbouring pairs of windows (a, b), all at the same offset."""

    first: tuple[int, int, slice]
    """Windows a: row, band window, columns."""
    second: tuple[int, int, slice]
    offset: tuple[int, int, int]
    """Row, band window and column of b minus those of a; b never comes before a."""
    pixels: np.ndarray
    """(pairs, rank of a, rank of b) U_aᵀU_b over shared pixels."""
    bands: np.ndarray
    """(pairs, rank of a, rank of b) V_aᵀV_b over shared bands."""


def pair_products(
    left: np.ndarray, right: np.ndarray, grid: WindowGrid, i: int, layers: slice = slice(None)
) -> Iterator[PairProducts]:
    """Yield the products of the windows of one row with themselves and with windows after them.

    Parameters
    ----------
    left, right
        (I, K, J, rank, rows, cols) U and (I, K, J, rank, bands) V.
    grid
        Where the windows lie.
    i
        The row of windows.
    layers
        Which band windows of the grid the K are.
    """
    rows, cols = grid.rows, grid.cols
    beside = [pairs for dj in range(-cols.reach, cols.reach + 1) for pairs in cols.overlaps(dj)]
    starts = grid.bands.starts[layers].tolist()
    for below, k, other in product(range(rows.reach + 1), *[range(len(starts))] * 2):
        down = int(rows.starts[i + below] - rows.starts[i]) if i + below < len(rows) else rows.size
        along = starts[other] - starts[k]
        if down >= rows.size or abs(along) >= grid.bands.size:
            continue
        in_a, in_b = (slice(max(s, 0), grid.bands.size + min(s, 0)) for s in (along, -along))
        for pairs in beside:
            offset = (below, other - k, pairs.offset)
            if offset < (0, 0, 0):
                continue
            a, b = (i, k, pairs.first), (i + below, other, pairs.second)
            u_a = left[a][..., down:, pairs.in_first]
            u_b = left[b][..., : rows.size - down, pairs.in_second]
            u_a, u_b = (u.reshape(*u.shape[:2], -1) for u in (u_a, u_b))
            v_a, v_b = right[a][..., in_a], right[b][..., in_b]
            yield PairProducts(a, b, offset, u_a @ u_b.swapaxes(1, 2), v_a @ v_b.swapaxes(1, 2))


@dataclass(frozen=True, eq=False)
class Together:
    """All pairs a ≤ b among the windows over a cell."""

    first: np.ndarray
    """(pairs,) number of a among the windows over the cell."""
    second: np.ndarray
    windows: tuple[np.ndarray, ...]
    """(pairs,) row, band window and column of a, counted from the first window of the cell."""
    offsets: tuple[np.ndarray, ...]
    """(pairs,) those of b minus those of a."""
    orders: np.ndarray
    """(pairs, 1) how many ordered pairs each stands for: one or two."""
    members: np.ndarray
    """(windows, pairs) one where a window belongs to a pair."""


Triple = tuple[int, int, int]


@cache
def windows_together(shape: Triple, reach: Triple) -> Together:
    """Return the pairs among windows that are a product of rows, band windows and columns.

    Pairs farther apart than ``reach`` along an axis share nothing and are left out.

    Examples
    --------
    >>> pairs = windows_together((1, 1, 2), (0, 0, 1))
    >>> pairs.first, pairs.second, pairs.orders.ravel()
    (array([0, 0, 1]), array([0, 1, 1]), array([1., 2., 1.], dtype=float32))
    """
    count = int(np.prod(shape))
    first, second = np.triu_indices(count)
    here, there = (np.array(np.unravel_index(side, shape)) for side in (first, second))
    apart = there - here
    near = np.all(np.abs(apart) <= np.array(reach)[:, None], axis=0)
    first, second, offsets = first[near], second[near], tuple(apart[:, near])
    orders = np.where(first == second, 1, 2).astype(PRECISION)[:, None]
    numbers = np.arange(count)[:, None]
    members = ((numbers == first) | (numbers == second)).astype(PRECISION)
    return Together(first, second, np.unravel_index(first, shape), offsets, orders, members)


@dataclass(frozen=True, eq=False)
class Pairs:
    """What pairs of windows over one band cell share.

    Arrays of pairs are indexed by the row, band window and column of window a and by the offset of
    window b, which never comes before a; negative offsets count from the end, as indices do.
    """

    pixels: np.ndarray
    """(pairs, rank, rank) U_aᵀU_b over shared pixels, components scaled by their influence."""
    bands: np.ndarray
    """(pairs, n) t_ab."""
    leverage: np.ndarray
    """(I, K, J, n) b_a."""
    influence: np.ndarray
    """(I, K, J, rank) scale of the components of U."""
    noise: np.ndarray | float
    """(n,) r·r' of the noise itself."""

    @classmethod
    def create(
        cls, factors: Factors, cell: Cell, run: ParallelMap, sides: Sides | None = None
    ) -> Pairs:
        """Return the pairs of all windows over a cell of the band axis.

        Without ``sides`` they are for the variance of each of the cell's bands; with them, for
        the covariances of one set of combinations of bands with the other.
        """
        grid, ks = factors.grid, cell.windows
        scale = factors.influence[:, ks, :, : max(int(factors.n_signal.max(initial=0)), 1)]
        influence, rank = scale.astype(PRECISION), scale.shape[3]
        right = np.multiply(factors.right[:, ks, :, :rank], influence[..., None], dtype=PRECISION)
        left = np.multiply(
            factors.left[:, ks, :, :rank], influence[..., None, None], dtype=PRECISION
        )
        one = two = (
            rows_on_cell(factors, cell)[..., :rank, :].astype(PRECISION) * influence[..., None]
        )
        if sides is not None:
            one, two = (_on_sides(right, factors, cell, side) for side in sides)
        slots = (grid.rows.reach + 1, 2 * right.shape[1] - 1, 2 * grid.cols.reach + 1)
        shape, n = (*right.shape[:3], *slots), one.shape[4]
        pixels = np.zeros((*shape, rank, rank), dtype=PRECISION)
        bands = np.zeros((*shape, n), dtype=PRECISION)
        leverage = np.empty((*right.shape[:3], n), dtype=PRECISION)

        def fill(i: int) -> None:
            np.einsum("kjrn,kjrn->kjn", one[i], two[i], out=leverage[i])
            for pair in pair_products(left, right, grid, i, ks):
                where = (*pair.first, *pair.offset)
                pixels[where] = pair.pixels
                bands[where] = _band_terms(one[pair.first], pair.bands, two[pair.second])
                if one is not two:  # the mean of both orders: (a, b) stands for (b, a) as well
                    bands[where] += _band_terms(two[pair.first], pair.bands, one[pair.second])
                    bands[where] /= 2

        run(fill, range(len(grid.rows)))
        noise = 1.0 if sides is None else np.einsum("nv,nv->n", *sides).astype(PRECISION)
        return cls(pixels, bands, leverage, influence, noise)

    def together(self, windows: Windows) -> Together:
        """Return the pairs that some windows form."""
        rows, bands, cols = self.bands.shape[3:6]
        shape = tuple(part.stop - part.start for part in windows)
        return windows_together(shape, (rows - 1, bands // 2, cols // 2))

    def covariance(
        self,
        windows: Windows,
        z: np.ndarray,
        x_x: np.ndarray,
        x_p: np.ndarray,
    ) -> np.ndarray:
        """Return (f, n) covariances of functionals that some windows take part in.

        Parameters
        ----------
        windows
            Rows, band windows and columns of the windows that take part, w in all.
        z
            (w, rank, f) z_a = U_aᵀx_a.
        x_x
            (pairs, f) x_a·x_b − x_a·p_b − x_b·p_a, for the pairs of `together`.
        x_p
            (w, f) Σ_b x_a·p_b.
        """
        pairs, rank = self.together(windows), z.shape[1]
        where = tuple(part.start + at for part, at in zip(windows, pairs.windows, strict=True))
        grams = self.pixels[(*where, *pairs.offsets)][:, :rank, :rank]
        p_p = np.einsum("prf,prf->pf", z[pairs.first], grams @ z[pairs.second])
        p_q = x_p - pairs.members @ p_p
        q_q = x_x + p_p
        p_p *= pairs.orders
        q_q *= pairs.orders
        covariance = q_q.T @ self.bands[(*where, *pairs.offsets)]
        covariance += 2 * p_q.T @ self.leverage[windows].reshape(len(p_q), -1)
        covariance += p_p.sum(axis=0)[:, None] * self.noise
        return covariance


def _band_terms(one: np.ndarray, gram: np.ndarray, two: np.ndarray) -> np.ndarray:
    """Return t_ab = r V_a (V_aᵀV_b) V_bᵀ r', (pairs, n), from Vᵀr and Vᵀr' (pairs, rank, n)."""
    return np.einsum("jrn,jrn->jn", one, gram @ two)


def rows_on_cell(factors: Factors, cell: Cell) -> np.ndarray:
    """Return (I, K, J, rank, n) rows of V on the bands of a cell, for the windows over it."""
    starts = factors.grid.bands.starts.tolist()
    parts = [
        factors.output_rows[:, k, ..., cell.within(starts[k])]
        for k in range(cell.windows.start, cell.windows.stop)
    ]
    return np.stack(parts, axis=1)


def _on_sides(right: np.ndarray, factors: Factors, cell: Cell, side: np.ndarray) -> np.ndarray:
    """Return (I, K, J, rank, n) Vᵀr for combinations of bands (n, bands)."""
    axis = factors.grid.bands
    ks = range(cell.windows.start, cell.windows.stop)
    parts = [right[:, n] @ side[:, axis.slice(k)].T.astype(PRECISION) for n, k in enumerate(ks)]
    return np.stack(parts, axis=1)
