"""Combined estimate of overlapping windows and its variance, exact to first order.

For windows a and b that both cover pixel u and band v, with leverages a_a, a_b of the pixel and
b_a, b_b of the band, s_ab = Σ_p (P_U^a)_up (P_U^b)_up over the pixels they share and
t_ab = (P_V^a P_V^b)_vv,

    cov_ab = s_ab (1 − b_a − b_b + t_ab) + t_ab (1 − a_a − a_b) + a_a b_b + a_b b_a

in units of the noise variance of the band; the variance of the weighted mean is Σ w_a w_b cov_ab.

The work goes by cells, the pixels that the same windows cover. Inside a cell every term of the sum
is a pixel factor times a band factor, so that the sum over pairs of windows is one matrix product
(pixels × pairs)(pairs × bands). What pairs share, the products V_aᵀV_b and U_aᵀU_b over common
pixels and t_ab itself, is computed once per pair, for whole rows of windows at a time.

Leverages are pure numbers of order one, so the variance is accumulated in single precision: its
relative error stays near 1e-7 (tests hold it to 1e-6 against a double-precision pair loop).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.lib.stride_tricks import as_strided

from sigmacube.core.lowrank.factors import Factors
from sigmacube.core.lowrank.incomplete import Incompleteness, incompleteness
from sigmacube.core.parallel import ParallelMap
from sigmacube.core.windows import BLOCK, Axis, CellGroup, WindowGrid

__all__ = [
    "Block",
    "Combined",
    "NoiseCorrelation",
    "blocks_over",
    "combine",
    "complete_blocks",
    "fill_with_pairs",
    "pool_noise_correlation",
    "sampled_regions",
]

PRECISION = np.float32
SAMPLED_ROWS = 8
# Bytes of the coefficients of window pairs in cells that are worked off together, of what the pairs
# of neighbouring rows of windows share, and of what is gathered for few cells at a time. More leave
# the processor's cache; fewer are small steps, and threads wait for each other between them.
PATCH = 2_000_000
ROOM = 16_000_000
GATHERED = 1_200_000


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
        Correlation of kept components of pure noise, see `pool_noise_correlation`; None where
        none are kept.
    blocks
        Which blocks of `blocks_over` to fill; all of the grid by default. All windows that cover
        them must be there. Blocks are computed one by one, so that their values do not depend on
        what else is computed.
    dtype
        Of the variance, so that its array can serve as the standard deviation's.
    """
    grid = factors.grid
    out = _Output.create(grid, uncertainty, dtype)
    exact = uncertainty and overlap == "exact"
    gaps: _Gaps | None = None
    for block in blocks_over(grid) if blocks is None else blocks:
        part = factors.select(*block.windows(grid))
        table = correlation if exact and part.noise_power.any() else None
        for cell in range(len(grid.bands.edges) - 1):
            scene = _BandCell.create(part, cell)
            fill = partial(_fill_cells, out, scene, cell, table)
            if exact:
                fill_with_pairs(scene, block, fill, run)
            else:
                run(partial(fill, None), block.patches(part.grid))
        lacking = incompleteness(part, run, uncertainty=uncertainty)
        if lacking is not None:
            gaps = out.gaps(grid) if gaps is None else gaps
            _correct(out, gaps, block, part.grid, lacking)
    left_out, inflation = (None, None) if gaps is None else (gaps.left_out, gaps.inflation)
    return Combined(out.estimate, out.variance, out.noise_variance, left_out, inflation)


@dataclass(frozen=True, eq=False)
class Combined:
    """The mean over windows; arrays (row, col, band) unless said otherwise."""

    estimate: np.ndarray
    """Estimate in the units of the data."""
    variance: np.ndarray | None
    """Variance relative to the noise variance of its band."""
    noise_variance: np.ndarray | None
    """(row, col, band cell) the part of it that comes from kept components of pure noise."""
    left_out: np.ndarray | None
    """True where the windows left an element out; None where they rest on all elements."""
    inflation: np.ndarray | None
    """Factor on the standard deviation for what the windows lack; None where that is nothing."""


@dataclass(frozen=True, eq=False)
class _Gaps:
    """What windows lack, written block by block."""

    left_out: np.ndarray
    inflation: np.ndarray


def _correct(
    out: _Output, gaps: _Gaps, block: Block, grid: WindowGrid, lacking: Incompleteness
) -> None:
    """Correct a block for elements that its windows lack."""
    own, there = (
        tuple(
            slice(ends[0] - first, ends[1] - first)
            for ends, first in zip((block.rows, block.cols), origin, strict=True)
        )
        for origin in (grid.origin, out.origin)
    )
    part = Incompleteness(lacking.inflation[own], lacking.support[own], lacking.left_out[own])
    variance, extra = (None if a is None else a[there] for a in (out.variance, out.noise_variance))
    part.apply(out.estimate[there], variance, extra, np.diff(grid.bands.edges))
    gaps.left_out[there], gaps.inflation[there] = part.left_out, part.inflation


_Patch = tuple[CellGroup, CellGroup]
"""Cells: a product of rows and columns of them."""


