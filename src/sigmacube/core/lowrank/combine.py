"""Combined estimate of overlapping windows and its variance, exact to first order.

The work goes by cells, the pixels that the same windows cover: inside a cell the sum over pairs of
windows is one matrix product (pixels × pairs)(pairs × bands). See `pairs` for the formula.

Windows are combined in blocks that are anchored to the scene, each from the windows over it alone.
BLAS rounds differently for matrices of different shapes; this way every product has the same shape
and the same numbers in it, whatever part of the scene is computed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from sigmacube.core.lowrank.factors import Factors
from sigmacube.core.lowrank.incomplete import Incompleteness, incompleteness
from sigmacube.core.lowrank.kept_noise import NoiseCorrelation
from sigmacube.core.lowrank.pairs import PRECISION, Pairs, Windows, rows_on_cell
from sigmacube.core.parallel import ParallelMap
from sigmacube.core.windows import Block, Cell, WindowGrid

__all__ = ["CellWindows", "Combined", "combine", "visit_cells"]


@dataclass(frozen=True, eq=False)
class Combined:
    """The mean over windows; arrays (row, col, band) unless said otherwise."""

    estimate: np.ndarray
    """Estimate in the units of the data."""
    variance: np.ndarray | None
    """Variance relative to the noise variance of its band."""
    noise_variance: np.ndarray | None
    """(row, col, band cell) the part of it that comes from kept components of pure noise."""
    left_out: np.ndarray | None = None
    """True where the windows left an element out; None where they rest on all elements."""
    gap_factor: np.ndarray | None = None
    """Factor on the standard deviation for what the windows lack; None where that is nothing."""


def combine(
    factors: Factors,
    *,
    overlap: str,
    uncertainty: bool,
    run: ParallelMap,
    correlation: NoiseCorrelation | None = None,
    blocks: Sequence[Block] | None = None,
    dtype: np.dtype | type = PRECISION,
) -> Combined:
    """Return the weighted mean of all windows, its variance, and what they rest on.

    Parameters
    ----------
    factors
        Factors of all windows.
    overlap
        ``"exact"``, or ``"ratio"`` for the paper's form.
    uncertainty
        False leaves the variances out.
    run
        ``run(function, items)`` applies a function to every item, in parallel or not.
    correlation
        Correlation of kept components of pure noise; None where none are kept.
    blocks
        Which blocks of the grid to fill; all by default. All windows that cover them must be
        there. Blocks are computed one by one, so that their values do not depend on what else is
        computed.
    dtype
        Of the variance, so that its array can serve as the standard deviation's.
    """
    grid = factors.grid
    shape, cells = grid.cube_shape, len(grid.bands.count)
    out = Combined(np.empty(shape), None, None)
    if uncertainty:
        variance, noise_variance = np.empty(shape, dtype), np.zeros((*shape[:2], cells))
        out = Combined(out.estimate, variance, noise_variance)
    exact = uncertainty and overlap == "exact"
    for block in grid.blocks() if blocks is None else blocks:
        part, here = factors.select(*block.windows(grid)), block.within(grid.origin)
        kept_noise = correlation if exact and part.noise_power.any() else None
        for number, bands in enumerate(grid.bands.cells()):
            pairs = Pairs.create(part, bands, run) if exact else None
            _fill(out, here, block, part, number, bands, pairs, kept_noise, run)
        lacking = incompleteness(part, run, uncertainty=uncertainty)
        if lacking is not None:
            out = _corrected(out, here, lacking.of(block.within(part.grid.origin)), grid)
    return out


def _fill(
    out: Combined,
    here: tuple[slice, slice],
    block: Block,
    part: Factors,
    number: int,
    bands: Cell,
    pairs: Pairs | None,
    kept_noise: NoiseCorrelation | None,
    run: ParallelMap,
) -> None:
    """Write the estimate, and its variance where it is wanted, of one block and band cell."""
    output, unit = rows_on_cell(part, bands), part.noise.std[bands.elements]
    estimate = out.estimate[here][..., bands.elements]
    variance = None if out.variance is None else out.variance[here][..., bands.elements]

    def fill(cell: CellWindows, where: tuple[slice, slice]) -> None:
        estimate[where] = cell.image(cell.mean(output)) * unit
        if variance is None or out.noise_variance is None:
            return
        found = cell.ratio_variance(output) if pairs is None else cell.variance(pairs)
        if kept_noise is not None:
            extra = cell.noise_variance(kept_noise)
            found += extra[:, None]
            out.noise_variance[here][(*where, number)] = cell.image(extra)
        variance[where] = cell.image(found)

    visit_cells(part, block, number, bands, fill, run)


def _corrected(
    out: Combined, here: tuple[slice, slice], lacking: Incompleteness, grid: WindowGrid
) -> Combined:
    """Correct a block for elements that its windows lack."""
    if out.left_out is None or out.gap_factor is None:
        shape = grid.cube_shape
        out = replace(out, left_out=np.zeros(shape, bool), gap_factor=np.ones(shape, np.float32))
        return _corrected(out, here, lacking, grid)
    variance, extra = (None if a is None else a[here] for a in (out.variance, out.noise_variance))
    lacking.apply(out.estimate[here], variance, extra, np.diff(grid.bands.edges))
    out.left_out[here], out.gap_factor[here] = lacking.left_out, lacking.gap_factor
    return out


def visit_cells(
    factors: Factors,
    block: Block,
    number: int,
    bands: Cell,
    visit: Callable[[CellWindows, tuple[slice, slice]], None],
    run: ParallelMap,
) -> None:
    """Call ``visit(windows over the cell, its pixels in the block)`` for all cells of a block.

    Parameters
    ----------
    factors
        Of all windows over the block.
    block
        The block.
    number, bands
        A cell of the band axis.
    visit
        Called from several threads.
    run
        Parallel map, over rows of cells.
    """
    shares = factors.shares[number]
    top, side = block.within(factors.grid.origin)
    columns = factors.grid.cols.cells(side.start, side.stop)

    def visit_row(rows: Cell) -> None:
        for cols in columns:
            cell = CellWindows.gather(factors, shares, rows, bands, cols)
            visit(cell, (rows.within(top.start), cols.within(side.start)))

    run(visit_row, factors.grid.rows.cells(top.start, top.stop))


@dataclass(frozen=True, eq=False)
class CellWindows:
    """The windows over one cell. Letters in shapes: w windows, r rank, p pixels, n bands."""

    factors: Factors
    windows: Windows
    """Rows, band windows and columns of the windows over the cell."""
    layer: Windows
    """The same in arrays that hold the band windows of the cell alone."""
    shape: tuple[int, int]
    """Rows and columns of the cell."""
    left: np.ndarray
    """(w, r, p) U."""
    shares: np.ndarray
    """(w, p) shares of the windows in the mean."""

    @classmethod
    def gather(
        cls, factors: Factors, shares: np.ndarray, rows: Cell, bands: Cell, cols: Cell
    ) -> CellWindows:
        """Return what the windows over a cell hold at its pixels; shares are of a band cell."""
        grid, windows = factors.grid, (rows.windows, bands.windows, cols.windows)
        rank = max(int(factors.ranks[windows].max()), 1)
        shape = tuple(cell.elements.stop - cell.elements.start for cell in (rows, cols))
        counts = tuple(part.stop - part.start for part in windows)
        left, share = np.empty((*counts, rank, *shape)), np.empty((*counts, *shape))
        for n, i in enumerate(range(rows.windows.start, rows.windows.stop)):
            own_rows = rows.within(int(grid.rows.starts[i]))
            for m, j in enumerate(range(cols.windows.start, cols.windows.stop)):
                own_cols = cols.within(int(grid.cols.starts[j]))
                left[n, :, m] = factors.left[i, bands.windows, j, :rank, own_rows, own_cols]
                share[n, :, m] = shares[i, :, j, own_rows, own_cols]
        n_pixels = shape[0] * shape[1]
        return cls(
            factors,
            windows,
            (rows.windows, slice(0, counts[1]), cols.windows),
            (shape[0], shape[1]),
            left.reshape(-1, rank, n_pixels),
            share.reshape(-1, n_pixels),
        )

    def image(self, values: np.ndarray) -> np.ndarray:
        """Return (p, ...) as (row, col, ...)."""
        return values.reshape(*self.shape, *values.shape[1:])

    def _of(self, array: np.ndarray) -> np.ndarray:
        """Pick (I, K, J, ...) for the windows over the cell: (w, ...)."""
        found = array[self.windows]
        return found.reshape(len(self.shares), *found.shape[3:])

    def mean(self, output: np.ndarray) -> np.ndarray:
        """Return the weighted mean Σ w_a U_a d_a V_aᵀ of the windows, over the noise, (p, n).

        ``output`` are the rows of V on the cell's bands, see `rows_on_cell`.
        """
        rank = self.left.shape[1]
        pixels = self.left * self._of(self.factors.singular_values)[:, :rank, None]
        pixels *= self.shares[:, None]
        rows = output[self.layer][..., :rank, :].reshape(-1, output.shape[-1])
        return pixels.reshape(len(rows), -1).T @ rows

    def variance(self, pairs: Pairs) -> np.ndarray:
        """Return Σ_ab w_a w_b cov_ab, (p, n): pixels are functionals with x_a = w_a e_u."""
        windows, w = self.layer, self.shares.astype(PRECISION)
        scale = pairs.influence[windows].reshape(len(w), -1)[:, : self.left.shape[1]]
        u = np.multiply(self.left[:, : scale.shape[1]], scale[..., None], dtype=PRECISION)
        a = np.einsum("wrp,wrp->wp", u, u)
        together = pairs.together(windows)
        one, two = together.first, together.second
        x_x = w[one] * w[two] * (1 - a[one] - a[two])
        x_p = w * np.sum(w * a, axis=0)
        return pairs.covariance(windows, u * w[:, None], x_x, x_p)

    def ratio_variance(self, output: np.ndarray) -> np.ndarray:
        """Return the paper's Σ_ab w_a w_b η_ab σ_a σ_b with σ² = a_u + b_v, (p, n)."""
        v = output[self.layer].reshape(len(self.shares), *output.shape[3:])
        a = np.einsum("wrp,wrp->wp", self.left, self.left)
        b = np.einsum("wrn,wrn->wn", v, v)
        std = np.sqrt(a[..., None] + b[:, None]) * self.shares[..., None]
        flat = std.reshape(len(std), -1)
        grid = self.factors.grid
        eta = np.ones((len(std), len(std)))
        for axis, at in zip((grid.rows, grid.bands, grid.cols), self._positions(), strict=True):
            eta *= axis.overlap(at[:, None], at) / axis.size
        return np.einsum("wx,wx->x", eta @ flat, flat).reshape(std.shape[1:])

    def noise_variance(self, correlation: NoiseCorrelation) -> np.ndarray:
        """Return the variance of kept components of pure noise, (p,)."""
        y = self.shares * np.sqrt(self._of(self.factors.noise_power))[:, None]
        rho = correlation.between(self.factors.grid, *self._positions())
        return np.einsum("wp,wp->p", rho @ y, y)

    def _positions(self) -> list[np.ndarray]:
        """Return (w,) the window row, band window and window column of the windows."""
        ranges = (np.arange(part.start, part.stop) for part in self.windows)
        return [at.ravel() for at in np.meshgrid(*ranges, indexing="ij")]
