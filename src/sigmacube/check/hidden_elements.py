"""Hide elements, solve without them, and compare: the slow check of leaving one out.

The hidden elements H of a pixel are predicted from its other elements and the window's signal
space V, which is itself found without them: windows are solved with the predictions in their
place until these settle. With Q = L⁻ᵀ(I − P_V)L⁻¹, the error of the prediction is
Q_HH⁻¹ [Q y]_H, with covariance Q_HH⁻¹ / (1 − a_u).
"""

from __future__ import annotations

import numpy as np

from sigmacube.check.leave_one_out import SMALLEST_SHARE, SolvedScene, Window
from sigmacube.core.lowrank.solvers.svd import SvdSolver
from sigmacube.core.whitening import Noise

__all__ = ["predict_hidden", "stride_of_windows"]

MAX_ROUNDS = 30
# Predictions have settled when none moves by more than this many standard deviations.
SETTLED = 0.02
MOST_WINDOWS = 32


def stride_of_windows(n_windows: int) -> int:
    """Return how far apart the windows are, in their order, that elements are hidden in.

    Examples
    --------
    >>> stride_of_windows(20), stride_of_windows(100)
    (1, 4)
    """
    return -(-n_windows // MOST_WINDOWS)


def predict_hidden(scene: SolvedScene, window: Window, share: float, seed: int) -> np.ndarray:
    """Return the standardised prediction errors of a window's hidden elements; NaN elsewhere.

    Which elements these are depends on the seed and the window alone.

    Parameters
    ----------
    scene
        Observed values and the factors of their windows.
    window
        One of its windows.
    share
        Share of the elements to hide, above 0 and at most 0.2.
    seed
        Chooses the elements.

    Returns
    -------
    numpy.ndarray
        (row, col, band) of the elements that the window answers for.
    """
    noise, grid = scene.factors.noise, scene.factors.grid
    i, k, j = window.index
    place = grid.slices(i, j, k)
    rng = np.random.default_rng([seed, window.number, window.part])
    hidden = (rng.random(grid.window) < share) & scene.used[place]
    valid = np.any(scene.used[place[:2]], axis=2)
    part = noise if len(grid.bands) == 1 else noise.select(np.arange(noise.n_bands)[place[2]])
    rank = int(scene.factors.n_signal[window.index])
    found = np.full(hidden.shape, np.nan, dtype=np.float32)
    found[valid] = _window_errors(scene.values[place][valid], hidden[valid], part, rank)
    own = tuple(
        slice(mine.start - whole.start, mine.stop - whole.start)
        for mine, whole in zip(window.own, place, strict=True)
    )
    return found[own]


def _window_errors(patch: np.ndarray, hidden: np.ndarray, noise: Noise, rank: int) -> np.ndarray:
    """Return the standardised prediction errors of one window's hidden elements."""
    z = np.full(patch.shape, np.nan)
    if rank == 0 or not hidden.any():
        return z
    index, filler = _padded(hidden)
    filled = np.where(hidden, _visible_means(patch, hidden), patch)
    inverse, solver = noise.inverse_factor, SvdSolver(rank)
    pixels = np.arange(len(patch))[:, None]
    for _ in range(MAX_ROUNDS):
        solution = solver(filled @ inverse.T)
        outside = inverse - solution.right @ (solution.right.T @ inverse)
        q = inverse.T @ outside
        block = q[index[:, :, None], index[:, None, :]]
        block = np.where(filler[:, :, None] | filler[:, None, :], np.eye(index.shape[1]), block)
        pull = np.where(filler, 0.0, (filled @ q)[pixels, index])
        covariance = np.linalg.inv(block)
        change = np.where(filler, 0.0, np.einsum("uij,uj->ui", covariance, pull))
        np.subtract.at(filled, (pixels, index), change)
        if np.max(np.abs(change) / noise.std[index]) < SETTLED:
            break
    freedom = np.maximum(1 - np.sum(solution.left**2, axis=1), SMALLEST_SHARE)
    std = np.sqrt(np.einsum("uii->ui", covariance) / freedom[:, None])
    error = (patch - filled)[pixels, index] / std
    rows, slots = np.nonzero(~filler)
    z[rows, index[rows, slots]] = error[rows, slots]
    return z


def _padded(hidden: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return (pixels, most) band indices of the hidden elements, and True where one is filler."""
    counts = hidden.sum(axis=1)
    most = max(int(counts.max()), 1)
    order = np.argsort(~hidden, axis=1, kind="stable")[:, :most]
    return order, np.arange(most) >= counts[:, None]


def _visible_means(patch: np.ndarray, hidden: np.ndarray) -> np.ndarray:
    """Return (bands,) the mean of every band over its elements that are not hidden."""
    shown = np.maximum(np.count_nonzero(~hidden, axis=0), 1)
    return np.where(hidden, 0.0, patch).sum(axis=0) / shown
