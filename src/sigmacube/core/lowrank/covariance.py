"""Error covariances of bands at every pixel, of means over many small supports, and of regions.

A support is a set of pixels with weights; the mean over it of a combination of bands is a linear
functional of the estimate, and so is one pixel. All covariances below are those of `pairs`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from scipy import ndimage

from sigmacube.core.errors import PixelSets
from sigmacube.core.lowrank.combine import visit_cells
from sigmacube.core.lowrank.factors import Factors
from sigmacube.core.lowrank.pairs import PRECISION, Layer, Pairs, overlaps
from sigmacube.core.parallel import ParallelMap
from sigmacube.core.windows import BLOCK, Axis, Cell, Span

# Pairs of windows of a region that are multiplied together.
AT_ONCE = 1000


@dataclass(frozen=True, eq=False)
class _Combinations:
    """Both sides of covariances of bands that one cell of the band axis holds."""

    number: int
    """Of the band cell."""
    cell: Cell
    where: np.ndarray
    """(n,) positions of the covariances in the output."""
    sides: tuple[np.ndarray, np.ndarray]
    """(n, bands) each, whitened and of unit length."""
    scale: np.ndarray
    """(n,) product of their lengths."""

    def kept(self, power: np.ndarray) -> np.ndarray:
        """Return (..., n) what kept pure noise of a variance (...) adds to the covariances."""
        return power[..., None] * (np.einsum("nv,nv->n", *self.sides) * self.scale)


def _by_band_cell(factors: Factors, first: np.ndarray, second: np.ndarray) -> list[_Combinations]:
    """Sort the sides, weights on whitened bands, by the band cell that they lie in."""
    white = (first, second)
    length = [np.maximum(np.linalg.norm(side, axis=1), 1e-300) for side in white]
    used, groups = (white[0] != 0) | (white[1] != 0), []
    taken = np.zeros(len(used), dtype=bool)
    for number, cell in enumerate(factors.grid.bands.cells()):
        outside = np.ones(used.shape[1], dtype=bool)
        outside[cell.elements] = False
        where = np.flatnonzero(~taken & ~np.any(used, axis=1, where=outside))
        taken[where] = True
        if len(where):
            one, two = ((side / norm[:, None])[where]
                        for side, norm in zip(white, length, strict=True))  # fmt: skip
            scale = (length[0] * length[1])[where]
            groups.append(_Combinations(number, cell, where, (one, two), scale))
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

    Number i is that of ``first[i]`` with ``second[i]``, both (n, whitened bands);
    ``noise_variance`` is (row, col, band cell) that of kept components of pure noise, or None. It
    goes by the blocks of `combine`, so that a part of a scene has the bits of the whole. NaN for
    blocks that lack windows.
    """
    grid = factors.grid
    output = np.full((*grid.cube_shape[:2], len(first)), np.nan)
    groups = _by_band_cell(factors, first, second)
    for block in grid.complete_blocks():
        part, here = factors.select(*block.windows(grid)), block.within(grid.origin)
        for group in groups:
            layer = Layer.create(part, group.number, group.cell)
            pairs = Pairs.create(part, layer, run, group.sides)
            image = np.empty((*output[here].shape[:2], len(group.where)), dtype=PRECISION)

            visit_cells(layer, block, partial(_fill, pairs, image), run)
            output[here][..., group.where] = image * group.scale
    if noise_variance is not None:
        for group in groups:
            output[..., group.where] += group.kept(noise_variance[..., group.number])
    return output


def _fill(pairs: Pairs, image: np.ndarray, *cell: Any) -> None:
    """Write the covariances of one cell into an image of its block."""
    *windows, where = cell
    image[where] = pairs.of_pixels(*windows)


def support_covariance(
    factors: Factors,
    sets: PixelSets,
    first: np.ndarray,
    second: np.ndarray,
    noise_variance: np.ndarray | None,
    run: ParallelMap,
) -> np.ndarray:
    """Return (supports, n) error covariances of band combinations, summed over sets of pixels.

    The combinations and ``noise_variance`` are those of `band_covariance`. Supports are worked off
    in batches by where they begin in the whole scene, each with the windows over it, so that a part
    of a scene has the bits of the whole.
    """
    weights, count = sets.weights, sets.count
    output = np.zeros((count, len(first)))
    groups = _by_band_cell(factors, first, second)
    labels = np.where(weights != 0, sets.labels, -1)
    own = boxes_of(labels, count)
    for numbers, windows in _batches(factors, own, sets.boxes):
        part = factors.select(*windows)
        shift = np.repeat(np.subtract(factors.grid.origin, part.grid.origin), 2)
        supports = [_support(labels, weights, n, own[n], shift) for n in numbers]
        for group in groups:
            layer = Layer.create(part, group.number, group.cell)
            pairs = Pairs.create(part, layer, run, group.sides)
            found = np.array(run(partial(_of_support, layer, pairs), supports))
            output[np.array(numbers)[:, None], group.where] = found * group.scale
    if noise_variance is not None:
        inside = labels >= 0
        for group in groups:
            power = (weights**2 * noise_variance[..., group.number])[inside]
            output[:, group.where] += group.kept(np.bincount(labels[inside], power, count))
    return output


_Support = tuple[slice, slice, np.ndarray]
"""Rows and columns of a box, and weights (rows, cols) in it."""


def _support(
    labels: np.ndarray, weights: np.ndarray, number: int, box: np.ndarray, shift: np.ndarray
) -> _Support:
    """Return a support, its box moved to another origin."""
    here = np.s_[box[0] : box[1], box[2] : box[3]]
    top, bottom, left, right = (box + shift).tolist()
    own = np.where(labels[here] == number, weights[here], 0.0)
    return slice(top, bottom), slice(left, right), own


