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
from functools import lru_cache
from itertools import product

import numpy as np

from sigmacube.core.lowrank.factors import Factors
from sigmacube.core.parallel import ParallelMap
from sigmacube.core.windows import Cell, WindowGrid

PRECISION = np.float32

Sides = tuple[np.ndarray, np.ndarray]
"""Two sets of weights (n, bands) on whitened bands: number i of one goes with i of the other."""


@dataclass(frozen=True, eq=False)
class Overlap:
    """Pairs of windows (a, b) that are equally far apart, so that they share the same places."""

    first: np.ndarray
    """(pairs,) number of a, windows counted by row, band window and column."""
    second: np.ndarray
    """(pairs,) number of b, which never comes before a."""
    apart: tuple[int, int, int]
    """Row, band and column of b minus those of a, in elements."""

    def pieces(self, most: int) -> Iterator[Overlap]:
        """Yield no more pairs than so many at a time, where products of all would be large."""
        for start in range(0, len(self.first), most):
            here = slice(start, start + most)
            yield Overlap(self.first[here], self.second[here], self.apart)

    def pixels(self, left: np.ndarray) -> np.ndarray:
        """Return (pairs, rank, rank) U_aᵀU_b over shared pixels, from U (windows, rank, ...)."""
        in_a, in_b = self._shared((left.shape[2], 0, left.shape[3]))
        u_a = left[self.first][:, :, in_a[0], in_a[2]]
        u_b = left[self.second][:, :, in_b[0], in_b[2]]
        u_a, u_b = (u.reshape(*u.shape[:2], -1) for u in (u_a, u_b))
        return u_a @ u_b.swapaxes(1, 2)

    def bands(self, right: np.ndarray) -> np.ndarray:
        """Return (pairs, rank, rank) V_aᵀV_b over shared bands, from V (windows, rank, bands)."""
        in_a, in_b = self._shared((0, right.shape[2], 0))
        return right[self.first][..., in_a[1]] @ right[self.second][..., in_b[1]].swapaxes(1, 2)

    def _shared(self, sizes: tuple[int, int, int]) -> list[tuple[slice, ...]]:
        """Return the rows, bands and columns of a that b covers too, and those of b."""
        return [
            tuple(slice(max(d, 0), n + min(d, 0)) for d, n in zip(apart, sizes, strict=True))
            for apart in (self.apart, tuple(-d for d in self.apart))
        ]


def overlaps(grid: WindowGrid, layers: slice = slice(None)) -> list[Overlap]:
    """Return all pairs of windows that share elements, of some of the band windows.

    Examples
    --------
    >>> grid = WindowGrid.create((4, 7, 1), window=4, step=3)
    >>> [(o.first.tolist(), o.second.tolist(), o.apart) for o in overlaps(grid)]
    [([0, 1], [0, 1], (0, 0, 0)), ([0], [1], (0, 0, 3))]
    """
    starts = (grid.rows.starts, grid.bands.starts[layers], grid.cols.starts)
    counts = [len(at) for at in starts]
    numbers, found = np.arange(np.prod(counts)).reshape(counts), []
    sizes = (grid.rows.size, grid.bands.size, grid.cols.size)
    by_distance = [_by_distance(at, size) for at, size in zip(starts, sizes, strict=True)]
    for rows, bands, cols in product(*by_distance):
        apart = (rows[0], bands[0], cols[0])
        if apart >= (0, 0, 0):  # b does not come before a
            first = numbers[np.ix_(rows[1], bands[1], cols[1])].ravel()
            second = numbers[np.ix_(rows[2], bands[2], cols[2])].ravel()
            found.append(Overlap(first, second, apart))
    return found


def _by_distance(starts: np.ndarray, size: int) -> list[tuple[int, np.ndarray, np.ndarray]]:
    """Return distances of windows that overlap along an axis, and the pairs that have each."""
    apart = starts - starts[:, None]
    distances = np.unique(apart[np.abs(apart) < size]).tolist()
    return [(distance, *np.nonzero(apart == distance)) for distance in distances]


