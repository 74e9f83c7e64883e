"""Signs of impulses in what a solver that knows none has removed."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from sigmacube.core.lowrank.solvers.robust import RobustSolver
from sigmacube.core.windows import WindowGrid

__all__ = ["advice_on_impulses", "advice_on_ranks"]

# Residuals beyond this many noise std: one Gaussian residual in two million.
WILD = 5.0
# Share of wild residuals from which on the user is told.
NOTABLE = 1e-4
# Elements that are looked at, roughly.
SAMPLE = 400_000
# From this share of the largest possible rank on, windows are looked at again; and from which
# share of left-out elements on the user is told.
LARGE_RANK_SHARE = 1 / 3
NOTABLE_IN_WINDOWS = 0.002


def advice_on_ranks(
    patches: Iterable[np.ndarray], ranks: np.ndarray, grid: WindowGrid
) -> str | None:
    """Return what to tell a user whose windows took impulses for signal; None if they did not.

    Many impulses leave no wild residuals: they lift singular values over the noise edge, and the
    rank takes them all in. Where it holds a large share of the bands, a few windows are solved
    again by the robust solver.

    Parameters
    ----------
    patches
        (pixel, band) values over their noise of a few windows; read only where ranks are large.
    ranks
        Ranks of all windows.
    grid
        The windows.
    """
    rows, cols, bands = grid.window
    typical = float(np.median(ranks))
    if typical <= LARGE_RANK_SHARE * min(rows * cols, bands):
        return None
    solutions = [RobustSolver()(patch) for patch in patches if len(patch) > 1]
    shares = [
        1 - float(solution.kept.mean())
        for solution in solutions
        if solution.kept is not None and solution.rank < typical / 2
    ]
    if len(shares) == 0 or np.median(shares) < NOTABLE_IN_WINDOWS:
        return None
    return (
        f"Windows need {typical:.0f} components, but fewer than half of that where "
        f"{100 * float(np.median(shares)):.2g} % of the elements are set aside: impulses. "
        "solver='robust' sets them aside."
    )


def advice_on_impulses(
    values: np.ndarray, estimate: np.ndarray, noise_std: np.ndarray
) -> str | None:
    """Return what to tell a user whose residual holds impulses; None where it does not.

    Parameters
    ----------
    values, estimate
        (row, col, band) before and after; NaN in the estimate where there is none.
    noise_std
        (bands,) or (row, col, band) noise.

    Examples
    --------
    >>> import numpy as np
    >>> noise = np.random.default_rng(0).normal(size=(30, 40, 8))
    >>> advice_on_impulses(noise, np.zeros_like(noise), np.ones(8)) is None
    True
    >>> noise[::5, ::4] = 9
    >>> print(advice_on_impulses(noise, np.zeros_like(noise), np.ones(8)))
    5 % of the residuals exceed 5 noise std: impulses, or signal that the windows miss. \
solver='robust' sets impulses aside.
    """
    stride = max(1, round(np.sqrt(values.size / SAMPLE)))
    rows = slice(None, None, stride)
    std = noise_std[rows, rows] if noise_std.ndim == 3 else noise_std
    with np.errstate(invalid="ignore"):
        residual = np.abs(values[rows, rows] - estimate[rows, rows]) / std
    known = int(np.count_nonzero(np.isfinite(residual)))
    share = int(np.count_nonzero(residual > WILD)) / max(known, 1)
    if share <= NOTABLE:
        return None
    return (
        f"{100 * share:.2g} % of the residuals exceed {WILD:g} noise std: impulses, or signal that "
        "the windows miss. solver='robust' sets impulses aside."
    )
