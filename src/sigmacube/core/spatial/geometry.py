"""Windows of one size over a scene: which of them cover a region, and how often a pixel is covered.

Windows are anchored to the scene, so that a region finds the same windows whatever the tiling.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from sigmacube.core.windows import Axis

__all__ = ["Block", "Box", "Windows", "added_up", "covering_box", "grow", "window_sizes"]

Block = Callable[[slice, slice], tuple[np.ndarray, np.ndarray | None]]
"""``block(rows, cols)`` returns the whitened values (row, col, P), unit noise, zero where missing,
and which of them are kept (row, col, P), or None where all are."""


@dataclass(frozen=True)
class Box:
    """A rectangle of pixels, or of windows: rows ``top`` to ``bottom`` − 1, likewise columns."""

    top: int
    bottom: int
    left: int
    right: int

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.bottom - self.top, self.right - self.left

    @property
    def slices(self) -> tuple[slice, slice]:
        """The same as slices of the scene."""
        return slice(self.top, self.bottom), slice(self.left, self.right)

    def within(self, outer: Box) -> tuple[slice, slice]:
        """Return this box as slices of an array that holds ``outer``."""
        return (
            slice(self.top - outer.top, self.bottom - outer.top),
            slice(self.left - outer.left, self.right - outer.left),
        )

    def union(self, other: Box) -> Box:
        """Return the smallest box that holds both."""
        return Box(
            min(self.top, other.top),
            max(self.bottom, other.bottom),
            min(self.left, other.left),
            max(self.right, other.right),
        )


def grow(box: Box, margin: int, shape: tuple[int, int]) -> Box:
    """Return the box with a margin on all sides, cut at the edges of the scene."""
    return Box(
        max(box.top - margin, 0),
        min(box.bottom + margin, shape[0]),
        max(box.left - margin, 0),
        min(box.right + margin, shape[1]),
    )


@dataclass(frozen=True)
class Windows:
    """All windows of one size over a scene.

    Examples
    --------
    >>> windows = Windows.create((11, 30), size=8, step=2)
    >>> windows.side
    (8, 8)
    >>> windows.over(Box(0, 1, 12, 14))
    Box(top=0, bottom=1, left=3, right=7)
    """

    rows: Axis
    cols: Axis

    @classmethod
    def create(cls, shape: tuple[int, int], size: int, step: int) -> Windows:
        """Return the windows of a scene (rows, cols); no larger than the scene is."""
        sides = [min(size, length) for length in shape]
        axes = [Axis(n, side, min(step, side)) for n, side in zip(shape, sides, strict=True)]
        return cls(*axes)

    @property
    def side(self) -> tuple[int, int]:
        """Rows and columns of one window."""
        return self.rows.size, self.cols.size

    def over(self, box: Box) -> Box:
        """Return the box of windows that cover some pixel of a box of pixels."""
        top, bottom = self.rows.windows_over(box.top, box.bottom)
        left, right = self.cols.windows_over(box.left, box.right)
        return Box(top, bottom, left, right)

    def span(self, windows: Box) -> Box:
        """Return the pixels that a box of windows covers."""
        rows, cols = self.rows.starts, self.cols.starts
        return Box(
            int(rows[windows.top]),
            int(rows[windows.bottom - 1]) + self.rows.size,
            int(cols[windows.left]),
            int(cols[windows.right - 1]) + self.cols.size,
        )

    def coverage(self, box: Box) -> np.ndarray:
        """Return how many windows cover each pixel of a box."""
        rows, cols = (np.repeat(a.count, np.diff(a.edges)) for a in (self.rows, self.cols))
        return np.outer(rows[box.top : box.bottom], cols[box.left : box.right])

    def views(self) -> tuple[np.ndarray, np.ndarray]:
        """Return which window rows and columns the error model looks through.

        All windows see the same error of the final estimate, so every other one, as long as
        neighbours still overlap by half, says as much as all of them.
        """
        return _thinned(self.rows), _thinned(self.cols)


def _thinned(axis: Axis) -> np.ndarray:
    """Return (windows,) bool: those about half a window apart, and the last."""
    every = max(round(axis.size / (2 * axis.step)), 1)
    chosen = np.arange(len(axis)) % every == 0
    chosen[-1] = True
    return chosen


def added_up(windows: Windows, part: Box, values: np.ndarray) -> np.ndarray:
    """Return the sum over a box of windows, at every pixel that they cover.

    Windows that do not overlap are added at once; which ones these are the scene says, so that a
    pixel's sum does not depend on which others are in the box.

    Parameters
    ----------
    part
        Rows and columns of windows.
    values
        (window rows, window cols, rows, cols, n) values of each window.
    """
    span = windows.span(part)
    total = np.zeros((*span.shape, values.shape[4]), dtype=values.dtype)
    down, across, along = total.strides
    for rows, top, y in _apart(windows.rows, part.top, part.bottom):
        for cols, left, x in _apart(windows.cols, part.left, part.right):
            mine = values[rows, cols]
            to = total[top - span.top :, left - span.left :]
            strides = (y * down, x * across, down, across, along)
            np.lib.stride_tricks.as_strided(to, mine.shape, strides)[...] += mine
    return total


def _apart(axis: Axis, first: int, stop: int) -> list[tuple[slice, int, int]]:
    """Return windows that do not overlap: slices from ``first``, first pixel, distance in pixels.

    Examples
    --------
    >>> _apart(Axis(13, 4, 3), 0, 4)
    [(slice(0, 4, 2), 0, 6), (slice(1, 4, 2), 3, 6)]
    >>> _apart(Axis(12, 4, 3), 1, 4)
    [(slice(1, 2, 2), 6, 6), (slice(0, 2, 2), 3, 6), (slice(2, 3, 1), 8, 1)]
    """
    regular = len(axis) - 1 if axis.starts[-1] % axis.step else len(axis)
    end, every = min(stop, regular), -(-axis.size // axis.step)
    found = []
    for phase in range(every):
        start = first + (phase - first) % every
        if start < end:
            found.append((slice(start - first, end - first, every), start * axis.step,
                          every * axis.step))  # fmt: skip
    if stop > regular:
        found.append((slice(regular - first, regular - first + 1, 1), int(axis.starts[-1]), 1))
    return found


def window_sizes(
    shape: tuple[int, int], windows: tuple[tuple[int, int], ...]
) -> tuple[Windows, ...]:
    """Return the windows of every size; sizes that a small scene makes equal are taken once."""
    sizes: list[Windows] = []
    for size, step in windows:
        grid = Windows.create(shape, size, step)
        if all(grid.side != other.side for other in sizes):
            sizes.append(grid)
    return tuple(sizes)


def covering_box(sizes: tuple[Windows, ...], box: Box) -> Box:
    """Return the pixels under all windows, of all sizes, that cover a box."""
    spans = [windows.span(windows.over(box)) for windows in sizes]
    result = spans[0]
    for span in spans[1:]:
        result = result.union(span)
    return result
