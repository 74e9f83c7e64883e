"""Combined estimate of overlapping windows and its variance, exact to first order.

The work goes by cells, the pixels that the same windows cover: inside a cell the sum over pairs of
windows is one matrix product (pixels × pairs)(pairs × bands). See `pairs` for the formula.

Windows are combined in blocks that are anchored to the scene, each from the windows over it alone.
BLAS rounds differently for matrices of different shapes; this way every product has the same shape
and the same numbers in it, whatever part of the scene is computed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from sigmacube.core.lowrank.factors import Factors
from sigmacube.core.lowrank.pairs import PRECISION, Layer, Overlap, Pairs, overlaps
from sigmacube.core.lowrank.solvers.weighted import is_nearly_complete, leverages
from sigmacube.core.parallel import ParallelMap
from sigmacube.core.windows import Block, Cell, Span, WindowGrid

SMALLEST_VARIANCE = 1e-9
# Rows of windows that noise is pooled over, and windows side by side along an axis.
SAMPLED_ROWS = 8
POOLED = 8


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
        Correlation of kept components of pure noise, see `pool_noise_correlation`; None where none
        are kept.
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
        out.variance = np.empty(shape, dtype)
        out.noise_variance = np.zeros((*shape[:2], len(cells)))
    for block in grid.blocks() if blocks is None else blocks:
        part, here = factors.select(*block.windows(grid)), block.within(grid.origin)
        for number in range(len(cells)):
            _fill(out, here, block, part, number, overlap, correlation, run)
        if part.kept:
            correct(out, here, part, block.within(part.grid.origin), run)
    return out


def _fill(
    out: Combined,
    here: tuple[slice, slice],
    block: Block,
    part: Factors,
    number: int,
    overlap: str,
    correlation: np.ndarray | None,
    run: ParallelMap,
) -> None:
    """Write the estimate, and its variance where it is wanted, of one block and band cell."""
    layer = Layer.create(part, number, part.grid.bands.cells()[number])
    exact = out.variance is not None and overlap == "exact"
    pairs = Pairs.create(part, layer, run) if exact else None
    rho = correlation if exact and part.noise_power.any() else None
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


def correct(
    out: Combined,
    here: tuple[slice, slice],
    factors: Factors,
    inside: tuple[slice, slice],
    run: ParallelMap,
) -> None:
    """Correct the mean over windows and its variance for elements that they lack.

    Windows rest on the elements they kept, Ω. The leverages of a band and of a pixel then are
    ρ_uv = V_vᵀ(VᵀΩ_uV)⁻¹V_v and γ_uv = U_uᵀ(UᵀΩ_vU)⁻¹U_u in place of b_v and a_u. The variance of
    one window is κ(ρ + γ − ργ) for a kept element and κ(ρ + γ + ργ) for one that was left out:
    there the errors along the row and along the column rest on different elements. With f² this
    over a + b − ab, and the correlation of windows that of the complete case,
    var = Σ_ab w_a w_b cov_ab f_a f_b = f̄² Σ_ab w_a w_b cov_ab up to second order in the differences
    of f between the windows over an element, f̄ their mean.

    Windows that do not know an element give zero for it, so the mean is divided by the share of
    the others. Kept components of pure noise are observed, not predicted: their variance is left
    as it is, and the gap factor is that of both together.

    The pixels ``here`` of ``out`` are corrected in place; they lie ``inside`` what the factors, all
    windows over them, cover.
    """
    shape, grid = out.estimate.shape, factors.grid
    if out.left_out is None or out.gap_factor is None:
        out.left_out, out.gap_factor = np.zeros(shape, bool), np.ones(shape, np.float32)
    factor, support, left_out = sums = np.zeros((3, *grid.cube_shape), dtype=np.float32)
    # Rows of windows that do not overlap run in parallel; the order of sums stays the same.
    stride = grid.rows.reach + 1
    for first in range(min(stride, len(grid.rows))):
        run(
            lambda i: _add_row(sums, factors, i, out.variance is not None),
            range(first, len(grid.rows), stride),
        )
    known = support > 0
    np.divide(factor, support, out=factor, where=known)
    factor[~known] = np.nan
    with np.errstate(invalid="ignore", divide="ignore"):
        out.estimate[here] /= np.where(known, support, np.nan)[inside]
    out.left_out[here], out.gap_factor[here] = left_out[inside] > 0.5, factor[inside]
    if out.variance is not None and out.noise_variance is not None:
        observed = np.repeat(out.noise_variance[here], np.diff(grid.bands.edges), axis=2)
        variance, before = out.variance[here], out.variance[here].copy()
        variance -= observed
        variance *= np.square(factor[inside])
        variance += observed
        if np.any(observed):
            out.gap_factor[here] = np.sqrt(variance / np.maximum(before, SMALLEST_VARIANCE))


def _add_row(sums: np.ndarray, factors: Factors, i: int, uncertainty: bool) -> None:
    """Add what one row of windows contributes to std factor, support and what is left out."""
    grid = factors.grid
    gap_factor, support, left_out = sums
    for k, j in np.ndindex(*factors.left.shape[1:3]):
        where, window = grid.slices(i, j, k), (i, k, j)
        weight, own = factors.share_of_elements(window).astype(np.float32), factors.kept.get(window)
        kept = None if own is None else own.elements()
        if own is None or kept is None:
            support[where] += weight
            sandwich = 1.0 if own is None else own.sandwich
            gap_factor[where] += weight * np.float32(np.sqrt(sandwich))
            continue
        shape = weight.shape
        left_out[where] += weight * ~kept.reshape(shape)
        known = kept.any(axis=1, keepdims=True) & own.known_bands()
        weight = weight * known.reshape(shape)
        support[where] += weight
        if uncertainty:
            factor = _std_factor(factors, window, kept, own.sandwich)
            gap_factor[where] += weight * factor.reshape(shape)


def _std_factor(
    factors: Factors, window: tuple[int, int, int], kept: np.ndarray, sandwich: float
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
        factor = np.full(kept.shape, np.sqrt(sandwich), dtype=np.float32)
        alone = np.sqrt(np.maximum((1 - a) * (1 - b), 1e-2))  # an element predicted by all others
        np.divide(factor, alone, out=factor, where=~kept)
        return factor
    rho, gamma = leverages(left, factors.singular_values[window][:rank], right, kept)
    both = rho * gamma
    variance = rho + gamma + np.where(kept, -both, both)
    variance *= np.float32(sandwich) / np.maximum(a + b - a * b, SMALLEST_VARIANCE)
    return np.sqrt(np.maximum(variance, SMALLEST_VARIANCE))


def pool_noise_correlation(parts: Iterable[Factors], run: ParallelMap) -> np.ndarray:
    """Pool ρ = Σ_shared N_a N_b / (shared elements · √(q_a q_b)) over pairs with equal offset.

    Where a rank above the signal's is asked for, windows keep components below the noise edge. They
    carry no signal, so what is observed of them is their error; its correlation between overlapping
    windows depends on the sizes of window and overlap and on the number of components alone.

    N = U D Vᵀ of the noise components alone, so Σ_shared N_a N_b is the sum over the elementwise
    product of (U D)_aᵀ(U D)_b over shared pixels with V_aᵀV_b over shared bands. A sample of the
    window rows, the parts that `sampled_regions` names, gives thousands of pairs for every offset.
    What is returned is (row offset, band offset, col offset), absolute offsets in elements.
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
