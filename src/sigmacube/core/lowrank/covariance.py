"""Error covariances of some bands at every pixel, and of means over many small supports.

A support is a set of pixels with weights c; the mean over it of a combination of bands r is a
linear functional of the estimate. With w_a the share of window a in the mean of windows, x_a = w_a
c and z_a = U_aᵀx_a, what window a passes on is p_a (r − P_a r)ᵀ + x_a (P_a r)ᵀ, p_a = U_a z_a.
With q_a = x_a − p_a and p = Σ p_a, the covariance of two combinations r, r' of bands is

    |p|² r·r' + Σ_a (p·q_a) 2 b_a + Σ_ab (q_a·q_b) t_ab,
    b_a = rᵀP_a r',  t_ab = rᵀP_a P_b r'

in whitened space. All inner products need only U at the pixels of the support and the r × r
matrices U_aᵀU_b that `overlap` sums over shared pixels, so a support costs about as much as a
pixel.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise

import numpy as np

from sigmacube.core.lowrank.factors import Factors
from sigmacube.core.lowrank.overlap import (
    PRECISION,
    Block,
    _BandCell,
    _Cells,
    _Pairs,
    complete_blocks,
    fill_with_pairs,
)
from sigmacube.core.parallel import ParallelMap
from sigmacube.core.windows import BLOCK, Axis, CellGroup

__all__ = ["band_covariance", "support_covariance"]

# Supports are worked off in groups that share windows, up to so many pixels along an axis: larger
# groups share more but pair windows that do not overlap.
GROUP_SIDE = 12

Span = tuple[int, int]


def band_covariance(
    factors: Factors,
    first: np.ndarray,
    second: np.ndarray,
    noise_variance: np.ndarray | None,
    run: ParallelMap,
) -> np.ndarray:
    """Return (row, col, n) error covariances of combinations of bands at every pixel.

    It goes by the blocks of `overlap`, so that a part of a scene has the bits of the whole.
    NaN for blocks that lack windows.

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
    for block in complete_blocks(grid):
        part = factors.select(*block.windows(grid))
        for cell, sides in groups:
            _fill_block(output, part, grid.origin, block, cell, sides, run)
    if noise_variance is not None:
        for cell, sides in groups:
            kept = noise_variance[..., cell, None] * sides.noise
            output[..., sides.where] += kept * sides.scale
    return output


def _fill_block(
    output: np.ndarray,
    part: Factors,
    origin: tuple[int, int],
    block: Block,
    cell: int,
    sides: _Sides,
    run: ParallelMap,
) -> None:
    """Write the covariances of one block, from the windows over it alone."""
    scene = _BandCell.create(part, cell)
    (top, bottom), (left, right) = (
        (ends[0] - first, ends[1] - first)
        for ends, first in zip((block.rows, block.cols), part.grid.origin, strict=True)
    )
    maps = np.empty((*part.grid.cube_shape[:2], len(sides.where)), dtype=PRECISION)
    noise = sides.noise.astype(PRECISION)

    def fill(pairs: _Pairs, patch: tuple[CellGroup, CellGroup]) -> None:
        cells = _Cells.gather(scene, *patch)
        cells.write(cells.exact_variance(pairs, noise), maps, part.grid.origin)

    fill_with_pairs(scene, block, fill, run, (sides.first, sides.second))
    there = tuple(
        slice(ends[0] - first, ends[1] - first)
        for ends, first in zip((block.rows, block.cols), origin, strict=True)
    )
    found = output[there]
    found[..., sides.where] = maps[top:bottom, left:right] * sides.scale


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
) -> list[tuple[int, _Sides]]:
    """Whiten the sides, and sort them by the band cell that they lie in."""
    axis = factors.grid.bands
    white = [factors.noise.weights_to_white(np.asarray(side, float)) for side in (first, second)]
    length = [np.maximum(np.linalg.norm(side, axis=1), 1e-300) for side in white]
    groups = []
    taken = np.zeros(len(white[0]), dtype=bool)
    for cell in range(len(axis.count)):
        outside = np.ones(axis.length, dtype=bool)
        outside[axis.edges[cell] : axis.edges[cell + 1]] = False
        inside = ~taken & ~np.any((white[0] != 0) | (white[1] != 0), axis=1, where=outside)
        where = np.flatnonzero(inside)
        taken |= inside
        if len(where):
            one, two = (
                (side / norm[:, None])[where] for side, norm in zip(white, length, strict=True)
            )
            groups.append((cell, _Sides(where, one, two, (length[0] * length[1])[where])))
    if not taken.all():
        raise ValueError(
            "Invalid combination of bands that different windows hold. Where windows cut the "
            "spectrum, only bands that the same windows cover can be combined pixel by pixel."
        )
    return groups


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
    if boxes is None:
        boxes = _boxes(factors, labels, weights, count)
    for groups, windows in _batches(factors, labels, weights, boxes):
        part = factors.select(*windows)
        moved = [group.moved(factors, part) for group in groups]
        for cell, sides in cells:
            scene = _BandCell.create(part, cell)
            pairs = _Pairs.of_all(scene, (sides.first, sides.second), run)
            found = run(partial(_of_group, scene, _shares(scene), pairs, sides), moved)
            for group, values in zip(groups, found, strict=True):
                output[group.supports[:, None], sides.where] = values * sides.scale
    for cell, sides in cells:
        if noise_variance is not None:
            inside = labels >= 0
            power = (weights**2 * noise_variance[..., cell])[inside]
            kept = np.bincount(labels[inside], power, count)
            output[:, sides.where] += kept[:, None] * (sides.noise * sides.scale)
    return output