@dataclass(frozen=True)
class Block:
    """A part of the cube, cut at cells, whose values are computed on their own."""

    rows: tuple[int, int]
    """First row and end, in the whole cube."""
    cols: tuple[int, int]
    """First column and end."""

    def windows(self, grid: WindowGrid) -> tuple[tuple[int, int], tuple[int, int]]:
        """Return the window rows and columns of a grid that cover the block, as (first, stop)."""
        return tuple(
            axis.windows_over(start - axis.origin, stop - axis.origin)
            for axis, (start, stop) in ((grid.rows, self.rows), (grid.cols, self.cols))
        )  # type: ignore[return-value]

    def patches(self, grid: WindowGrid, most_rows: int | None = None) -> list[_Patch]:
        """Return the cells of a grid that belong to the block as products of rows and columns.

        Cells of one patch have the same shape and as many windows each, which lie in no more than
        ``most_rows`` window rows.
        """
        row_groups, col_groups = (
            axis.groups_within(*(edge - axis.origin for edge in ends))
            for axis, ends in ((grid.rows, self.rows), (grid.cols, self.cols))
        )
        most_rows = len(grid.rows) if most_rows is None else most_rows
        patches = []
        for rows in row_groups:
            for cols in col_groups:
                windows = rows.windows.shape[1] * cols.windows.shape[1] * len(grid.bands)
                size = 2 * windows * (windows + 1) * rows.width * cols.width  # of one cell
                height = max(PATCH // (size * len(cols.cells)), 1)
                patches += [(rows.part(part), cols) for part in _cuts(rows, height, most_rows)]
        return patches


def _cuts(rows: CellGroup, height: int, most_rows: int) -> Iterator[slice]:
    """Yield up to ``height`` cells at a time, with windows in no more than ``most_rows`` rows."""
    first = 0
    for stop in range(1, len(rows.cells) + 1):
        is_last = stop == len(rows.cells)
        end = rows.windows[first, 0] + most_rows
        if is_last or stop - first == height or rows.windows[stop, -1] >= end:
            yield slice(first, stop)
            first = stop


def blocks_over(
    grid: WindowGrid, rows: tuple[int, int] | None = None, cols: tuple[int, int] | None = None
) -> list[Block]:
    """Return the blocks of the whole cube that meet some rows and columns; all by default."""
    wanted = []
    for axis, part in ((grid.root.rows, rows), (grid.root.cols, cols)):
        start, stop = part or (0, axis.length)
        wanted.append([block for block in axis.blocks if block[0] < stop and block[1] > start])
    return [Block(row, col) for row in wanted[0] for col in wanted[1]]


def complete_blocks(grid: WindowGrid) -> list[Block]:
    """Return the blocks of the whole cube whose windows are all in a grid, a part or the whole."""
    wanted = []
    for axis in (grid.rows, grid.cols):
        first = int(np.searchsorted(axis.root.starts, axis.origin))
        inside = []
        for block in axis.root.blocks:
            begin, end = axis.root.windows_over(*block)
            if begin >= first and end <= first + len(axis):
                inside.append(block)
        wanted.append(inside)
    return [Block(row, col) for row in wanted[0] for col in wanted[1]]


@dataclass(frozen=True, eq=False)
class _Output:
    """The arrays that rows of cells are written to."""

    estimate: np.ndarray
    variance: np.ndarray | None
    noise_variance: np.ndarray | None
    origin: tuple[int, int]
    """Pixel of the whole cube that the arrays start at."""

    @classmethod
    def create(cls, grid: WindowGrid, uncertainty: bool, dtype: np.dtype | type) -> _Output:
        estimate = np.empty(grid.cube_shape)
        if not uncertainty:
            return cls(estimate, None, None, grid.origin)
        cells = len(grid.bands.edges) - 1
        return cls(
            estimate,
            np.empty(grid.cube_shape, dtype=dtype),
            np.zeros((*grid.cube_shape[:2], cells)),
            grid.origin,
        )

    def gaps(self, grid: WindowGrid) -> _Gaps:
        """Return arrays for a scene where nothing is lacking."""
        shape = grid.cube_shape
        return _Gaps(np.zeros(shape, dtype=bool), np.ones(shape, dtype=np.float32))


def _fill_cells(
    out: _Output,
    scene: _BandCell,
    band_cell: int,
    correlation: NoiseCorrelation | None,
    pairs: _Pairs | None,
    patch: _Patch,
) -> None:
    """Write the estimate, and its variance where it is wanted, of some cells."""
    part = _Cells.gather(scene, *patch)
    unit = scene.factors.noise.std[scene.bands]
    part.write(part.mean(), out.estimate[..., scene.bands], out.origin, unit)
    if out.variance is None or out.noise_variance is None:
        return
    variance = part.ratio_variance() if pairs is None else part.exact_variance(pairs)
    if correlation is not None:
        extra = part.noise_variance(correlation)[:, :, None]
        variance += extra
        part.write(extra, out.noise_variance[..., band_cell : band_cell + 1], out.origin)
    part.write(variance, out.variance[..., scene.bands], out.origin)


@dataclass(frozen=True)
class _LineIndex:
    """Numbering of lines: one window row and one of ``count`` band windows from ``first`` on."""

    grid: WindowGrid
    first: int
    count: int

    def at(self, line: int | np.integer) -> tuple[int, int]:
        """Return the window row and the band window of a line."""
        return int(line // self.count), int(self.first + line % self.count)

    def of_rows(self, first: int, stop: int) -> range:
        """Return the lines of some window rows."""
        return range(first * self.count, stop * self.count)

    def overlapping(self, lines: range) -> list[tuple[int, int]]:
        """Return the pairs a ≤ b of some lines whose windows share rows and bands."""
        rows, bands = self.grid.rows, self.grid.bands
        pairs = []
        for a in lines:
            row, band = self.at(a)
            last = min(lines.stop, (row + rows.reach + 1) * self.count)
            for b in range(a, last):
                other_row, other_band = self.at(b)
                if rows.overlap(row, other_row) and bands.overlap(band, other_band):
                    pairs.append((a, b))
        return pairs


@dataclass(frozen=True, eq=False)
class _BandCell:
    """Factors of the windows that cover one cell of the band axis, as lines of windows.

    A line is one window row and one band window: (I · K) lines of J windows.
    """

    factors: Factors
    lines: _LineIndex
    bands: slice
    left: np.ndarray
    """(lines, J, rank, rows, cols) U."""
    amplitude: np.ndarray
    """(lines, J, rank) d."""
    output: np.ndarray
    """(lines, J, rank, bands) rows of V on the cell's bands, over the noise std of the band."""
    weights: np.ndarray
    """(lines, J, rows, cols) weights, not normalised."""

    @classmethod
    def create(cls, factors: Factors, cell: int) -> _BandCell:
        axis = factors.grid.bands
        bands = slice(int(axis.edges[cell]), int(axis.edges[cell + 1]))
        first, count = int(axis.first[cell]), int(axis.count[cell])
        ks = slice(first, first + count)
        lines = _LineIndex(factors.grid, first, count)
        return cls(factors, lines, bands, _lines(factors.left[:, ks]),
                   _lines(factors.singular_values[:, ks]),
                   _on_bands(factors, factors.output_rows, first, count, bands),
                   _lines(factors.pixel_weights[:, ks]))  # fmt: skip

    @property
    def influence(self) -> np.ndarray:
        """(lines, J, rank) scale of the components that have any, in the precision of variances."""
        f, ks = self.factors, slice(self.lines.first, self.lines.first + self.lines.count)
        keep = max(int(f.n_signal.max(initial=0)), 1)
        return _lines(f.influence[:, ks, :, :keep]).astype(PRECISION)

    def right(self, line: int) -> np.ndarray:
        """(J, rank, bands) V of a line on all bands of its windows."""
        row, band = self.lines.at(line)
        return self.factors.right[row, band]


def _scaled(array: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Return array · scale in the precision of variances."""
    return np.multiply(array, scale, dtype=PRECISION, casting="same_kind")


def _lines(array: np.ndarray) -> np.ndarray:
    """Merge the window-row and band-window axes."""
    return array.reshape(-1, *array.shape[2:])


def _on_bands(
    factors: Factors, right: np.ndarray, first: int, count: int, bands: slice
) -> np.ndarray:
    """Return the rows of V on a band cell, for the band windows that cover it, as lines."""
    parts = []
    for k in range(count):
        start = int(factors.grid.bands.starts[first + k])
        parts.append(right[:, first + k][..., bands.start - start : bands.stop - start])
    together = parts[0][:, None] if count == 1 else np.stack(parts, axis=1)
    return np.ascontiguousarray(_lines(together))


def fill_with_pairs(
    scene: _BandCell,
    block: Block,
    fill: Callable[[_Pairs, _Patch], None],
    run: ParallelMap,
    sides: tuple[np.ndarray, np.ndarray] | None = None,
) -> None:
    """Call ``fill(pairs, patch)`` for all patches of a block, with what window pairs share.

    It goes down the block by a few window rows at a time, so that what their pairs share stays in
    the processor's cache and is written where earlier pairs lay. ``sides`` as in `_Pairs.create`.
    """
    grid = scene.factors.grid
    at_once = _Pairs.rows_at_once(scene, sides)
    pairs = _Pairs.create(scene, at_once, sides)
    patches = block.patches(grid, at_once)
    for first, stop, stage in _in_stages(patches, at_once):
        pairs.hold(scene.lines.of_rows(first, stop), run)
        run(partial(fill, pairs), stage)


def _in_stages(patches: list[_Patch], at_once: int) -> Iterator[tuple[int, int, list[_Patch]]]:
    """Yield patches that lie in a few window rows, with the first of these rows and their end."""
    spans = {id(p): (int(p[0].windows.min()), int(p[0].windows.max()) + 1) for p in patches}
    stage: list[_Patch] = []
    first = stop = 0
    for patch in sorted(patches, key=lambda patch: spans[id(patch)]):
        begin, end = spans[id(patch)]
        if stage and max(stop, end) - first > at_once:
            yield first, stop, stage
            stage = []
        first, stop = (first, max(stop, end)) if stage else (begin, end)
        stage.append(patch)
    if stage:
        yield first, stop, stage


@dataclass(frozen=True, eq=False)
class _Line:
    """Windows of one line, components scaled by their influence, in the precision of variances."""

    right: np.ndarray
    """(J, rank, bands) V."""
    first: np.ndarray
    """(J, rank, n) its rows on the cell's bands, or Vᵀr for one side of covariances."""
    second: np.ndarray
    """The same, or Vᵀr for the other side."""
    cells: list[np.ndarray]
    """U, cut into cells."""

    @classmethod
    def create(
        cls,
        scene: _BandCell,
        line: int,
        scale: np.ndarray,
        sides: tuple[np.ndarray, np.ndarray] | None,
    ) -> _Line:
        """Return a line; ``scale`` (J, rank) is the influence of its components."""
        rank = max(int(np.count_nonzero(scale, axis=-1).max()), 1)
        by_row = scale[:, :rank, None]
        right = _scaled(scene.right(line)[:, :rank], by_row)
        left = _scaled(scene.left[line, :, :rank], by_row[..., None])
        if sides is not None:
            start = int(scene.lines.grid.bands.starts[scene.lines.at(line)[1]])
            rows = (side[:, start : start + right.shape[2]].astype(PRECISION) for side in sides)
            first, second = (right @ side.T for side in rows)
        elif scene.factors.noise.is_diagonal and scene.output.shape[3] == right.shape[2]:
            first = second = right
        else:
            first = second = _scaled(scene.output[line, :, :rank], by_row)
        return cls(right, first, second, _all_cells(left, scene.lines.grid.cols))


@dataclass(frozen=True, eq=False)
class _Pairs:
    """What pairs of overlapping windows share, for the pairs of some lines at a time.

    Window j of line a is paired with windows j − reach … j + reach of line b.
    """

    scene: _BandCell
    sides: tuple[np.ndarray, np.ndarray] | None
    """Weights (n, bands) on whitened bands, two sets of them: then t_ab and b are for the
    covariances of one with the other, instead of the variances of the cell's bands."""
    lines: dict[int, _Line]
    """The lines that are held."""
    free: list[int]
    """Positions in the arrays below that hold nothing."""
    index: np.ndarray
    """(lines, lines) position of lines a ≤ b in the arrays below; −1 where it is not held."""
    pixels: np.ndarray
    """(line pairs, J, 2 reach + 1, rank of b, rank of a) U_bᵀU_a over shared pixels."""
    bands: np.ndarray
    """(line pairs, J, 2 reach + 1, bands) t_ab."""
    influence: np.ndarray
    """(lines, J, rank) scale of the components of U."""
    leverage: np.ndarray
    """(lines, J, bands) b_v; that of a line that was never held is not set."""
    sums: _PairSums

    @classmethod
    def create(
        cls, scene: _BandCell, n_rows: int, sides: tuple[np.ndarray, np.ndarray] | None = None
    ) -> _Pairs:
        """Return room for the pairs of ``n_rows`` neighbouring window rows."""
        influence, axis = scene.influence, scene.lines.grid.cols
        n_lines, n_cols, rank = influence.shape
        room = cls._most_pairs(scene.lines, n_rows)
        shape = room, n_cols, 2 * axis.reach + 1
        n = scene.output.shape[3] if sides is None else len(sides[0])
        return cls(
            scene,
            sides,
            {},
            list(range(room)),
            np.full((n_lines, n_lines), -1),
            np.zeros((*shape, rank, rank), dtype=PRECISION),
            np.empty((*shape, n), dtype=PRECISION),
            influence,
            np.empty((n_lines, n_cols, n), dtype=PRECISION),
            _PairSums.create(axis),
        )

    @classmethod
    def of_all(
        cls, scene: _BandCell, sides: tuple[np.ndarray, np.ndarray] | None, run: ParallelMap
    ) -> _Pairs:
        """Return all pairs of a scene at once."""
        n_rows = len(scene.lines.grid.rows)
        pairs = cls.create(scene, n_rows, sides)
        pairs.hold(scene.lines.of_rows(0, n_rows), run)
        return pairs

    @staticmethod
    def rows_at_once(scene: _BandCell, sides: tuple[np.ndarray, np.ndarray] | None) -> int:
        """Return for how many neighbouring window rows the pairs take about ROOM bytes."""
        rows, cols = scene.lines.grid.rows, scene.lines.grid.cols
        n = scene.output.shape[3] if sides is None else len(sides[0])
        of_pair = 4 * len(cols) * (2 * cols.reach + 1) * (n + scene.left.shape[2] ** 2)
        of_row = of_pair * (rows.reach + 1) * scene.lines.count**2
        return min(rows.reach + max(ROOM // of_row, 1), max(len(rows), rows.reach + 1))

    @staticmethod
    def _most_pairs(lines: _LineIndex, n_rows: int) -> int:
        """Return how many pairs the lines of neighbouring window rows have at most."""
        n_lines, ahead = n_rows * lines.count, lines.grid.rows.reach + 1
        return sum(min(n_lines, (a // lines.count + ahead) * lines.count) - a
                   for a in range(n_lines))  # fmt: skip

    def hold(self, lines: range, run: ParallelMap) -> None:
        """Compute what some lines share, where it is not held yet, and forget all other lines."""
        for a, b in np.argwhere(self.index >= 0).tolist():
            if a not in lines or b not in lines:
                self.free.append(int(self.index[a, b]))
                self.index[a, b] = -1
        for line in [line for line in self.lines if line not in lines]:
            del self.lines[line]
        new = [line for line in lines if line not in self.lines]
        self.lines.update(zip(new, run(self._line, new), strict=True))
        pairs = [pair for pair in self.scene.lines.overlapping(lines) if self.index[pair] < 0]
        for pair in pairs:
            self.index[pair] = self.free.pop()
        run(self._fill, pairs)

    def _line(self, number: int) -> _Line:
        line = _Line.create(self.scene, number, self.influence[number], self.sides)
        np.einsum("jrv,jrv->jv", line.first, line.second, out=self.leverage[number])
        return line

    def _fill(self, pair: tuple[int, int]) -> None:
        """Compute what a pair of lines shares."""
        a, b = (self.lines[line] for line in pair)
        where, lines = self.index[pair], self.scene.lines
        gram = _band_grams(lines, a.right, b.right, *pair)
        _band_terms(a.first, b.second, gram, self.bands[where])
        if self.sides is not None:  # the mean of both orders: (a, b) stands for (b, a) as well
            other = np.empty_like(self.bands[where])
            _band_terms(a.second, b.first, gram, other)
            self.bands[where] += other
            self.bands[where] *= 0.5
        block = self.pixels[where, :, :, : b.right.shape[1], : a.right.shape[1]]
        _pixel_grams(lines, a.cells, b.cells, *pair, self.sums, out=block)

    @property
    def per_block(self) -> int:
        """Number of window pairs in a pair of lines."""
        return self.pixels.shape[1] * self.pixels.shape[2]

    def sum_bands(self, coefficients: np.ndarray, where: np.ndarray) -> np.ndarray:
        """Return Σ coefficients (c, pairs, p) · t_ab, (c, p, v), for pairs at flat positions."""
        terms = self.bands.reshape(-1, self.bands.shape[-1])
        n, _, n_pixels = coefficients.shape
        total = np.empty((n, n_pixels, terms.shape[1]), dtype=PRECISION)
        for few in _few(n, where.shape[1] * terms[0].nbytes):
            taken = terms.take(where[few], axis=0)
            np.matmul(coefficients[few].swapaxes(1, 2), taken, out=total[few])
        return total

    def grams(self, where: np.ndarray, rank: int) -> np.ndarray:
        """Return the leading block of U_bᵀU_a for pairs (c, a, b): (c, a, rank of b, b, rank)."""
        n_b, n_a = self.pixels.shape[3:]
        rows = where[:, :, None, :] * n_b + np.arange(rank)[:, None]
        return self.pixels.reshape(-1, n_a).take(rows, axis=0)[..., :rank]


def _pixel_terms(grams: np.ndarray, u_a: np.ndarray, u_b: np.ndarray) -> np.ndarray:
    """Return s_ab(u) = U^b_u (U_bᵀU_a) U^a_uᵀ, (c, a, b, p).

    From `grams` (c, a, r, b, r), U_a of the cells (c, a, r, p) and U_b (c, r, b, p). Components
    come before windows, so that the sum over them runs along long rows.
    """
    n, n_a, rank, n_b, _ = grams.shape
    terms = grams.reshape(n, n_a, rank * n_b, rank) @ u_a
    terms = terms.reshape(n, n_a, rank, n_b, -1)
    terms *= u_b[:, None]
    return terms.sum(axis=2)


def _neighbours(line: np.ndarray, reach: int) -> np.ndarray:
    """View windows (J, rank, x) with their neighbours: (J, 2 reach + 1, rank, x)."""
    n_cols, rank, length = line.shape
    padded = np.zeros((n_cols + 2 * reach, rank, length), dtype=line.dtype)
    padded[reach : reach + n_cols] = line
    step, row, item = padded.strides
    shape = (n_cols, 2 * reach + 1, rank, length)
    return as_strided(padded, shape, (step, step, row, item), writeable=False)


def _band_grams(
    lines: _LineIndex, right_a: np.ndarray, right_b: np.ndarray, a: int, b: int
) -> np.ndarray:
    """Return V_bᵀV_a (J, 2 reach + 1, rank, rank) over the bands that the windows share."""
    axis, reach = lines.grid.bands, lines.grid.cols.reach
    start_a, start_b = (int(axis.starts[lines.at(line)[1]]) for line in (a, b))
    low, high = max(start_a, start_b), min(start_a, start_b) + axis.size
    others = _neighbours(right_b[..., low - start_b : high - start_b], reach)
    n_cols, slots, rank, length = others.shape
    step, _, row, item = others.strides  # neighbours one after the other, as one matrix
    flat = as_strided(others, (n_cols, slots * rank, length), (step, row, item), writeable=False)
    grams = flat @ np.swapaxes(right_a[..., low - start_a : high - start_a], -1, -2)
    return grams.reshape(n_cols, slots, rank, -1)


def _band_terms(a: np.ndarray, b: np.ndarray, grams: np.ndarray, out: np.ndarray) -> None:
    """Write t_ab(v) = V^b_v (V_bᵀV_a) V^a_vᵀ for all pairs of two lines."""
    n_cols, slots, rank, _ = grams.shape
    terms = (grams.reshape(n_cols, slots * rank, -1) @ a).reshape(n_cols, slots, rank, -1)
    np.einsum("jsrv,jsrv->jsv", terms, _neighbours(b, (slots - 1) // 2), out=out)


@dataclass(frozen=True, eq=False)
class _PairSums:
    """How cell sums add up to pair sums: entries (cell, window, window) sorted by pair."""

    order: np.ndarray
    """Entries, pair by pair; one more than there are, which is zero, for pairs without any."""
    starts: np.ndarray
    """(J · (2 reach + 1),) where the entries of each pair start."""

    @classmethod
    def create(cls, axis: Axis) -> _PairSums:
        pair = np.concatenate([_pair_index(axis, g).ravel() for g in axis.groups])
        without = np.setdiff1d(np.arange(len(axis) * (2 * axis.reach + 1)), pair)
        entries = np.append(np.arange(len(pair)), np.full(len(without), len(pair)))
        pair = np.append(pair, without)
        order = np.argsort(pair, kind="stable")
        return cls(entries[order], np.unique(pair[order], return_index=True)[1])


def _pair_index(axis: Axis, group: CellGroup) -> np.ndarray:
    """Return (cells, count, count) position of window pairs (a, b) in arrays (J, 2 reach + 1)."""
    a, b = group.windows[:, :, None], group.windows[:, None, :]
    return a * (2 * axis.reach + 1) + axis.reach + b - a


def _all_cells(line: np.ndarray, axis: Axis) -> list[np.ndarray]:
    """Cut windows (J, rank, rows, cols) into cells: per group (cells, count, rank, rows, width).

    Zero where a window does not cover a cell.
    """
    n_rows = math.prod(line.shape[1:-1])
    parts = []
    for group in axis.groups:
        first = group.windows[..., None] * (n_rows * axis.size) + group.elements
        cells = line.ravel().take(first[:, :, None] + axis.size * np.arange(n_rows)[:, None])
        own = np.arange(group.width) < group.widths[:, None]
        cells *= (group.covers[..., None] & own[:, None])[:, :, None]
        parts.append(cells.reshape(*group.windows.shape, *line.shape[1:-1], group.width))
    return parts


def _few(count: int, size: int) -> Iterator[slice]:
    """Yield a few of some cells at a time, by how many bytes are gathered for each."""
    together = max(GATHERED // size, 1)
    return (slice(first, first + together) for first in range(0, count, together))


def _outer(function: np.ufunc, rows: np.ndarray, cols: np.ndarray) -> np.ndarray:
    """Combine (row cells, x) with (col cells, y), all with all: (cells, x · y)."""
    both = function(rows[:, None, :, None], cols[None, :, None, :])
    return both.reshape(len(rows) * len(cols), -1)


def _pixel_grams(
    lines: _LineIndex,
    cells_a: list[np.ndarray],
    cells_b: list[np.ndarray],
    a: int,
    b: int,
    sums: _PairSums,
    out: np.ndarray,
) -> None:
    """Write U_bᵀU_a over shared pixels for all pairs of two lines."""
    axis = lines.grid.rows
    start_a, start_b = (int(axis.starts[lines.at(line)[0]]) for line in (a, b))
    low, high = max(start_a, start_b), min(start_a, start_b) + axis.size
    entries = []
    for part_a, part_b in zip(cells_a, cells_b, strict=True):
        n, count, r_a = part_a.shape[:3]
        r_b = part_b.shape[2]
        u_a = part_a[..., low - start_a : high - start_a, :].reshape(n, count * r_a, -1)
        u_b = part_b[..., low - start_b : high - start_b, :].reshape(n, count * r_b, -1)
        gram = (u_a @ np.swapaxes(u_b, 1, 2)).reshape(n, count, r_a, count, r_b)
        entries.append(gram.transpose(0, 1, 3, 4, 2).reshape(-1, r_b, r_a))
    entries.append(np.zeros((1, *out.shape[2:]), dtype=out.dtype))
    by_pair = np.concatenate(entries).take(sums.order, axis=0)
    out[...] = np.add.reduceat(by_pair, sums.starts, axis=0).reshape(out.shape)


@dataclass(frozen=True, eq=False)
class _Cells:
    """Cells with equal shape and coverage, and all windows that cover them.

    Letters in shapes: c cells, w windows over a cell, r rank, p pixels of a cell, v bands. Cells
    are a product of rows and columns, windows a product of lines and columns.
    """

    scene: _BandCell
    rows: CellGroup
    cols: CellGroup
    lines: np.ndarray
    """(c, lines) lines that cover each cell."""
    windows: np.ndarray
    """(c, w) numbers of the windows over each cell, as lines · J + column."""
    weights: np.ndarray
    """(c, w, p) weights of the windows at the pixels of a cell, summing to one."""
    left: np.ndarray
    """(c, w, r, p) U."""

    @classmethod
    def gather(cls, scene: _BandCell, rows: CellGroup, cols: CellGroup) -> _Cells:
        _, n_cols, most, height, width = scene.left.shape
        per_row = scene.lines.count
        lines = rows.windows[:, :, None] * per_row + np.arange(per_row)
        lines = lines.reshape(len(rows.cells), -1)
        windows = _outer(np.add, lines * n_cols, cols.windows)
        covers = _outer(np.logical_and, np.repeat(rows.covers, per_row, axis=1), cols.covers)
        tops = np.repeat(rows.elements * width, per_row, axis=1)
        pixels = tops[:, None, :, None, :, None] + cols.elements[None, :, None, :, None, :]
        pixels = pixels.reshape(*windows.shape, -1)

        # A flat index for `take`, which releases the interpreter lock; indexing by arrays does not.
        pixels += windows[:, :, None] * (height * width)
        weights = scene.weights.ravel().take(pixels)
        weights *= covers[:, :, None]
        weights /= weights.sum(axis=1, keepdims=True)
        ranks = np.count_nonzero(scene.amplitude, axis=-1).ravel()
        rank = max(int(ranks[windows].max()), 1)
        pixels += windows[:, :, None] * ((most - 1) * height * width)
        planes = (height * width) * np.arange(rank)[:, None]
        left = scene.left.ravel().take(pixels[:, :, None] + planes)
        lines = np.repeat(lines, len(cols.cells), axis=0)
        return cls(scene, rows, cols, lines, windows, weights, left)

    def _of_windows(self, array: np.ndarray) -> np.ndarray:
        """Pick (lines, J, ...) for the windows over these cells: (c, w, ...)."""
        return array.reshape(-1, *array.shape[2:]).take(self.windows, axis=0)

    def write(
        self,
        values: np.ndarray,
        image: np.ndarray,
        origin: tuple[int, int],
        unit: np.ndarray | float = 1.0,
    ) -> None:
        """Write (c, p, v) times its unit to where the cells lie in an image (row, col, v).

        ``origin`` is the pixel of the whole cube that the image starts at.
        """
        grid = self.scene.factors.grid
        top, side = (own - other for own, other in zip(grid.origin, origin, strict=True))
        shape = len(self.rows.cells), len(self.cols.cells), self.rows.width, self.cols.width
        values = values.reshape(*shape, -1).swapaxes(1, 2)
        for row_cells, rows, own_rows in self.rows.runs(grid.rows, top):
            for col_cells, cols, own_cols in self.cols.runs(grid.cols, side):
                part = values[row_cells, own_rows, col_cells, own_cols]
                np.multiply(part, unit, out=image[rows, cols].reshape(part.shape))

    def mean(self) -> np.ndarray:
        """Return the weighted mean Σ w_a U_a d_a V_aᵀ of the windows, over the noise, (c, p, v)."""
        n, w, r, p = self.left.shape
        pixel = self.left * self._of_windows(self.scene.amplitude[:, :, :r])[..., None]
        pixel *= self.weights[:, :, None, :]
        pixel = pixel.reshape(n, w * r, p)
        most, n_bands = self.scene.output.shape[2:]
        components = (self.windows[:, :, None] * most + np.arange(r)).reshape(n, -1)
        mean, output = np.empty((n, p, n_bands)), self.scene.output.reshape(-1, n_bands)
        for few in _few(n, components.shape[1] * output[0].nbytes):
            taken = output.take(components[few], axis=0)
            np.matmul(pixel[few].swapaxes(1, 2), taken, out=mean[few])
        return mean

    def exact_variance(self, pairs: _Pairs, noise: np.ndarray | float = 1.0) -> np.ndarray:
        """Return Σ_ab w_a w_b cov_ab, (c, p, v).

        Written as Σ_ab w_a w_b (s_ab + 1 − a_a − a_b) t_ab, plus terms linear in b, plus Σ s_ab
        times the ``noise`` itself, (v,) covariances where pairs are for covariances.
        """
        rank = min(self.left.shape[2], pairs.influence.shape[2])
        scale = self._of_windows(pairs.influence[:, :, :rank])
        u = _scaled(self.left[:, :, :rank], scale[..., None])
        by_component = np.ascontiguousarray(u.swapaxes(1, 2))
        w = self.weights.astype(PRECISION)
        a = np.einsum("cwrp,cwrp->cwp", u, u)
        coefficients, positions = [], []
        s_sum = np.zeros_like(w)  # Σ_a w_a w_b s_ab for every b
        for first in range(self.lines.shape[1]):
            own, others, later, where = self._pairs_of(first, pairs)
            s = _pixel_terms(pairs.grams(where, rank), u[:, own], by_component[:, :, others])
            s_sum[:, own] += w[:, own] * np.einsum("cabp,cbp->cap", s, w[:, others])
            s_later = s[:, :, later.start - own.start :] * w[:, own, None]
            s_sum[:, later] += w[:, later] * s_later.sum(axis=1)
            both = 2 * w[:, None, others]  # a pair of lines stands for both orders
            both[:, :, : own.stop - own.start] /= 2
            s += (0.5 - a[:, own])[:, :, None]
            s += (0.5 - a[:, others])[:, None]
            s *= w[:, own, None]
            s *= both
            coefficients.append(s.reshape(len(s), -1, s.shape[3]))
            positions.append(where.reshape(len(s), -1))

        variance = pairs.sum_bands(
            np.concatenate(coefficients, axis=1), np.concatenate(positions, axis=1)
        )
        mean_a = np.sum(w * a, axis=1, keepdims=True)
        b = self._of_windows(pairs.leverage)
        variance += np.swapaxes(2 * (w * mean_a - s_sum), 1, 2) @ b
        variance += s_sum.sum(axis=1)[:, :, None] * noise
        return variance

    def _pairs_of(self, first: int, pairs: _Pairs) -> tuple[slice, slice, slice, np.ndarray]:
        """Return the windows of a line, of it and later lines, of later lines; and their pairs."""
        per_line = self.cols.windows.shape[1]
        own = slice(first * per_line, (first + 1) * per_line)
        blocks = pairs.index[self.lines[:, first, None], self.lines[:, first:]]
        columns = _pair_index(self.scene.factors.grid.cols, self.cols)  # (cols, count, count)
        columns = np.tile(columns, (len(self.rows.cells), 1, 1))
        where = blocks[:, None, :, None] * pairs.per_block + columns[:, :, None, :]
        where = where.reshape(len(columns), per_line, -1)
        return own, slice(own.start, None), slice(own.stop, None), where

    def ratio_variance(self) -> np.ndarray:
        """Return the paper's Σ_ab w_a w_b η_ab σ_a σ_b with σ² = a_u + b_v, (c, p, v)."""
        scene, grid = self.scene, self.scene.factors.grid
        u, v = self.left, self._of_windows(scene.output)
        a, b = np.einsum("cwrp,cwrp->cwp", u, u), np.einsum("cwrv,cwrv->cwv", v, v)
        std = np.sqrt(a[..., None] + b[:, :, None, :]) * self.weights[..., None]
        row, col, k = self._positions()
        eta = grid.rows.overlap(row[:, :, None], row[:, None]) / grid.rows.size
        eta = eta * (grid.cols.overlap(col[:, :, None], col[:, None]) / grid.cols.size)
        eta *= grid.bands.overlap(k[:, :, None], k[:, None]) / grid.bands.size
        n, n_windows = std.shape[:2]
        flat = std.reshape(n, n_windows, -1)
        return np.einsum("cwx,cwx->cx", eta @ flat, flat).reshape(n, a.shape[2], -1)

    def _positions(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return (c, w) the window row, window column and band window of the windows."""
        line, col = np.divmod(self.windows, self.scene.left.shape[1])
        lines = self.scene.lines
        return line // lines.count, col, lines.first + line % lines.count

    def noise_variance(self, correlation: NoiseCorrelation) -> np.ndarray:
        """Return the variance of kept components of pure noise, (c, p)."""
        scene = self.scene
        ks = slice(scene.lines.first, scene.lines.first + scene.lines.count)
        amplitude = np.sqrt(self._of_windows(_lines(scene.factors.noise_power[:, ks])))
        rho = correlation.between(scene.factors.grid, *self._positions())
        y = self.weights * amplitude[:, :, None]
        return np.einsum("cwp,cwp->cp", rho @ y, y)


@dataclass(frozen=True, eq=False)
class NoiseCorrelation:
    """Correlation of the pure-noise components of two windows, by their offset.

    It depends on the sizes of window and overlap and on the number of components, not on the
    scene, and is pooled over all pairs of windows with the same offset.
    """

    table: np.ndarray
    """(row offset, band offset, col offset) correlation; offsets in elements, absolute."""

    def between(
        self, grid: WindowGrid, rows: np.ndarray, cols: np.ndarray, bands: np.ndarray
    ) -> np.ndarray:
        """Return (c, w, w) correlations for windows at (c, w) rows, columns and band windows."""
        apart = []
        for axis, windows in ((grid.rows, rows), (grid.bands, bands), (grid.cols, cols)):
            start = axis.starts[windows]
            apart.append(np.abs(start[:, :, None] - start[:, None]))
        return self.table[tuple(apart)]


def pool_noise_correlation(parts: Iterable[Factors], run: ParallelMap) -> NoiseCorrelation:
    """Pool ρ = Σ_shared N_a N_b / (shared elements · √(q_a q_b)) over pairs with equal offset.

    N = U D Vᵀ of the noise components alone, so Σ_shared N_a N_b is the sum over the elementwise
    product of (U D)_bᵀ(U D)_a over shared pixels with V_bᵀV_a over shared bands. A sample of the
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


def sampled_regions(grid: WindowGrid) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Return the windows, as (first, stop) of rows and columns, that noise is pooled over.

    The whole of an axis no longer than a block; else half a block at its start, middle and end.
    """
    ends = []
    for axis in (grid.rows, grid.cols):
        n, block = len(axis), BLOCK * axis.size // axis.step
        if n <= block:
            ends.append([(0, n)])
        else:
            half = max(block // 2, 1)
            ends.append([(first, first + half) for first in (0, (n - half) // 2, n - half)])
    return [(rows, cols) for rows in ends[0] for cols in ends[1]]


def _pair_powers(factors: Factors, run: ParallelMap) -> tuple[np.ndarray, np.ndarray]:
    """Return Σ products of shared noise and Σ of what full correlation would give, by offset."""
    grid = factors.grid
    scaled = (factors.singular_values * (1 - factors.is_signal)).astype(PRECISION)
    left = _lines(factors.left * scaled[..., None, None]).astype(PRECISION)
    right = _lines(factors.right).astype(PRECISION)
    amplitude = _lines(np.sqrt(factors.noise_power))
    lines = _LineIndex(grid, 0, grid.shape[2])
    sums = _PairSums.create(grid.cols)
    reach, n_cols = grid.cols.reach, len(grid.cols)
    other = np.arange(n_cols)[:, None] + np.arange(-reach, reach + 1)
    exists = (other >= 0) & (other < n_cols)
    other = np.clip(other, 0, n_cols - 1)
    shared_cols = grid.cols.overlap(np.arange(n_cols)[:, None], other) * exists
    offset_cols = np.abs(grid.cols.starts[:, None] - grid.cols.starts[other]) % grid.cols.size

    def pool(pair: tuple[int, int]) -> tuple[int, int, np.ndarray, np.ndarray]:
        a, b = pair
        cells_a, cells_b = (_all_cells(left[line], grid.cols) for line in pair)
        pixels = np.zeros((n_cols, 2 * reach + 1, *left.shape[2:3] * 2), dtype=PRECISION)
        _pixel_grams(lines, cells_a, cells_b, a, b, sums, out=pixels)
        bands = _band_grams(lines, right[a], right[b], a, b).reshape(pixels.shape)
        product = np.einsum("jsxy,jsxy->js", pixels, bands)
        (row_a, band_a), (row_b, band_b) = lines.at(a), lines.at(b)
        shared = grid.rows.overlap(row_a, row_b) * grid.bands.overlap(band_a, band_b)
        power = shared * shared_cols * amplitude[a][:, None] * amplitude[b][other]
        dr = abs(int(grid.rows.starts[row_a] - grid.rows.starts[row_b]))
        dk = abs(int(grid.bands.starts[band_a] - grid.bands.starts[band_b]))
        return dr, dk, product * (shared_cols > 0), power

    stride = max(1, len(grid.rows) // SAMPLED_ROWS)
    sample = [
        (a, b)
        for a, b in lines.overlapping(lines.of_rows(0, len(grid.rows)))
        if lines.at(a)[0] % stride == 0
    ]
    products = np.zeros((grid.rows.size, grid.bands.size, grid.cols.size))
    powers = np.zeros_like(products)
    for dr, dk, product, power in run(pool, sample):
        np.add.at(products[dr, dk], offset_cols, product)
        np.add.at(powers[dr, dk], offset_cols, power)
    return products, powers