def _of_support(layer: Layer, pairs: Pairs, support: _Support) -> np.ndarray:
    """Return (n,) covariances of one support."""
    rows, cols, weights = support
    return pairs.of_mean(*layer.over(rows, cols), weights)


def boxes_of(labels: np.ndarray, count: int) -> np.ndarray:
    """Return (supports, 4) first row, end, first col, end of labels (row, col); zero for none.

    Examples
    --------
    >>> boxes_of(np.array([[-1, 1, 1], [-1, -1, 1]]), 2).tolist()
    [[0, 0, 0, 0], [0, 2, 1, 3]]
    """
    boxes = np.zeros((count, 4), dtype=np.int64)
    for number, found in enumerate(ndimage.find_objects(labels + 1, count)):
        if found is not None:
            boxes[number] = [end for part in found for end in (part.start, part.stop)]
    return boxes


def _batches(
    factors: Factors, own: np.ndarray, boxes: np.ndarray | None
) -> Iterator[tuple[list[int], tuple[Span, Span]]]:
    """Yield supports that begin in the same block, and the windows over all that begin there."""
    axes = (factors.grid.rows, factors.grid.cols)
    there = own[:, 1] > own[:, 0]
    if boxes is None:
        boxes = own + np.where(there[:, None], np.repeat(factors.grid.origin, 2), 0)
    keys = boxes[:, [0, 2]] // [batch_side(axis) for axis in axes]
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


def region_terms(factors: Factors, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return share and low_rank: diag(share) + low_rank is the covariance of Σ_u w_u · spectrum_u.

    In whitened space, for weights (row, col): (bands,) |p|², and (bands, bands)
    Σ_a (p·q_a) 2 P_a + Σ_ab (q_a·q_b) P_a P_b.
    """
    grid = factors.grid
    if not np.any(weights):
        return np.zeros(grid.bands.length), np.zeros((grid.bands.length,) * 2)
    rows, cols = ndimage.find_objects((weights != 0).astype(int))[0]
    part = factors.select(
        grid.rows.windows_over(rows.start, rows.stop), grid.cols.windows_over(cols.start, cols.stop)
    )
    top, side = np.subtract(part.grid.origin, grid.origin)
    inside = weights[top : top + part.grid.rows.length, side : side + part.grid.cols.length]
    return _region(part, inside)


def _region(factors: Factors, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return `region_terms` of factors that all take part.

    Shares of windows differ between cells c of the band axis, so p and q_a have one for each; in
    rᵀP_a P_b r' the cell of r goes with q_a and that of r' with q_b.
    """
    grid, n_bands = factors.grid, factors.grid.bands.length
    q, p = _passed_on(factors, weights)
    spread = np.zeros((*factors.right.shape[:4], n_bands))
    for k in range(grid.shape[2]):
        scale = factors.influence[:, k, ..., None]
        spread[:, k, ..., grid.bands.slice(k)] = factors.right[:, k] * scale
    v = spread.reshape(-1, *spread.shape[3:])
    share, low_rank = _by_band(grid.bands, np.einsum("chw,chw->c", p, p)), np.zeros((n_bands,) * 2)
    where = [grid.slices(i, j)[:2] for i, _, j in np.ndindex(*factors.left.shape[:3])]
    groups = [piece for group in overlaps(grid) for piece in group.pieces(AT_ONCE)]
    for number, cell in enumerate(grid.bands.cells()):
        half = np.zeros_like(v)  # half of the sum: the other half is its transpose
        for n, pixels in enumerate(where):
            level = np.einsum("hw,chw->c", q[n, number], p[(..., *pixels)])
            half[n] = v[n] * _by_band(grid.bands, level)
        for group in groups:
            a, b = group.first, group.second
            # The windows lie on all bands here, so that they share what they share.
            q_q, gram = group.pixels(q) / 2, v[a] @ v[b].swapaxes(1, 2)
            half[a] += _by_band(grid.bands, q_q[:, number])[:, None] * (gram @ v[b])
            if group.apart != (0, 0, 0):  # windows b and a
                back = _by_band(grid.bands, q_q[..., number])[:, None]
                half[b] += back * (gram.swapaxes(1, 2) @ v[a])
        flat = half.reshape(-1, n_bands)
        low_rank[cell.elements] = v.reshape(flat.shape)[:, cell.elements].T @ flat
    return share, low_rank + low_rank.T


def _by_band(axis: Axis, values: np.ndarray) -> np.ndarray:
    """Return (..., band cells) for every band."""
    return np.repeat(values, np.diff(axis.edges), axis=-1)


def _passed_on(factors: Factors, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return q_a (windows, band cells, rows, cols), and p (band cells, row, col)."""
    grid, u = factors.grid, factors.left * factors.influence[..., None, None]
    cells, *shape = factors.shares.shape
    q, p = np.zeros((*shape[:3], cells, *shape[3:])), np.zeros((cells, *grid.cube_shape[:2]))
    for i, k, j in np.ndindex(*shape[:3]):
        where = (slice(None), *grid.slices(i, j)[:2])
        x = factors.shares[:, i, k, j] * weights[where[1:]]
        passed = np.einsum("rhw,cr->chw", u[i, k, j], np.einsum("rhw,chw->cr", u[i, k, j], x))
        q[i, k, j] = x - passed
        p[where] += passed
    return q.reshape(-1, *q.shape[3:]), p
