"""Error covariances of bands at every pixel, of means over many small supports, and of regions.

A support is a set of pixels with weights; the mean over it of a combination of bands is a linear
functional of the estimate, and so is one pixel. All covariances below are those of `pairs`; inner
products of x_a and p_a need U at the pixels of the support alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from sigmacube.core.lowrank.combine import CellWindows, visit_cells
from sigmacube.core.lowrank.factors import Factors
from sigmacube.core.lowrank.pairs import PRECISION, Pairs, pair_products
from sigmacube.core.parallel import ParallelMap
from sigmacube.core.windows import BLOCK, Axis, Cell, Span

__all__ = ["band_covariance", "batch_side", "region_terms", "support_covariance"]


@dataclass(frozen=True, eq=False)
class _Sides:
    """Both sides of some covariances, whitened and of unit length."""

    where: np.ndarray
    """(n,) their positions in the output."""
    first: np.ndarray
    second: np.ndarray
    scale: np.ndarray
    """(n,) product of their lengths."""

    @property
    def noise(self) -> np.ndarray:
        """(n,) covariance of the noise itself."""
        return np.einsum("nv,nv->n", self.first, self.second)


def _by_band_cell(
    factors: Factors, first: np.ndarray, second: np.ndarray
) -> list[tuple[int, Cell, _Sides]]:
    """Whiten the sides, and sort them by the band cell that they lie in."""
    white = [factors.noise.weights_to_white(np.asarray(side, float)) for side in (first, second)]
    length = [np.maximum(np.linalg.norm(side, axis=1), 1e-300) for side in white]
    used, groups = (white[0] != 0) | (white[1] != 0), []
    taken = np.zeros(len(used), dtype=bool)
    for number, cell in enumerate(factors.grid.bands.cells()):
        outside = np.ones(used.shape[1], dtype=bool)
        outside[cell.elements] = False
        where = np.flatnonzero(~taken & ~np.any(used, axis=1, where=outside))
        taken[where] = True
        if len(where):
            one, two = (
                (side / norm[:, None])[where] for side, norm in zip(white, length, strict=True)
            )
            scale = (length[0] * length[1])[where]
            groups.append((number, cell, _Sides(where, one, two, scale)))
    if not taken.all():
        raise ValueError(
            "Invalid combination of bands that different windows hold. Where windows cut the "
            "spectrum, only bands that the same windows cover can be combined pixel by pixel."
        )
    return groups


def band_covariance(
    factors: Factors,
    first: np.ndarray,
    second: np.ndarray,
    noise_variance: np.ndarray | None,
    run: ParallelMap,
) -> np.ndarray:
    """Return (row, col, n) error covariances of combinations of bands at every pixel.

    It goes by the blocks of `combine`, so that a part of a scene has the bits of the whole. NaN
    for blocks that lack windows.

    Parameters
    ----------
    factors
        Factors of all windows, or of those of a part of the scene.
    first, second
        (n, bands) weights of the combinations; covariance number i is that of ``first[i]`` with
        ``second[i]``.
    noise_variance
        (row, col, band cell) variance of kept components of pure noise, or None.
    run
        Parallel map.
    """
    grid = factors.grid
    output = np.full((*grid.cube_shape[:2], len(first)), np.nan)
    groups = _by_band_cell(factors, first, second)
    for block in grid.complete_blocks():
        part, here = factors.select(*block.windows(grid)), block.within(grid.origin)
        for number, cell, sides in groups:
            pairs = Pairs.create(part, cell, run, (sides.first, sides.second))
            image = np.empty((*output[here].shape[:2], len(sides.where)), dtype=PRECISION)

            def fill(
                windows: CellWindows,
                where: tuple[slice, slice],
                pairs: Pairs = pairs,
                image: np.ndarray = image,
            ) -> None:
                image[where] = windows.image(windows.variance(pairs))

            visit_cells(part, block, number, cell, fill, run)
            output[here][..., sides.where] = image * sides.scale
    if noise_variance is not None:
        for number, _, sides in groups:
            kept = noise_variance[..., number, None] * sides.noise
            output[..., sides.where] += kept * sides.scale
    return output


@dataclass(frozen=True, eq=False)
class _Support:
    """Pixels of a support and their weights."""

    rows: np.ndarray
    cols: np.ndarray
    weights: np.ndarray


def support_covariance(
    factors: Factors,
    labels: np.ndarray,
    count: int,
    weights: np.ndarray,
    first: np.ndarray,
    second: np.ndarray,
    noise_variance: np.ndarray | None,
    run: ParallelMap,
    boxes: np.ndarray | None = None,
) -> np.ndarray:
    """Return (supports, n) error covariances of band combinations, averaged over supports.

    Supports are worked off in batches by where they begin in the whole scene, each with the windows
    over it, so that a part of a scene has the bits of the whole.

    Parameters
    ----------
    factors
        Factors of all windows.
    labels
        (row, col) number of the support a pixel belongs to, from 0; negative for none.
    count
        Number of supports.
    weights
        (row, col) weight of each pixel in its support.
    first, second
        (n, bands) weights of the combinations of bands.
    noise_variance
        (row, col, band cell) variance of kept components of pure noise, or None.
    run
        Parallel map.
    boxes
        (supports, 4) first row, end, first col, end of each in the whole scene; those of the pixels
        with a weight by default.
    """
    output = np.zeros((count, len(first)))
    cells = _by_band_cell(factors, first, second)
    supports = _supports(labels, weights)
    boxes = _boxes(supports, count, factors.grid.origin) if boxes is None else boxes
    for numbers, windows in _batches(factors, supports, boxes):
        part = factors.select(*windows)
        down, right = np.subtract(factors.grid.origin, part.grid.origin)
        moved = [
            _Support(own.rows + down, own.cols + right, own.weights)
            for own in (supports[n] for n in numbers)
        ]
        for number, cell, sides in cells:
            pairs = Pairs.create(part, cell, run, (sides.first, sides.second))
            found = run(partial(_of_support, part, part.shares[number], cell, pairs), moved)
            output[np.array(numbers)[:, None], sides.where] = np.array(found) * sides.scale
    if noise_variance is not None:
        inside = labels >= 0
        for number, _, sides in cells:
            power = (weights**2 * noise_variance[..., number])[inside]
            kept = np.bincount(labels[inside], power, count)
            output[:, sides.where] += kept[:, None] * (sides.noise * sides.scale)
    return output


def _supports(labels: np.ndarray, weights: np.ndarray) -> dict[int, _Support]:
    """Return the pixels with a weight, by support."""
    rows, cols = np.nonzero((labels >= 0) & (weights != 0))
    if not len(rows):
        return {}
    order = np.argsort(labels[rows, cols], kind="stable")
    rows, cols = rows[order], cols[order]
    numbers, starts = np.unique(labels[rows, cols], return_index=True)
    return {
        int(number): _Support(r, c, weights[r, c])
        for number, r, c in zip(
            numbers, np.split(rows, starts[1:]), np.split(cols, starts[1:]), strict=True
        )
    }


def _boxes(supports: dict[int, _Support], count: int, origin: tuple[int, int]) -> np.ndarray:
    """Return (supports, 4) first row, end, first col, end in the whole scene."""
    boxes = np.zeros((count, 4), dtype=np.int64)
    for number, own in supports.items():
        ends = [at + np.array([used.min(), used.max() + 1])
                for at, used in zip(origin, (own.rows, own.cols), strict=True)]  # fmt: skip
        boxes[number] = np.concatenate(ends)
    return boxes


def _batches(
    factors: Factors, supports: dict[int, _Support], boxes: np.ndarray
) -> Iterator[tuple[list[int], tuple[Span, Span]]]:
    """Yield supports that begin in the same block, and the windows over all that begin there."""
    axes = (factors.grid.rows, factors.grid.cols)
    keys = boxes[:, [0, 2]] // [batch_side(axis) for axis in axes]
    there = np.zeros(len(boxes), dtype=bool)
    there[list(supports)] = True
    for key in np.unique(keys[there], axis=0):
        # All supports that begin here, masked or not: what is masked must not change the bits.
        here = np.all(keys == key, axis=1) & (boxes[:, 1] > boxes[:, 0])
        low, high = boxes[here].min(axis=0), boxes[here].max(axis=0)
        rows, cols = (
            axis.windows_over(int(low[n]) - axis.origin, int(high[n + 1]) - axis.origin)
            for axis, n in zip(axes, (0, 2), strict=True)
        )
        yield np.flatnonzero(here & there).tolist(), (rows, cols)


def batch_side(axis: Axis) -> int:
    """Return the side of the blocks that supports are batched by.

    Examples
    --------
    >>> batch_side(Axis(length=1000, size=20, step=4))
    40
    """
    return BLOCK * axis.size


def _of_support(
    factors: Factors, shares: np.ndarray, cell: Cell, pairs: Pairs, support: _Support
) -> np.ndarray:
    """Return (n,) covariances of one support."""
    spans, within, inside = [], [], []
    for axis, used in ((factors.grid.rows, support.rows), (factors.grid.cols, support.cols)):
        spans.append(slice(*axis.windows_over(int(used.min()), int(used.max()) + 1)))
        at = used - axis.starts[spans[-1], None]
        inside.append((at >= 0) & (at < axis.size))
        within.append(np.clip(at, 0, axis.size - 1))
    # (rows, cols, pixels, ...) of the windows around; anywhere in a window that lacks the pixel.
    rows, cols = (np.arange(span.start, span.stop) for span in spans)
    i, j, r, c = rows[:, None, None], cols[None, :, None], within[0][:, None], within[1][None]
    covers = inside[0][:, None] & inside[1][None]
    windows = (spans[0], slice(0, shares.shape[1]), spans[1])
    rank = pairs.influence.shape[3]
    x = shares[i, :, j, r, c] * (covers * support.weights)[..., None]
    u = factors.left[i, cell.windows, j, :rank, r, c] * covers[..., None, None]
    x = x.transpose(0, 3, 1, 2).reshape(-1, len(support.rows))
    u = u.transpose(0, 3, 1, 4, 2).reshape(len(x), rank, -1)
    u *= pairs.influence[windows].reshape(len(x), rank, 1)
    z = np.einsum("wrp,wp->wr", u, x)
    p = np.einsum("wrp,wr->wp", u, z)
    together, x_p = pairs.together(windows), x @ p.T
    x_x = (x @ x.T - x_p - x_p.T)[together.first, together.second]
    return pairs.covariance(
        windows, z[..., None].astype(PRECISION), x_x[:, None], x_p.sum(axis=1)[:, None]
    )[0]


def region_terms(factors: Factors, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the error covariance of Σ_u weights_u · spectrum_u in whitened space.

    Parameters
    ----------
    factors
        Factors of all windows.
    weights
        (row, col) weights; 1 / count over a region for its mean.

    Returns
    -------
    share, low_rank
        (bands,) |p|², and (bands, bands) Σ_a (p·q_a) 2 P_a + Σ_ab (q_a·q_b) P_a P_b. The covariance
        is diag(share) + low_rank.
    """
    grid = factors.grid
    rows, cols = (np.flatnonzero(weights.any(axis=axis)) for axis in (1, 0))
    if not len(rows):
        return np.zeros(grid.bands.length), np.zeros((grid.bands.length,) * 2)
    spans = [axis.windows_over(int(used[0]), int(used[-1]) + 1)
             for axis, used in ((grid.rows, rows), (grid.cols, cols))]  # fmt: skip
    part = factors.select(spans[0], spans[1])
    top, side = np.subtract(part.grid.origin, grid.origin)
    inside = weights[top : top + part.grid.rows.length, side : side + part.grid.cols.length]
    return _region(part, inside)


