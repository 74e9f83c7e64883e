r"""Pixels that no window explains: found by their residual, given back in part, and listed.

Inside the subspace ‖z − ẑ‖² is χ² with k − t degrees of freedom if nothing was lost, t the claimed
error of the pixel; outside it ‖y − yBBᵀ‖² has P − k. Where it is too large, a share f of the
residual r belongs to the pixel (outside the subspace that of James and Stein, (1 − dof/‖r‖²)₊): it
is added to the estimate, and the variance becomes (1 − f) σ² + f, the pixel's own noise.
"""

from __future__ import annotations

import math
from functools import partial

import numpy as np
from scipy.special import ndtr

from sigmacube.core.parallel import ParallelMap, in_turn, strips

__all__ = ["alone", "doubt", "given_back", "lines", "normal_score", "scale_of"]

# Scores between which a pixel is given its residual back: from LOWEST in scenes with many foreign
# pixels, from HIGHEST in scenes without; all of it one further up. From LISTED it is listed.
LOWEST, HIGHEST, LISTED = 1.6, 3.3, 3.8
# So much before a pixel is given its residual back, the excess counts as error that no window
# knows of.
DOUBT = 1.0
LINE_LIMIT = 5.5
# A pixel is alone if it is so far from the mean of its neighbours, so many times as far as they.
APART, CLOSER = 5.0, 1.5
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


def scale_of(score: np.ndarray) -> np.ndarray:
    """Return centre and width of the scores of ordinary pixels, and where foreign ones begin.

    Centre and width by quartiles, width one at least. Foreign pixels begin at the score beyond
    which no more than a third of what is seen is expected of ordinary pixels.
    """
    if score.size < 50:
        return np.array([0.0, 1.0, HIGHEST])
    low, middle, high = np.quantile(score, [0.25, 0.5, 0.75])
    width = max((high - low) / 1.349, 1.0)
    at = np.arange(LOWEST, HIGHEST, 0.1)
    seen = np.array([np.count_nonzero(score > middle + width * t) for t in at])
    rare = np.flatnonzero(ndtr(-at) * score.size <= seen / 3)
    return np.array([middle, width, at[rare[0]] if len(rare) else HIGHEST])


def given_back(
    square: np.ndarray, freedom: np.ndarray, scale: np.ndarray, *, shrink: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Return the share f (row, col) of the residual that belongs to the pixel, and who is listed.

    Parameters
    ----------
    shrink
        Whether the residual is shrunk by the share of James and Stein. Inside the subspace it is
        not: few directions, little noise, and what is left of a narrow feature would be bias.
    """
    score = (normal_score(square, freedom) - scale[0]) / scale[1]
    share = np.clip(score - scale[2], 0, 1)
    if shrink:
        share = share * np.maximum(1 - freedom / np.maximum(square, 1e-12), 0)
    return share, score > LISTED


def doubt(square: np.ndarray, freedom: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Return (row, col) the excess of ‖r‖² beyond chance: squared error that no window knows of."""
    freedom = np.maximum(freedom, 0.5)
    spread = 2 / (9 * freedom)
    limit = scale[0] + scale[1] * (scale[2] - DOUBT)
    chance = freedom * np.maximum(1 - spread + limit * np.sqrt(spread), 0) ** 3
    return np.maximum(square - chance, 0)


def alone(estimate: np.ndarray, leverage: np.ndarray) -> np.ndarray:
    """Return (row, col) the share of its own noise that a pixel has, for what it alone made."""
    return np.maximum(np.where(isolated(estimate), OWN, 0.0), leverage - LEVERAGE)


def isolated(estimate: np.ndarray) -> np.ndarray:
    """Return (row, col) whether a pixel of an estimate (row, col, k) differs from all around it.

    Such a pixel made the directions it is on, and they hold its own noise. It is five standard
    deviations of the noise from the mean of its neighbours, and they are much closer to that.
    """
    rows, cols = estimate.shape[:2]
    if min(rows, cols) < 3:
        return np.zeros((rows, cols), dtype=bool)
    padded = np.pad(estimate.astype(np.float32), ((1, 1), (1, 1), (0, 0)), mode="reflect")
    shifts = [(1 + i, 1 + j) for i in (-1, 0, 1) for j in (-1, 0, 1) if i or j]
    mean = np.zeros(estimate.shape, dtype=np.float32)
    for i, j in shifts:
        mean += padded[i : i + rows, j : j + cols]
    mean /= np.float32(len(shifts))
    own = np.square(padded[1:-1, 1:-1] - mean).sum(axis=2)
    found = own > APART**2
    row, col = np.nonzero(found)  # few are far from the mean: only there it is asked how far others
    centre = mean[row, col]
    farthest = np.zeros(len(row), dtype=np.float32)
    for i, j in shifts:
        off = np.square(padded[row + i, col + j] - centre).sum(axis=1)
        np.maximum(farthest, off, out=farthest)
    found[row, col] = own[row, col] > CLOSER**2 * farthest
    return np.asarray(found)


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
