"""Stripes: columns or rows that carry an offset of their own in some bands.

A window cannot tell a stripe from signal: an offset along a whole column of the window is of low
rank. The scene can, because an offset that runs the length of the image in a single column and in
few bands, unlike their neighbours, is no surface. Striped lines are treated as missing in the
bands where they are striped.
"""

from __future__ import annotations

import numpy as np
from scipy.ndimage import median_filter

__all__ = ["find_stripes"]

# Lines that the level of a line is compared with, itself included.
NEIGHBOURHOOD = 9
# Bands that an offset is compared with, itself included.
BANDS = 7
# Offsets must exceed this many standard errors, and this many noise std.
SIGNIFICANT, NOTABLE = 6.0, 1.0
# A line that stands out in more than this share of the bands is a surface: a road, a canal.
LARGEST_SHARE = 0.3
FEWEST_LINES = 2 * NEIGHBOURHOOD


def find_stripes(white: np.ndarray, valid: np.ndarray) -> np.ndarray | None:
    """Return the elements of striped columns and rows, (row, col, band); None if there are none.

    Parameters
    ----------
    white
        (row, col, band) cube of unit noise.
    valid
        (row, col, band) or (row, col, 1) True where values are there.

    Examples
    --------
    >>> import numpy as np
    >>> cube = np.random.default_rng(0).normal(size=(50, 40, 12))
    >>> find_stripes(cube, np.ones((50, 40, 1), dtype=bool)) is None
    True
    >>> cube[:, 17, 2] += 4
    >>> striped = find_stripes(cube, np.ones((50, 40, 1), dtype=bool))
    >>> np.argwhere(striped.all(axis=0)).tolist()
    [[17, 2]]
    """
    columns = _striped_lines(white, valid)
    rows = _striped_lines(white.swapaxes(0, 1), valid.swapaxes(0, 1))
    if not columns.any() and not rows.any():
        return None
    return columns[None, :, :] | rows[:, None, :]


def _striped_lines(white: np.ndarray, valid: np.ndarray) -> np.ndarray:
    """Return (lines, bands) True for lines along the first axis that carry an offset."""
    length, n_lines, n_bands = white.shape
    striped = np.zeros((n_lines, n_bands), dtype=bool)
    if n_lines < FEWEST_LINES or length < FEWEST_LINES or n_bands < BANDS:
        return striped
    half = length // 2
    first, second = (_offsets(white[part], valid[part]) for part in np.s_[:half, half:])
    offset = (first + second) / 2
    # Spread of the offsets of lines that are not striped: noise, and signal along the lines.
    spread = 1.4826 * np.median(np.abs(offset), axis=0)
    threshold = np.maximum(SIGNIFICANT * spread, NOTABLE)
    # A stripe runs the whole length; the edge of a field hardly ever does.
    lasting = np.where(np.sign(first) == np.sign(second), np.minimum(*np.abs([first, second])), 0)
    striped = (np.abs(offset) > threshold) & (lasting > threshold / 2)
    striped[striped.mean(axis=1) > LARGEST_SHARE] = False
    return striped


def _offsets(white: np.ndarray, valid: np.ndarray) -> np.ndarray:
    """Return (lines, bands) the level of every line over that of lines and bands around it."""
    steps = np.zeros(white.shape[1:])
    for line in range(1, len(steps)):
        both = valid[:, line] & valid[:, line - 1]
        difference = white[:, line] - white[:, line - 1]
        if not both.all():
            difference = np.where(both, difference, np.nan)
        steps[line] = _median(difference)
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
