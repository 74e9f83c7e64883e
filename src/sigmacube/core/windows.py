"""Geometry of the sliding windows: where they start, what they cover, where they overlap.

This is the only module that knows geometry. A `WindowGrid` is three independent axes (rows,
columns, bands). Along one axis the elements covered by the same windows form a *cell*; the windows
that cover a cell are consecutive, which is all that the overlap formulas need.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from sigmacube.core.card import Card, size_of

# Side of the blocks that overlapping windows are combined in, in windows. Windows over two blocks
# are paired in both, but the pairs of a small block stay in the cache: 2 took the least time of
# 1, 2, 4 and 8 with 3 and with 27 components, and lets tiles be as small as two windows.
BLOCK = 2

WindowSpec = int | tuple[int, int] | tuple[int, int, int | None]


Span = tuple[int, int]
"""First and end."""


@dataclass(frozen=True)
class Cell:
    """Neighbouring elements of an axis that the same windows cover."""

    elements: slice
    windows: slice

    def within(self, start: int) -> slice:
        """Return the elements, counted from the start of a window."""
        return slice(self.elements.start - start, self.elements.stop - start)


@dataclass(frozen=True)
class Axis:
    """Windows of one size along one axis.

    Starts are 0, step, 2 step, ... and, where the last one does not end on the edge, one more
    window that does.

    Examples
    --------
    >>> axis = Axis(length=11, size=4, step=3)
    >>> axis.starts
    array([0, 3, 6, 7])
    >>> axis.edges
    array([ 0,  3,  4,  6,  7, 10, 11])
    >>> axis.count
    array([1, 2, 1, 2, 2, 1])
    """

    length: int
    size: int
    step: int
    whole: Axis | None = None
    """The axis that this one is a part of; None where it is no part."""
    first_window: int = 0
    """Window of the whole axis that this one starts with."""
    starts: np.ndarray = field(init=False, compare=False, repr=False)
    """(windows,) first element of every window."""
    edges: np.ndarray = field(init=False, compare=False, repr=False)
    """(cells + 1,) boundaries of the cells: where the whole axis has them, so that sums over the
    cells of a part have the same terms."""
    first: np.ndarray = field(init=False, compare=False, repr=False)
    """(cells,) first window that covers each cell."""
    count: np.ndarray = field(init=False, compare=False, repr=False)
    """(cells,) how many windows cover each cell."""
    reach: int = field(init=False, compare=False, repr=False)
    """How many windows ahead of a window still overlap it, at most."""
    origin: int = field(init=False, compare=False, repr=False)
    """Element of the whole axis that this axis starts at."""

    def __post_init__(self) -> None:
        if self.whole is None:
            origin, last = 0, self.length - self.size
            starts = np.arange(0, last + 1, self.step)
            starts = starts if starts[-1] == last else np.append(starts, last)
            edges = np.unique(np.concatenate([starts, starts + self.size]))
        else:
            origin = int(self.whole.starts[self.first_window])
            starts = self.whole.starts[self.first_window :] - origin
            starts = starts[starts + self.size <= self.length]
            edges = self.whole.edges - origin
            edges = edges[(edges >= 0) & (edges <= self.length)]
        first = np.searchsorted(starts + self.size, edges[:-1], side="right")
        count = np.searchsorted(starts, edges[:-1], side="right") - first
        reach = int(count.max()) - 1 if self.whole is None else self.whole.reach
        found: dict[str, Any] = {"starts": starts, "edges": edges, "first": first, "count": count}
        found |= {"reach": reach, "origin": origin}
        for name, value in found.items():
            object.__setattr__(self, name, value)

    @property
    def root(self) -> Axis:
        """The whole axis that this one is a part of, or is."""
        return self if self.whole is None else self.whole

    def part(self, first: int, stop: int) -> Axis:
        """Return the axis that windows ``first`` to ``stop`` − 1 of this one span.

        Examples
        --------
        >>> part = Axis(length=23, size=4, step=3).part(2, 5)
        >>> part.origin, part.length
        (6, 10)
        >>> part.starts
        array([0, 3, 6])
        >>> part.edges
        array([ 0,  1,  3,  4,  6,  7,  9, 10])
        """
        length = int(self.starts[stop - 1] - self.starts[first]) + self.size
        return Axis(length, self.size, self.step, self.root, self.first_window + first)

    def windows_over(self, start: int, stop: int) -> Span:
        """Return the first of the windows that cover elements start to stop − 1, and their end."""
        first = int(np.searchsorted(self.starts + self.size, start, side="right"))
        return first, int(np.searchsorted(self.starts, stop, side="left"))

    @cached_property
    def blocks(self) -> tuple[Span, ...]:
        """Parts (start, stop) of the axis, cut at cells, that are combined on their own."""
        side = max(BLOCK * self.size // self.step, 1) * self.step
        number = np.minimum(self.edges[:-1], max(self.length - self.size, 0)) // side
        cuts = self.edges[:-1][np.flatnonzero(np.diff(number, prepend=-1))].tolist()
        return tuple(zip(cuts, [*cuts[1:], self.length], strict=True))

    def cells(self, start: int = 0, stop: int | None = None) -> list[Cell]:
        """Return the cells between two edges; all by default.

        Examples
        --------
        >>> [(c.elements.start, c.windows) for c in Axis(length=11, size=4, step=3).cells(6)]
        [(6, slice(1, 3, None)), (7, slice(2, 4, None)), (10, slice(3, 4, None))]
        """
        stop = self.length if stop is None else stop
        return [
            Cell(slice(low, high), slice(first, first + count))
            for low, high, first, count in zip(
                self.edges[:-1].tolist(), self.edges[1:].tolist(), self.first.tolist(),
                self.count.tolist(), strict=True,
            )
            if start <= low < stop
        ]  # fmt: skip

    def slice(self, window: int) -> slice:
        """Return the elements of one window."""
        start = int(self.starts[window])
        return slice(start, start + self.size)

    def __len__(self) -> int:
        return len(self.starts)


@dataclass(frozen=True)
class Block:
    """A part of the cube, cut at cells, whose values are computed on their own."""

    rows: Span
    """First row and end, in the whole cube."""
    cols: Span
    """First column and end."""

    def windows(self, grid: WindowGrid) -> tuple[Span, Span]:
        """Return the window rows and columns of a grid that cover the block, as (first, stop)."""
        rows, cols = (
            axis.windows_over(start - axis.origin, stop - axis.origin)
            for axis, (start, stop) in ((grid.rows, self.rows), (grid.cols, self.cols))
        )
        return rows, cols

    def within(self, origin: tuple[int, int]) -> tuple[slice, slice]:
        """Return its pixels in an image that starts at a pixel of the whole cube."""
        top, side = origin
        rows, cols = self.rows, self.cols
        return slice(rows[0] - top, rows[1] - top), slice(cols[0] - side, cols[1] - side)


@dataclass(frozen=True)
class WindowGrid(Card):
    """Overlapping windows over a cube (row, col, band); all bands unless a third size is given.

    Examples
    --------
    >>> grid = WindowGrid.create((30, 41, 5), window=20, step=4)
    >>> grid.shape
    (4, 7, 1)
    >>> grid.coverage()[0, 0], grid.coverage()[15, 20]
    (np.int64(1), np.int64(20))
    """

    rows: Axis
    cols: Axis
    bands: Axis
    origin: tuple[int, int] = field(init=False, compare=False, repr=False)
    """Pixel (row, col) of the whole cube that this grid starts at."""
    shape: tuple[int, int, int] = field(init=False, compare=False, repr=False)
    """Number of windows along (rows, cols, bands)."""
    window: tuple[int, int, int] = field(init=False, compare=False, repr=False)
    """Size of one window (rows, cols, bands)."""
    cube_shape: tuple[int, int, int] = field(init=False, compare=False, repr=False)
    """Shape of the cube (rows, cols, bands)."""
    pixels: tuple[slice, slice] = field(init=False, compare=False, repr=False)
    """Rows and columns of the whole cube that this grid covers."""

    def __post_init__(self) -> None:
        axes = self.rows, self.cols, self.bands
        sizes: dict[str, tuple] = {"origin": tuple(axis.origin for axis in axes[:2])}
        sizes["shape"] = tuple(len(axis.starts) for axis in axes)
        sizes["window"] = tuple(axis.size for axis in axes)
        sizes["cube_shape"] = tuple(axis.length for axis in axes)
        sizes["pixels"] = tuple(slice(a.origin, a.origin + a.length) for a in axes[:2])
        for name, value in sizes.items():
            object.__setattr__(self, name, value)

    def _facts(self) -> Mapping[str, str]:
        axes = (self.rows, self.cols, self.bands)
        return {
            "size": size_of([axis.length for axis in axes]),
            "window": " × ".join(str(axis.size) for axis in axes),
            "windows": " × ".join(str(len(axis)) for axis in axes),
        }

    @classmethod
    def create(
        cls, shape: tuple[int, int, int], *, window: WindowSpec = 20, step: WindowSpec = 4
    ) -> WindowGrid:
        """Return the grid for a cube of ``shape`` (rows, cols, bands).

        Parameters
        ----------
        shape
            Shape of the cube.
        window, step
            One int for rows and columns with all bands, or one per axis, ``(rows, cols)`` or
            ``(rows, cols, bands)``, where None for the bands means all of them (for the step:
            band windows side by side).
        """
        sizes = _per_axis("window", window, shape)
        steps = _per_axis("step", step, sizes)
        for name, length, size, stride in zip(
            ("rows", "cols", "bands"), shape, sizes, steps, strict=True
        ):
            smallest = 1 if name == "bands" else 2
            if not smallest <= size <= length:
                raise ValueError(
                    f"Invalid window {size} along {name}. It must be at least {smallest} and at "
                    f"most the {length} {name} of the cube."
                )
            if not 1 <= stride <= size:
                raise ValueError(
                    f"Invalid step {stride} along {name}. It must be at least 1 and at most the "
                    f"window, {size}: every element must be covered."
                )
        return cls(*(Axis(*spec) for spec in zip(shape, sizes, steps, strict=True)))

    @property
    def root(self) -> WindowGrid:
        """The grid of the whole cube that this one is a part of."""
        return WindowGrid(self.rows.root, self.cols.root, self.bands)

    def part(self, rows: Span, cols: Span) -> WindowGrid:
        """Return the grid of window rows and columns (first, stop), on the pixels they span.

        Examples
        --------
        >>> WindowGrid.create((30, 41, 5), window=20, step=4).part((1, 3), (0, 7)).cube_shape
        (24, 41, 5)
        """
        return WindowGrid(self.rows.part(*rows), self.cols.part(*cols), self.bands)

    def blocks(self, rows: Span | None = None, cols: Span | None = None) -> list[Block]:
        """Return the blocks of the whole cube that meet some rows and columns; all by default."""
        wanted = []
        for axis, part in ((self.rows.root, rows), (self.cols.root, cols)):
            start, stop = part or (0, axis.length)
            wanted.append([block for block in axis.blocks if block[0] < stop and block[1] > start])
        return [Block(row, col) for row in wanted[0] for col in wanted[1]]

    def complete_blocks(self) -> list[Block]:
        """Return the blocks of the whole cube whose windows are all in this grid."""
        return [
            block
            for block in self.blocks()
            if all(
                axis.starts[0] <= axis.root.starts[start] - axis.origin
                and axis.root.starts[stop - 1] - axis.origin <= axis.starts[-1]
                for axis, (start, stop) in zip(
                    (self.rows, self.cols), block.windows(self.root), strict=True
                )
            )
        ]

    def slices(self, i: int, j: int, k: int = 0) -> tuple[slice, slice, slice]:
        """Return the part of the cube that window (i, j, k) covers."""
        return self.rows.slice(i), self.cols.slice(j), self.bands.slice(k)

    def coverage(self) -> np.ndarray:
        """Return how many windows cover each pixel (of one band window), φ in the paper."""
        rows, cols = (np.repeat(a.count, np.diff(a.edges)) for a in (self.rows, self.cols))
        return rows[:, None] * cols


def window_sides(settings: Mapping[str, Any], key: str) -> tuple[int, int] | None:
    """Return (rows, cols) of the ``window`` or ``step`` setting, or None where it is absent.

    Examples
    --------
    >>> window_sides({"window": 20}, "window"), window_sides({"step": [4, 5, None]}, "step")
    ((20, 20), (4, 5))
    """
    value = settings.get(key)
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        return int(value), int(value)
    if isinstance(value, Sequence) and len(value) >= 2 and all(value[:2]):
        return int(value[0]), int(value[1])
    return None


def windows_of(settings: Mapping[str, Any], size: Sequence[int]) -> tuple[Axis, Axis] | None:
    """Return the windows of a result of a size, rows and columns, by its settings, if these tell.

    Examples
    --------
    >>> rows, cols = windows_of({"window": 20, "step": 4}, (30, 15))
    >>> rows.starts, cols.size
    (array([ 0,  4,  8, 10]), 15)
    """
    window, step = window_sides(settings, "window"), window_sides(settings, "step")
    if window is None or step is None:
        return None
    rows, cols = (Axis(n, min(w, n), s) for n, w, s in zip(size, window, step, strict=False))
    return rows, cols


def nearest_windows(
    settings: Mapping[str, Any],
    size: Sequence[int],
    counts: Sequence[int],
    pixels: Sequence[np.ndarray],
) -> tuple[np.ndarray, np.ndarray]:
    """Return (rows,) and (cols,) the windows of a result that are centred nearest to pixels.

    Where its settings do not tell the windows, so many of them are spread evenly over the size.

    Examples
    --------
    >>> rows, cols = nearest_windows({}, (4, 9), (2, 3), (np.arange(4), np.arange(9)))
    >>> rows, cols
    (array([0, 0, 1, 1]), array([0, 0, 0, 1, 1, 1, 2, 2, 2]))
    """
    axes, chosen = windows_of(settings, size), []
    for n in (0, 1):
        centres = (np.arange(counts[n]) + 0.5) * size[n] / counts[n] - 0.5
        if axes is not None and len(axes[n]) == counts[n]:
            centres = axes[n].starts + (axes[n].size - 1) / 2
        chosen.append(np.abs(pixels[n][:, None] - centres).argmin(axis=1))
    return chosen[0], chosen[1]


def _per_axis(name: str, value: WindowSpec, whole: tuple[int, int, int]) -> tuple[int, int, int]:
    """Spell out a size given as an int or per axis; bands that are not given are ``whole``."""
    given = tuple(value) if isinstance(value, tuple | list) else (value, value)
    parts = (*given, None) if len(given) == 2 else given
    sizes = parts[:2] if parts[-1] is None else parts
    if len(parts) != 3 or not all(isinstance(p, int | np.integer) for p in sizes):
        raise ValueError(
            f"Invalid {name} {value!r}. It must be an int, (rows, cols) or (rows, cols, bands) of "
            "ints, with None for all bands."
        )
    rows, cols, bands = (w if p is None else int(p) for p, w in zip(parts, whole, strict=True))
    return rows, cols, bands