@dataclass(frozen=True, eq=False)
class _Group:
    """Neighbouring supports: their pixels, sorted by support."""

    supports: np.ndarray
    """(supports,) their numbers."""
    starts: np.ndarray
    """(supports + 1,) where the pixels of each begin."""
    rows: np.ndarray
    cols: np.ndarray
    weights: np.ndarray

    def moved(self, factors: Factors, part: Factors) -> _Group:
        """Return the group as seen from a part of the factors' grid."""
        down, right = (
            mine - theirs
            for mine, theirs in zip(factors.grid.origin, part.grid.origin, strict=True)
        )
        return replace(self, rows=self.rows + down, cols=self.cols + right)


def _boxes(factors: Factors, labels: np.ndarray, weights: np.ndarray, count: int) -> np.ndarray:
    """Return (supports, 4) first row, end, first col, end of the pixels with a weight."""
    rows, cols = np.nonzero((labels >= 0) & (weights != 0))
    number = labels[rows, cols]
    boxes = np.zeros((count, 4), dtype=np.int64)
    for n, (position, first) in enumerate(zip((rows, cols), factors.grid.origin, strict=True)):
        low, high = np.full(count, np.iinfo(np.int64).max), np.full(count, -1)
        np.minimum.at(low, number, position + first)
        np.maximum.at(high, number, position + first)
        boxes[:, 2 * n], boxes[:, 2 * n + 1] = np.where(high < 0, -1, low), high + 1
    return boxes


def _batches(
    factors: Factors, labels: np.ndarray, weights: np.ndarray, boxes: np.ndarray
) -> Iterator[tuple[list[_Group], tuple[Span, Span]]]:
    """Yield groups of supports that begin in the same block, and the windows over the block."""
    grid = factors.grid
    groups = _groups(labels, weights, boxes)
    sides = np.array([batch_side(axis) for axis in (grid.rows, grid.cols)])
    keys = boxes[:, [0, 2]] // sides
    first = np.array([keys[group.supports[0]] for group in groups]).reshape(-1, 2)
    for members in _members(first):
        own = [groups[m] for m in members]
        # Of all supports that begin here, masked or not: what is masked must not change the bits.
        here = boxes[np.all(keys == first[members[0]], axis=1)]
        spans = []
        for axis, low, high in zip(
            (grid.rows, grid.cols), here.min(axis=0)[[0, 2]], here.max(axis=0)[[1, 3]], strict=True
        ):
            spans.append(axis.windows_over(int(low) - axis.origin, int(high) - axis.origin))
        yield own, (spans[0], spans[1])