def _region(factors: Factors, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return `region_terms` of factors that all take part."""
    grid, cells = factors.grid, factors.grid.bands.cells()
    v = factors.right * factors.influence[..., None]
    q, p = _passed_on(factors, weights)
    share = np.repeat(np.einsum("chw,chw->c", p, p), np.diff(grid.bands.edges))
    low_rank = np.zeros((grid.bands.length,) * 2)
    on_bands = np.zeros((*v.shape[:4], grid.bands.length))
    for k in range(grid.shape[2]):
        on_bands[:, k, ..., grid.bands.slice(k)] = v[:, k]
    for number, cell in enumerate(cells):
        # Half of the sum: the other half is its transpose.
        half = np.zeros_like(on_bands)
        for i, j in np.ndindex(q.shape[0], q.shape[2]):
            level = np.einsum("khw,chw->kc", q[i, :, j, number], p[(..., *grid.slices(i, j)[:2])])
            half[i, :, j] = on_bands[i, :, j] * _by_band(grid.bands, level)[:, None]
        for i in range(grid.shape[0]):
            for pair in pair_products(q, v, grid, i):
                a, b = pair.first, pair.second
                level = _by_band(grid.bands, pair.pixels[:, number] / 2)
                half[a] += level[:, None] * (pair.bands @ on_bands[b])
                if pair.offset != (0, 0, 0):  # windows b and a
                    level = _by_band(grid.bands, pair.pixels[..., number] / 2)
                    half[b] += level[:, None] * (pair.bands.swapaxes(1, 2) @ on_bands[a])
        flat = half.reshape(-1, grid.bands.length)
        low_rank[cell.elements] = on_bands.reshape(flat.shape)[:, cell.elements].T @ flat
    return share, low_rank + low_rank.T


def _by_band(axis: Axis, values: np.ndarray) -> np.ndarray:
    """Return (..., band cells) for every band."""
    return np.repeat(values, np.diff(axis.edges), axis=-1)


def _passed_on(factors: Factors, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return q_a of all windows (I, K, J, band cells, rows, cols), and p (band cells, row, col).

    Shares of windows differ between band cells; they are zero where a window lacks a cell.
    """
    grid, cells = factors.grid, factors.grid.bands.cells()
    shape = (*factors.left.shape[:3], len(cells), *factors.left.shape[4:])
    q, p = np.zeros(shape), np.zeros((len(cells), *grid.cube_shape[:2]))
    for number, cell in enumerate(cells):
        for i, j in np.ndindex(shape[0], shape[2]):
            where = grid.slices(i, j)[:2]
            scale = factors.influence[i, cell.windows, j, :, None, None]
            u = factors.left[i, cell.windows, j] * scale
            x = factors.shares[number][i, :, j] * weights[where]
            passed = np.einsum("krhw,kr->khw", u, np.einsum("krhw,khw->kr", u, x))
            q[i, cell.windows, j, number] = x - passed
            p[(number, *where)] += passed.sum(axis=0)
    return q, p
