"""Geometry of the sliding windows: where they start, what they cover, where they overlap.

This is the only module that knows geometry. A `WindowGrid` is three independent axes (rows,
columns, bands). Along one axis the elements covered by the same windows form a *cell*; the windows
that cover a cell are consecutive, which is all that the overlap formulas need.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

__all__ = ["Axis", "CellGroup", "WindowGrid"]

WindowSpec = int | tuple[int, int] | tuple[int, int, int | None]


@dataclass(frozen=True)
class CellGroup:
    """Cells of one axis that have the same width and are covered by the same number of windows."""

    cells: np.ndarray
    """(cells,) indices of the cells."""
    width: int
    """Elements in each of them."""
    windows: np.ndarray
    """(cells, count) indices of the windows that cover each cell, ascending."""
    offsets: np.ndarray
    """(cells, count) where the cell starts inside each of these windows."""


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

    @cached_property
    def starts(self) -> np.ndarray:
        """(windows,) first element of every window."""
        starts = np.arange(0, self.length - self.size + 1, self.step)
        last = self.length - self.size
        return starts if starts[-1] == last else np.append(starts, last)

    @cached_property
    def edges(self) -> np.ndarray:
        """(cells + 1,) boundaries of the cells."""
        return np.unique(np.concatenate([self.starts, self.starts + self.size]))

    @cached_property
    def first(self) -> np.ndarray:
        """(cells,) first window that covers each cell."""
        return np.searchsorted(self.starts + self.size, self.edges[:-1], side="right")

    @cached_property
    def count(self) -> np.ndarray:
        """(cells,) how many windows cover each cell."""
        return np.searchsorted(self.starts, self.edges[:-1], side="right") - self.first

    @cached_property
    def reach(self) -> int:
        """How many windows ahead of a window still overlap it, at most."""
        return int(self.count.max()) - 1

    @cached_property
    def groups(self) -> tuple[CellGroup, ...]:
        """The cells, grouped by width and number of covering windows."""
        width = np.diff(self.edges)
        groups = []
        for w, c in sorted({(int(w), int(c)) for w, c in zip(width, self.count, strict=True)}):
            cells = np.flatnonzero((width == w) & (self.count == c))
            windows = self.first[cells, None] + np.arange(c)
            offsets = self.edges[cells, None] - self.starts[windows]
            groups.append(CellGroup(cells, w, windows, offsets))
        return tuple(groups)

    def slice(self, window: int) -> slice:
        """Return the elements of one window."""
        start = int(self.starts[window])
        return slice(start, start + self.size)

    def overlap(self, a: np.ndarray | int, b: np.ndarray | int) -> np.ndarray:
        """Return how many elements windows ``a`` and ``b`` share."""
        return np.maximum(0, self.size - np.abs(self.starts[a] - self.starts[b]))

    def covering(self, element: int) -> np.ndarray:
        """Return the indices of the windows that cover one element."""
        cell = int(np.searchsorted(self.edges, element, side="right")) - 1
        return self.first[cell] + np.arange(self.count[cell])

    def __len__(self) -> int:
        return len(self.starts)


@dataclass(frozen=True)
class WindowGrid:
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
    def shape(self) -> tuple[int, int, int]:
        """Number of windows along (rows, cols, bands)."""
        return len(self.rows), len(self.cols), len(self.bands)

    @property
    def window(self) -> tuple[int, int, int]:
        """Size of one window (rows, cols, bands)."""
        return self.rows.size, self.cols.size, self.bands.size

    @property
    def cube_shape(self) -> tuple[int, int, int]:
        """Shape of the cube (rows, cols, bands)."""
        return self.rows.length, self.cols.length, self.bands.length

    def slices(self, i: int, j: int, k: int = 0) -> tuple[slice, slice, slice]:
        """Return the part of the cube that window (i, j, k) covers."""
        return self.rows.slice(i), self.cols.slice(j), self.bands.slice(k)

    def coverage(self) -> np.ndarray:
        """Return how many windows cover each pixel (of one band window), φ in the paper."""
        rows, cols = (np.repeat(a.count, np.diff(a.edges)) for a in (self.rows, self.cols))
        return rows[:, None] * cols


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