@dataclass(frozen=True, eq=False)
class Layer:
    """The windows over one cell of the band axis, counted by row, band window and column."""

    grid: WindowGrid
    bands: Cell
    numbers: np.ndarray
    """(I, K, J) number of every window."""
    starts: np.ndarray
    """(windows, 3) first row, band window and column."""
    left: np.ndarray
    """(windows, rank, rows, cols) U."""
    shares: np.ndarray
    """(windows, rows, cols) shares in the mean."""
    values: np.ndarray
    """(windows, rank) d."""
    influence: np.ndarray
    """(windows, rank) scale of the components in the error."""
    output: np.ndarray
    """(windows, rank, n) rows of V on the bands of the cell."""
    noise_power: np.ndarray
    """(windows,) variance of kept components of pure noise."""

    @classmethod
    def create(cls, factors: Factors, number: int, bands: Cell) -> Layer:
        """Return the windows over a band cell, given with its number."""
        grid, ks = factors.grid, range(bands.windows.start, bands.windows.stop)
        shape = (grid.shape[0], len(ks), grid.shape[1])
        at = np.meshgrid(grid.rows.starts, ks, grid.cols.starts, indexing="ij")
        output = [factors.output_rows[:, k, ..., bands.within(int(grid.bands.starts[k]))]
                  for k in ks]  # fmt: skip

        own = [array[:, bands.windows] for array in (
            factors.left, factors.shares[number], factors.singular_values, factors.influence,
            factors.noise_power,
        )]  # fmt: skip
        left, shares, values, influence, power, rows = (
            array.reshape(-1, *array.shape[3:]) for array in (*own, np.stack(output, axis=1))
        )
        numbers = np.arange(len(power)).reshape(shape)
        starts = np.stack(at, axis=-1).reshape(-1, 3)
        return cls(grid, bands, numbers, starts, left, shares, values, influence, rows, power)

    def apart(self, windows: np.ndarray) -> np.ndarray:
        """Return (w, w, 3) distances of some windows in rows, bands and columns."""
        at = self.starts[windows]
        at[:, 1] = self.grid.bands.starts[at[:, 1]]
        return np.abs(at[:, None] - at)

    def over(self, rows: slice, cols: slice) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the windows that meet a box of pixels, and what they hold there.

        Returns
        -------
        windows, left, shares
            (w,) numbers; (w, rank, rows, cols) U and (w, rows, cols) shares in the mean, zero
            where a window does not cover a pixel.
        """
        down = slice(*self.grid.rows.windows_over(rows.start, rows.stop))
        across = slice(*self.grid.cols.windows_over(cols.start, cols.stop))
        windows = self.numbers[down, :, across].ravel()
        size = (rows.stop - rows.start, cols.stop - cols.start)
        rank = max(int(np.count_nonzero(self.values[windows], axis=1).max()), 1)
        left, shares = np.zeros((len(windows), rank, *size)), np.zeros((len(windows), *size))
        for n, (top, _, side) in enumerate(self.starts[windows].tolist()):
            in_rows, own_rows = _common(rows, top, self.grid.rows.size)
            in_cols, own_cols = _common(cols, side, self.grid.cols.size)
            left[n, :, in_rows, in_cols] = self.left[windows[n], :rank, own_rows, own_cols]
            shares[n, in_rows, in_cols] = self.shares[windows[n], own_rows, own_cols]
        return windows, left, shares


def _common(part: slice, start: int, size: int) -> tuple[slice, slice]:
    """Return what a window covers of a part, counted from the part's and the window's start."""
    low, high = max(part.start, start), min(part.stop, start + size)
    return slice(low - part.start, high - part.start), slice(low - start, high - start)


@dataclass(frozen=True, eq=False)
class Pairs:
    """What pairs a ≤ b of the windows of a layer share."""

    layer: Layer
    numbers: np.ndarray
    """(windows, windows) number of a pair; negative where they share nothing."""
    pixels: np.ndarray
    """(pairs, rank, rank) U_aᵀU_b over shared pixels, components scaled by their influence."""
    bands: np.ndarray
    """(pairs, n) t_ab."""
    leverage: np.ndarray
    """(windows, n) b_a."""
    noise: np.ndarray | float
    """(n,) r·r' of the noise itself."""

    @classmethod
    def create(
        cls, factors: Factors, layer: Layer, run: ParallelMap, sides: Sides | None = None
    ) -> Pairs:
        """Return the pairs of a layer.

        Without ``sides`` they are for the variance of each of its bands; with them, for the
        covariances of one set of combinations of bands with the other.
        """
        grid, ks = factors.grid, layer.bands.windows
        rank = max(int(factors.n_signal.max(initial=0)), 1)  # pure noise does not count
        scale = layer.influence[:, :rank, None].astype(PRECISION)
        left = np.multiply(layer.left[:, :rank], scale[..., None], dtype=PRECISION)
        right = factors.right[:, ks, :, :rank].reshape(*scale.shape[:2], -1)
        right = np.multiply(right, scale, dtype=PRECISION)
        one = two = layer.output[:, :rank].astype(PRECISION) * scale
        if sides is not None:
            one, two = (_on_side(right, layer, side) for side in sides)
        groups = overlaps(grid, ks)
        ends = np.cumsum([len(group.first) for group in groups])
        numbers = np.full((len(left), len(left)), -1)
        pixels = np.empty((ends[-1], rank, rank), dtype=PRECISION)
        bands = np.empty((ends[-1], one.shape[2]), dtype=PRECISION)

        def fill(n: int) -> None:
            group, here = groups[n], slice(ends[n] - len(groups[n].first), ends[n])
            a, b, gram = group.first, group.second, group.bands(right)
            numbers[a, b] = np.arange(here.start, here.stop)
            pixels[here] = group.pixels(left)
            bands[here] = np.einsum("prn,prn->pn", one[a], gram @ two[b])
            if one is not two:  # the mean of both orders: (a, b) stands for (b, a) as well
                bands[here] += np.einsum("prn,prn->pn", two[a], gram @ one[b])
                bands[here] /= 2

        run(fill, range(len(groups)))
        leverage = np.einsum("wrn,wrn->wn", one, two)
        noise = 1.0 if sides is None else np.einsum("nv,nv->n", *sides).astype(PRECISION)
        return cls(layer, numbers, pixels, bands, leverage, noise)

    def of_pixels(self, windows: np.ndarray, left: np.ndarray, shares: np.ndarray) -> np.ndarray:
        """Return (rows, cols, n) covariances at pixels that all of some windows cover.

        Each pixel is a functional with x_a = w_a e_u: Σ_ab w_a w_b cov_ab. What is given is what
        `Layer.over` returns.
        """
        u, w = self._scaled(windows, left), shares.reshape(len(shares), -1).astype(PRECISION)
        a = np.einsum("wrp,wrp->wp", u, u)
        one, two = _among(len(windows))[:2]
        x_x = w[one] * w[two] * (1 - a[one] - a[two])
        x_p = w * np.sum(w * a, axis=0)
        return self._covariance(windows, u * w[:, None], x_x, x_p).reshape(*shares.shape[1:], -1)

    def of_mean(
        self, windows: np.ndarray, left: np.ndarray, shares: np.ndarray, weights: np.ndarray
    ) -> np.ndarray:
        """Return (n,) covariances of a sum over pixels with weights (rows, cols)."""
        u, x = self._scaled(windows, left), (shares * weights).reshape(len(shares), -1)
        z = np.einsum("wrp,wp->wr", u, x)
        x_p = x @ np.einsum("wrp,wr->wp", u, z).T
        one, two = _among(len(windows))[:2]
        x_x = (x @ x.T - x_p - x_p.T)[one, two]
        z = z[..., None].astype(PRECISION)
        return self._covariance(windows, z, x_x[:, None], x_p.sum(axis=1)[:, None])[0]

    def _scaled(self, windows: np.ndarray, left: np.ndarray) -> np.ndarray:
        """Return (w, rank, pixels) U with its components scaled by their influence."""
        rank = min(left.shape[1], self.pixels.shape[1])
        scale = self.layer.influence[windows, :rank, None].astype(PRECISION)
        flat = left[:, :rank].reshape(len(left), rank, -1)
        return np.multiply(flat, scale, dtype=PRECISION)

    def _covariance(
        self, windows: np.ndarray, z: np.ndarray, x_x: np.ndarray, x_p: np.ndarray
    ) -> np.ndarray:
        """Return (f, n) covariances of functionals that some windows take part in.

        Parameters
        ----------
        windows
            (w,) their numbers.
        z
            (w, rank, f) z_a = U_aᵀx_a.
        x_x
            (pairs, f) x_a·x_b − x_a·p_b − x_b·p_a, for the pairs of `_among`.
        x_p
            (w, f) Σ_b x_a·p_b.
        """
        rank = z.shape[1]
        one, two, orders, members = _among(len(windows))
        pair = self.numbers[windows[one], windows[two]]
        if np.any(pair < 0):
            near = pair >= 0
            one, two, orders, members = one[near], two[near], orders[near], members[:, near]
            pair, x_x = pair[near], x_x[near]
        p_p = np.einsum("prf,prf->pf", z[one], self.pixels[pair][:, :rank, :rank] @ z[two])
        p_q = x_p - members @ p_p
        q_q = x_x + p_p
        covariance = (orders * q_q).T @ self.bands[pair]
        covariance += 2 * p_q.T @ self.leverage[windows]
        covariance += np.sum(orders * p_p, axis=0)[:, None] * self.noise
        return covariance


