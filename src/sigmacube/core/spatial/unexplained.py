r"""Pixels that no window explains: found by their residual, given back in part, and listed.

Inside the subspace ‖z − ẑ‖² is χ² with k − t degrees of freedom if nothing was lost, t the claimed
error of the pixel; outside it ‖y − yBBᵀ‖² has P − k. Where it is too large, a share f of the
residual r belongs to the pixel (outside the subspace that of James and Stein, (1 − dof/‖r‖²)₊): it
is added to the estimate, and the variance becomes (1 − f) σ² + f, the pixel's own noise.

What is foreign to a place differs from it where materials differ: along the leading directions of
B, which are tested by themselves too. And it is seen in part by the estimate: among pixels that
stand out from their neighbours foreign ones are many, and they are told by less.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy.special import ndtr

from sigmacube.core.parallel import ParallelMap, in_turn, strips

__all__ = ["Apart", "GivenBack", "alone", "apart", "given_back", "inside", "leading_directions",
           "lines", "normal_score", "scale_of"]  # fmt: skip

# The share of the spread of all directions that the leading ones have.
LEADING = 0.9

# Scores between which a pixel is given its residual back: from LOWEST in scenes with many foreign
# pixels, from HIGHEST in scenes without; all of it one further up. From LISTED it is listed.
LOWEST, HIGHEST, LISTED = 1.6, 3.3, 3.8
# So much before a pixel is given its residual back, the excess counts as error that no window
# knows of.
DOUBT = 1.0
LINE_LIMIT = 5.5
# A pixel is alone if it is so far from the mean of its neighbours, so many times as far as they;
# and it stands out from them if it is half alone. So many pixels show where foreign ones begin.
ALONE, CLOSER = 5.0, 1.5
APART, NEARER = 2.0, 1.2
FEWEST = 20
# Leverage from which a pixel has made the directions it is on: they hold its own noise. And the
# share of its own noise that a pixel has that differs from all around it.
LEVERAGE = 0.15
OWN = 0.25
LINE = 3
# Rows that are looked at for lines at a time.
STRIP = 8


def normal_score(square: np.ndarray, freedom: np.ndarray) -> np.ndarray:
    """Return the standard normal score of χ² values (Wilson and Hilferty's cube root).

    Examples
    --------
    >>> normal_score(np.array([15.0, 60.0]), np.array([15.0, 15.0])).round(1)
    array([0.1, 4.9])
    """
    freedom = np.maximum(freedom, 0.5)
    spread = 2 / (9 * freedom)
    return (np.cbrt(square / freedom) - (1 - spread)) / np.sqrt(spread)


def leading_directions(spread: np.ndarray) -> int:
    """Return how many of the first directions have most of the standard deviations of all.

    Examples
    --------
    >>> leading_directions(np.array([55.0, 18.0, 5.0, 3.0, 2.0, 1.0]))
    3
    """
    total = np.cumsum(spread)
    return int(np.searchsorted(total, LEADING * total[-1])) + 1


def scale_of(score: np.ndarray, out: np.ndarray) -> np.ndarray:
    """Return (6,) centre and width of the scores of ordinary pixels, and where foreign ones begin.

    Centre and width by quartiles, width one at least. Foreign pixels begin at the score beyond
    which no more than a third of what is seen is expected of ordinary pixels: among all, and, no
    later, among those that stand out. The last two say, among all and among those, how far there is
    more than expected: one if it is two thirds of what is seen.
    """
    if score.size < 50:
        return np.array([0.0, 1.0, HIGHEST, HIGHEST, 0.0, 0.0])
    low, middle, high = np.quantile(score, [0.25, 0.5, 0.75])
    width = max((high - low) / 1.349, 1.0)
    score = (score - middle) / width
    every, some = _begin(score), _begin(score[out])
    if some[0] >= every[0]:
        some = every
    return np.array([middle, width, every[0], some[0], every[1], some[1]])


def _begin(score: np.ndarray) -> tuple[float, float]:
    """Return the score that foreign pixels begin at, and how far there are any."""
    if score.size < FEWEST:
        return HIGHEST, 0.0
    at = np.append(np.arange(LOWEST, HIGHEST, 0.1), HIGHEST)
    seen = np.array([np.count_nonzero(score > t) for t in at])
    chance = ndtr(-at) * score.size
    rare = np.append(np.flatnonzero(chance <= seen / 3), len(at) - 1)[0]
    return float(at[rare]), float(np.clip(1.5 * (1 - chance[rare] / max(seen[rare], 1)), 0, 1))


def given_back(
    square: np.ndarray, freedom: np.ndarray, scale: np.ndarray, out: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the share f (row, col) of the residual that belongs to the pixel, and who is listed.

    Parameters
    ----------
    square, freedom
        (row, col) of the residual ‖r‖² and its degrees of freedom.
    scale
        `scale_of` the scores.
    out
        (row, col) who stands out.
    """
    score = (normal_score(square, freedom) - scale[0]) / scale[1]
    return np.clip(score - np.where(out, scale[3], scale[2]), 0, 1), score > LISTED


def doubt(
    square: np.ndarray, freedom: np.ndarray, scale: np.ndarray, out: np.ndarray
) -> np.ndarray:
    """Return (row, col) the excess of ‖r‖² beyond chance: squared error that no window knows of."""
    freedom = np.maximum(freedom, 0.5)
    spread = 2 / (9 * freedom)
    limit = scale[0] + scale[1] * (np.where(out, scale[3], scale[2]) - DOUBT)
    chance = freedom * np.maximum(1 - spread + limit * np.sqrt(spread), 0) ** 3
    return np.maximum(square - chance, 0)


@dataclass(frozen=True, eq=False)
class GivenBack:
    """What single pixels have of their residual inside the subspace."""

    every: np.ndarray
    """(row, col) share f along all directions."""
    leading: np.ndarray
    """(row, col) the same along the leading ones, no less."""
    doubt: np.ndarray
    """(row, col) squared error per direction that no window knows of."""
    doubt_leading: np.ndarray
    """(row, col) the same of a leading one."""
    listed: np.ndarray
    """(row, col) whether all directions say that no window explains the pixel."""

    def own(self, alone: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return (row, col) the share of its own noise that a pixel has along every direction.

        And how much more along the leading ones; ``alone`` is the share for what it alone made.
        """
        own = np.minimum(self.every + self.doubt + alone * (1 - self.every), 1)
        leading = np.minimum(self.leading + self.doubt_leading, 1)
        return own, np.maximum(leading - own, 0)


def inside(
    residual: np.ndarray,
    freedom: tuple[np.ndarray, np.ndarray],
    leading: int,
    scale: np.ndarray,
    out: np.ndarray,
) -> GivenBack:
    """Return what pixels have of their residual (row, col, k) inside the subspace.

    Parameters
    ----------
    freedom
        Degrees of freedom (row, col) along all directions, and along the leading ones.
    scale
        (2, 6) `scale_of` the scores of both. Along leading directions doubt is for scenes that
        have more beyond where foreign pixels begin than chance makes.
    """
    k = residual.shape[2]
    square = np.sum(residual**2, axis=2), np.sum(residual[..., :leading] ** 2, axis=2)
    every, listed = given_back(square[0], freedom[0], scale[0], out)
    more = np.maximum(given_back(square[1], freedom[1], scale[1], out)[0], every)
    doubts = [doubt(*part, out) for part in zip(square, freedom, scale, strict=True)]
    doubts[1] *= np.where(out, scale[1, 5], scale[1, 4])
    return GivenBack(
        every, more, doubts[0] * (1 - every) / k, doubts[1] * (1 - more) / leading, listed
    )


@dataclass(frozen=True, eq=False)
class Apart:
    """Pixels (row, col) of an estimate that differ from all around them."""

    out: np.ndarray
    """Whether a pixel stands out from its neighbours."""
    alone: np.ndarray
    """Whether it is alone: such a pixel made the directions it is on."""

    def within(self, inside: tuple[slice, slice]) -> Apart:
        """Return some rows and columns."""
        return Apart(self.out[inside], self.alone[inside])


def alone(apart: Apart, leverage: np.ndarray) -> np.ndarray:
    """Return (row, col) the share of its own noise that a pixel has, for what it alone made."""
    return np.maximum(np.where(apart.alone, OWN, 0.0), leverage - LEVERAGE)


def apart(estimate: np.ndarray) -> Apart:
    """Return which pixels of an estimate (row, col, k) differ from all around them.

    A pixel that is alone is five standard deviations of the noise from the mean of its neighbours,
    and they are much closer to that: it made the directions it is on, and they hold its own noise.
    """
    rows, cols = estimate.shape[:2]
    if min(rows, cols) < 2:
        return Apart(*np.zeros((2, rows, cols), dtype=bool))
    padded = np.pad(estimate.astype(np.float32), ((1, 1), (1, 1), (0, 0)), mode="reflect")
    shifts = [(1 + i, 1 + j) for i in (-1, 0, 1) for j in (-1, 0, 1) if i or j]
    mean = np.zeros(estimate.shape, dtype=np.float32)
    for i, j in shifts:
        mean += padded[i : i + rows, j : j + cols]
    mean /= np.float32(len(shifts))
    own = np.square(padded[1:-1, 1:-1] - mean).sum(axis=2)
    out = own > APART**2
    row, col = np.nonzero(out)  # few are far from the mean: only there it is asked how far others
    centre = mean[row, col]
    farthest = np.zeros(len(row), dtype=np.float32)
    for i, j in shifts:
        off = np.square(padded[row + i, col + j] - centre).sum(axis=1)
        np.maximum(farthest, off, out=farthest)
    found = own[row, col]
    single = np.zeros_like(out)
    out[row, col] = found > NEARER**2 * farthest
    single[row, col] = (found > ALONE**2) & (found > CLOSER**2 * farthest)
    return Apart(out, single)


def lines(
    y: np.ndarray, estimate: np.ndarray, kept: np.ndarray | None, run: ParallelMap = in_turn
) -> np.ndarray:
    """Return (n, 3) elements of narrow features: three neighbouring bands far from the estimate.

    Parameters
    ----------
    y, estimate
        (row, col, P) of unit noise.
    kept
        (row, col, P) which elements are there, None where all are.
    """
    parts = strips(0, len(y) if y.shape[2] >= 4 * LINE else 0, STRIP)
    found = run(partial(_lines_in, y, estimate, kept), parts)
    return np.concatenate([np.zeros((0, 3), dtype=np.intp), *found])


def _lines_in(
    y: np.ndarray, estimate: np.ndarray, kept: np.ndarray | None, rows: slice
) -> np.ndarray:
    found = [np.zeros((0, 3), dtype=np.intp)]
    for row in range(rows.start, rows.stop):
        left = np.subtract(y[row], estimate[row], dtype=np.float32, casting="same_kind")
        if kept is not None:
            left *= kept[row]
        total = left[:, :-2] + left[:, 1:-1]
        total += left[:, 2:]
        np.abs(total, out=total)
        if total.max(initial=0) > LINE_LIMIT * math.sqrt(LINE):
            centre = np.argwhere(total > LINE_LIMIT * math.sqrt(LINE))
            triple = (centre[:, None] + np.array([[0, 0], [0, 1], [0, 2]])).reshape(-1, 2)
            triple = np.unique(triple[np.abs(left[tuple(triple.T)]) > 1.0], axis=0)
            found.append(np.insert(triple, 0, row, axis=1))
    return np.concatenate(found)
