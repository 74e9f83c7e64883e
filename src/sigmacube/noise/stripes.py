"""Stripes: columns or rows that carry an offset of their own in some bands.

A window cannot tell a stripe from signal: an offset along a whole column of the window is of low
rank. The scene can, because an offset that runs the length of the image in a single column and in
few bands, unlike their neighbours, is no surface. Striped lines are treated as missing in the
bands where they are striped.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
from scipy.ndimage import median_filter

__all__ = ["find_stripes", "striped_lines"]

Block = Callable[[slice, slice], tuple[np.ndarray, np.ndarray]]
Lines = Callable[[slice, int, int], tuple[np.ndarray, np.ndarray]]
# Elements of the lines that are looked at together.
STREAMED = 4_000_000

# Lines that the level of a line is compared with, itself included.
NEIGHBOURHOOD = 9
# Bands that an offset is compared with, itself included.
BANDS = 7
# Offsets must exceed this many standard errors, and this many noise std.
SIGNIFICANT, NOTABLE = 6.0, 1.0
# Parts of a line; how far an offset may differ between them, as a share of it beside chance;
# chosen while looking at benchmarks/honesty.py.
PARTS, EVEN, CHANCE = 4, 0.1, 3.0
# A line that stands out in more than this share of the bands is a surface: a road, a canal.
LARGEST_SHARE = 0.3
FEWEST_LINES = 2 * NEIGHBOURHOOD


def find_stripes(block: Block, shape: tuple[int, int, int]) -> tuple[np.ndarray, np.ndarray] | None:
    """Return striped columns (cols, bands) and rows (rows, bands); None if there are none.

    Parameters
    ----------
    block
        ``block(rows, cols)`` gives values (row, col, band) of unit noise, and where they are there.
    shape
        Rows, columns and bands of the scene.

    Examples
    --------
    >>> import numpy as np
    >>> cube = np.random.default_rng(0).normal(size=(50, 40, 12))
    >>> there = np.ones((50, 40, 1), dtype=bool)
    >>> find_stripes(lambda rows, cols: (cube[rows, cols], there[rows, cols]), cube.shape) is None
    True
    >>> cube[:, 17, 2] += 4
    >>> columns, rows = find_stripes(
    ...     lambda rows, cols: (cube[rows, cols], there[rows, cols]), cube.shape
    ... )
    >>> np.argwhere(columns).tolist(), bool(rows.any())
    ([[17, 2]], False)
    """
    n_rows, n_cols, n_bands = shape

    def of_rows(part: slice, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        values, there = block(slice(start, stop), part)
        return values.swapaxes(0, 1), there.swapaxes(0, 1)

    columns = striped_lines(
        n_cols, n_rows, n_bands, lambda part, start, stop: block(part, slice(start, stop))
    )
    rows = striped_lines(n_rows, n_cols, n_bands, of_rows)
    return (columns, rows) if columns.any() or rows.any() else None


def striped_lines(n_lines: int, length: int, n_bands: int, lines: Lines) -> np.ndarray:
    """Return (lines, bands) True for lines that carry an offset of their own.

    Parameters
    ----------
    n_lines, length, n_bands
        Number of lines, elements along them, bands.
    lines
        ``lines(part, start, stop)`` gives values of unit noise and validity, both (length, line,
        band), of some lines, on a part (slice) of their length.
    """
    striped = np.zeros((n_lines, n_bands), dtype=bool)
    if n_lines < FEWEST_LINES or length < FEWEST_LINES or n_bands < BANDS:
        return striped
    ends = np.linspace(0, length, PARTS + 1).astype(int)
    parts = [slice(int(a), int(b)) for a, b in itertools.pairwise(ends)]
    steps = np.zeros((PARTS, n_lines, n_bands))
    together = max(1, STREAMED // (length * n_bands))
    for start in range(1, n_lines, together):
        stop = min(start + together, n_lines)
        for number, part in enumerate(parts):
            steps[number, start:stop] = _steps(*lines(part, start - 1, stop))
    every = np.array([_offsets(step) for step in steps])
    offset = every.mean(axis=0)
    # Spread of the offsets of lines that are not striped: noise, and signal along the lines.
    spread = 1.4826 * np.median(np.abs(offset), axis=0)
    threshold = np.maximum(SIGNIFICANT * spread, NOTABLE)
    # A stripe runs the whole length and is as strong everywhere; the edge of a field hardly ever.
    uneven = np.abs(every - offset).max(axis=0)
    chance = CHANCE * np.sqrt(PARTS) * np.maximum(spread, 1 / np.sqrt(length))
    striped = (np.abs(offset) > threshold) & (uneven < np.abs(offset) * EVEN + chance)
    striped[striped.mean(axis=1) > LARGEST_SHARE] = False
    return striped


def _steps(white: np.ndarray, valid: np.ndarray) -> np.ndarray:
    """Return (lines − 1, bands) the median step from every line to the next."""
    steps = np.zeros((white.shape[1] - 1, white.shape[2]))
    for line in range(1, white.shape[1]):
        both = valid[:, line] & valid[:, line - 1]
        difference = white[:, line] - white[:, line - 1]
        if not both.all():
            difference = np.where(both, difference, np.nan)
        steps[line - 1] = _median(difference)
    return steps


def _offsets(steps: np.ndarray) -> np.ndarray:
    """Return (lines, bands) the level of every line over that of lines and bands around it."""
    level = np.cumsum(steps, axis=0)
    offset = level - median_filter(level, size=(NEIGHBOURHOOD, 1), mode="mirror")
    # What neighbouring bands share is a surface; the offsets of a stripe differ from band to band.
    return offset - median_filter(offset, size=(1, BANDS), mode="mirror")


def _median(differences: np.ndarray) -> np.ndarray:
    """Return the median of every band, zero for bands without values."""
    if not np.isnan(differences).any():
        return np.median(differences, axis=0)
    known = ~np.isnan(differences).all(axis=0)
    medians = np.zeros(differences.shape[1])
    medians[known] = np.nanmedian(differences[:, known], axis=0)
    return medians