@lru_cache(maxsize=16)
def _among(count: int) -> tuple[np.ndarray, ...]:
    """Return all pairs a ≤ b among so many windows.

    Returns
    -------
    first, second, orders, members
        (pairs,) a and b; (pairs, 1) how many ordered pairs each stands for, one or two;
        (windows, pairs) one where a window belongs to a pair.

    Examples
    --------
    >>> first, second, orders, members = _among(2)
    >>> first, second, orders.ravel()
    (array([0, 0, 1]), array([0, 1, 1]), array([1., 2., 1.], dtype=float32))
    """
    first, second = np.triu_indices(count)
    orders = np.where(first == second, 1, 2).astype(PRECISION)[:, None]
    numbers = np.arange(count)[:, None]
    members = ((numbers == first) | (numbers == second)).astype(PRECISION)
    return first, second, orders, members


def _on_side(right: np.ndarray, layer: Layer, side: np.ndarray) -> np.ndarray:
    """Return (windows, rank, n) Vᵀr for combinations of bands (n, bands)."""
    side, axis = side.astype(PRECISION), layer.grid.bands
    found = np.empty((*right.shape[:2], len(side)), dtype=PRECISION)
    for k in range(layer.bands.windows.start, layer.bands.windows.stop):
        own = layer.starts[:, 1] == k
        found[own] = right[own] @ side[:, axis.slice(k)].T
    return found
