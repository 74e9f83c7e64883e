"""Combined estimate of overlapping windows and its variance, exact to first order.

The work goes by cells, the pixels that the same windows cover: inside a cell the sum over pairs of
windows is one matrix product (pixels × pairs)(pairs × bands). See `pairs` for the formula.

Windows are combined in blocks that are anchored to the scene, each from the windows over it alone.
BLAS rounds differently for matrices of different shapes; this way every product has the same shape
and the same numbers in it, whatever part of the scene is computed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from sigmacube.core.lowrank.factors import Factors
from sigmacube.core.lowrank.incomplete import correct
from sigmacube.core.lowrank.pairs import PRECISION, Layer, Pairs
from sigmacube.core.parallel import ParallelMap
from sigmacube.core.windows import Block, Cell

__all__ = ["Combined", "combine", "visit_cells"]


@dataclass(eq=False)
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
    correlation: np.ndarray | None = None,
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
        Correlation of kept components of pure noise (`kept_noise`); None where none are kept.
    blocks
        Which blocks of the grid to fill; all by default. All windows that cover them must be
        there. Blocks are computed one by one, so that their values do not depend on what else is
        computed.
    dtype
        Of the variance, so that its array can serve as the standard deviation's.
    """
    grid = factors.grid
    shape, cells = grid.cube_shape, grid.bands.cells()
    out = Combined(np.empty(shape), None, None)
    if uncertainty:
        out.variance, out.noise_variance = (
            np.empty(shape, dtype),
            np.zeros((*shape[:2], len(cells))),
        )
    for block in grid.blocks() if blocks is None else blocks:
        part, here = factors.select(*block.windows(grid)), block.within(grid.origin)
        for number, bands in enumerate(cells):
            layer = Layer.create(part, number, bands)
            exact = uncertainty and overlap == "exact"
            pairs = Pairs.create(part, layer, run) if exact else None
            rho = correlation if exact and part.noise_power.any() else None
            _fill(out, here, block, part, number, layer, pairs, rho, run)
        if part.kept:
            correct(out, here, part, block.within(part.grid.origin), run)
    return out


def _fill(
    out: Combined,
    here: tuple[slice, slice],
    block: Block,
    part: Factors,
    number: int,
    layer: Layer,
    pairs: Pairs | None,
    rho: np.ndarray | None,
    run: ParallelMap,
) -> None:
    """Write the estimate, and its variance where it is wanted, of one block and band cell."""
    bands = layer.bands.elements
    unit, estimate = part.noise.std[bands], out.estimate[here][..., bands]
    variance = None if out.variance is None else out.variance[here][..., bands]

    def fill(windows: np.ndarray, left: np.ndarray, w: np.ndarray, where: tuple) -> None:
        estimate[where] = _mean(layer, windows, left, w) * unit
        if variance is None or out.noise_variance is None:
            return
        if pairs is None:
            variance[where] = _ratio_variance(layer, windows, left, w)
            return
        found = pairs.of_pixels(windows, left, w)
        if rho is not None:
            extra = _noise_variance(layer, windows, w, rho)
            found += extra[..., None]
            out.noise_variance[here][(*where, number)] = extra
        variance[where] = found

    visit_cells(layer, block, fill, run)


def visit_cells(layer: Layer, block: Block, visit: Callable[..., None], run: ParallelMap) -> None:
    """Visit all cells of a block, rows of cells in parallel.

    ``visit(windows, left, shares, where)`` gets what `Layer.over` finds for a cell, and its pixels
    in the block.
    """
    top, side = block.within(layer.grid.origin)
    columns = layer.grid.cols.cells(side.start, side.stop)

    def visit_row(rows: Cell) -> None:
        for cols in columns:
            found = layer.over(rows.elements, cols.elements)
            visit(*found, (rows.within(top.start), cols.within(side.start)))

    run(visit_row, layer.grid.rows.cells(top.start, top.stop))


def _mean(layer: Layer, windows: np.ndarray, left: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Return the weighted mean Σ w_a U_a d_a V_aᵀ of the windows, over the noise, of a cell."""
    rank = left.shape[1]
    pixels = left * layer.values[windows, :rank, None, None]
    pixels *= w[:, None]
    rows = layer.output[windows, :rank]
    flat = pixels.reshape(len(windows) * rank, -1).T @ rows.reshape(-1, rows.shape[2])
    return flat.reshape(*w.shape[1:], -1)


def _ratio_variance(
    layer: Layer, windows: np.ndarray, left: np.ndarray, w: np.ndarray
) -> np.ndarray:
    """Return the paper's Σ_ab w_a w_b η_ab σ_a σ_b with σ² = a_u + b_v, of a cell."""
    a = np.einsum("wrhc,wrhc->whc", left, left)
    b = np.einsum("wrn,wrn->wn", layer.output[windows], layer.output[windows])
    std = np.sqrt(a[..., None] + b[:, None, None]) * w[..., None]
    sizes = np.array([layer.grid.rows.size, layer.grid.bands.size, layer.grid.cols.size])
    eta = np.prod(np.maximum(sizes - layer.apart(windows), 0) / sizes, axis=-1)
    flat = std.reshape(len(std), -1)
    return np.einsum("wx,wx->x", eta @ flat, flat).reshape(std.shape[1:])


def _noise_variance(
    layer: Layer, windows: np.ndarray, w: np.ndarray, correlation: np.ndarray
) -> np.ndarray:
    """Return Σ_ab w_a w_b ρ_ab √(q_a q_b) of kept components of pure noise, of a cell."""
    y = (w * np.sqrt(layer.noise_power[windows])[:, None, None]).reshape(len(w), -1)
    rho = correlation[tuple(np.moveaxis(layer.apart(windows), -1, 0))]
    return np.einsum("wp,wp->p", rho @ y, y).reshape(w.shape[1:])