def batch_side(axis: Axis) -> int:
    """Return the side of the blocks that supports are batched by: whole groups of them.

    Examples
    --------
    >>> batch_side(Axis(length=1000, size=20, step=4))
    168
    """
    side = BLOCK * axis.size
    return side + -side % GROUP_SIDE


def _groups(labels: np.ndarray, weights: np.ndarray, boxes: np.ndarray) -> list[_Group]:
    """Group supports by where they begin."""
    rows, cols = np.nonzero((labels >= 0) & (weights != 0))
    number = labels[rows, cols]
    order = np.argsort(number, kind="stable")
    rows, cols, number = rows[order], cols[order], number[order]
    supports, starts = np.unique(number, return_index=True)
    stops = np.append(starts[1:], len(number))
    groups = []
    for member in _members(boxes[supports][:, [0, 2]] // GROUP_SIDE):
        picked = np.concatenate([np.arange(starts[m], stops[m]) for m in member])
        begin = np.concatenate([[0], np.cumsum(stops[member] - starts[member])])
        r, c = rows[picked], cols[picked]
        groups.append(_Group(supports[member], begin, r, c, weights[r, c]))
    return groups


def _members(keys: np.ndarray) -> list[np.ndarray]:
    """Return the indices of equal rows of ``keys``, group by group."""
    if not len(keys):
        return []
    _, inverse = np.unique(keys, axis=0, return_inverse=True)
    inverse = inverse.ravel()
    order = np.argsort(inverse, kind="stable")
    return np.split(order, np.cumsum(np.bincount(inverse))[:-1])


def _shares(scene: _BandCell) -> np.ndarray:
    """Return (lines, J, rows, cols) the weights of the windows, summing to one at every pixel."""
    grid = scene.factors.grid
    total = np.zeros(grid.cube_shape[:2])
    where = {}
    for line, j in np.ndindex(scene.weights.shape[:2]):
        rows, cols, _ = grid.slices(scene.lines.at(line)[0], j)
        where[line, j] = rows, cols
        total[rows, cols] += scene.weights[line, j]
    shares = np.empty_like(scene.weights)
    for window, (rows, cols) in where.items():
        shares[window] = scene.weights[window] / total[rows, cols]
    return shares


@dataclass(frozen=True, eq=False)
class _Around:
    """The windows that touch a group of supports: a block of lines by a block of columns."""

    lines: np.ndarray
    cols: np.ndarray
    inside: np.ndarray
    """(lines, cols, pixels) whether a window covers a pixel."""
    at: tuple[np.ndarray, ...]
    """Index of the pixels in arrays (lines, J, rows, cols); anywhere where not inside."""

    @classmethod
    def create(cls, scene: _BandCell, group: _Group) -> _Around:
        grid, count = scene.factors.grid, scene.lines.count
        spans = []
        for axis, position in ((grid.rows, group.rows), (grid.cols, group.cols)):
            touched = (axis.starts <= position.max()) & (axis.starts + axis.size > position.min())
            spans.append(np.flatnonzero(touched))
        lines = (spans[0][:, None] * count + np.arange(count)).ravel()
        row = group.rows - grid.rows.starts[np.repeat(spans[0], count)][:, None]
        col = group.cols - grid.cols.starts[spans[1]][:, None]
        ok = ((row >= 0) & (row < grid.rows.size))[:, None] & ((col >= 0) & (col < grid.cols.size))[
            None
        ]
        at = (
            lines[:, None, None],
            spans[1][None, :, None],
            np.clip(row, 0, grid.rows.size - 1)[:, None],
            np.clip(col, 0, grid.cols.size - 1)[None],
        )
        return cls(lines, spans[1], ok, at)


def _of_group(
    scene: _BandCell, shares: np.ndarray, pairs: _Pairs, sides: _Sides, group: _Group
) -> np.ndarray:
    """Return (supports, n) covariances of one group of supports."""
    around = _Around.create(scene, group)
    n_lines, n_cols, n_pixels = around.inside.shape
    n_windows, rank = n_lines * n_cols, pairs.pixels.shape[-1]
    x = (shares[around.at] * around.inside * group.weights).reshape(n_windows, n_pixels)
    scale = pairs.influence[around.lines[:, None], around.cols]
    l_, j_, r_, c_ = around.at
    u = scene.left[:, :, :rank][l_, j_, :, r_, c_]  # (lines, cols, pixels, rank)
    u = (u * around.inside[..., None] * scale[:, :, None, :]).reshape(n_windows, n_pixels, rank)
    products = [_InnerProducts.create(x[:, s], u[:, s]) for s in _slices(group.starts)]

    z = np.stack([p.z for p in products])  # (supports, windows, rank)
    blocks = _pair_blocks(around, pairs, scene.factors.grid.cols)
    p_q = np.stack([p.x_p.sum(axis=1) for p in products])  # Σ_b x_a·p_b, less Σ_b p_a·p_b below
    p_p = np.zeros(len(products))
    total = np.zeros((len(products), len(sides.where)))
    shape = (n_lines, n_cols, n_lines, n_cols)
    q = np.stack([p.x_x - p.x_p - p.x_p.T for p in products]).reshape(-1, *shape)
    z = z.reshape(-1, n_lines, n_cols, rank)
    p_q = p_q.reshape(-1, n_lines, n_cols)
    for (a, b), where, exists in blocks:
        grams = pairs.pixels[where][around.cols[:, None], exists.slots]  # (j, j', r of b, r of a)
        grams = np.where(exists.mask[..., None, None], grams, 0)
        s = np.einsum("gjx,jkyx,gky->gjk", z[:, a], grams, z[:, b], optimize=True)
        factor = 1 if a == b else 2
        p_p += factor * s.sum(axis=(1, 2))
        p_q[:, a] -= s.sum(axis=2)
        if a != b:
            p_q[:, b] -= s.sum(axis=1)
        t = pairs.bands[where][around.cols[:, None], exists.slots]
        weight = factor * np.where(exists.mask, q[:, a, :, b] + s, 0)
        total += weight.reshape(len(z), -1) @ t.reshape(-1, t.shape[-1])
    b_a = pairs.leverage[around.lines[:, None], around.cols]
    total += 2 * p_q.reshape(len(z), -1) @ b_a.reshape(n_windows, -1)
    return total + p_p[:, None] * sides.noise


def _slices(starts: np.ndarray) -> Sequence[slice]:
    return [slice(int(a), int(b)) for a, b in pairwise(starts)]


@dataclass(frozen=True, eq=False)
class _InnerProducts:
    """What one support needs from the windows over it."""

    z: np.ndarray
    """(windows, rank) U_aᵀx_a."""
    x_x: np.ndarray
    """(windows, windows) x_a·x_b."""
    x_p: np.ndarray
    """(windows, windows) x_a·p_b."""

    @classmethod
    def create(cls, x: np.ndarray, u: np.ndarray) -> _InnerProducts:
        z = np.einsum("wpr,wp->wr", u, x)
        p = np.einsum("wpr,wr->wp", u, z)
        return cls(z, x @ x.T, x @ p.T)


@dataclass(frozen=True, eq=False)
class _Slots:
    """Where window pairs (j, j') of two lines lie in arrays (J, 2 reach + 1)."""

    slots: np.ndarray
    mask: np.ndarray


def _pair_blocks(
    around: _Around, pairs: _Pairs, axis: Axis
) -> list[tuple[tuple[int, int], int, _Slots]]:
    """Return the pairs of lines a ≤ b that overlap, and where their windows' pairs lie."""
    slots = around.cols[None, :] - around.cols[:, None] + (pairs.pixels.shape[2] - 1) // 2
    mask = axis.overlap(around.cols[:, None], around.cols) > 0
    where = _Slots(np.clip(slots, 0, pairs.pixels.shape[2] - 1), mask)
    blocks = []
    for a, line_a in enumerate(around.lines):
        for b in range(a, len(around.lines)):
            position = int(pairs.index[line_a, around.lines[b]])
            if position >= 0:
                blocks.append(((a, b), position, where))
    return blocks
