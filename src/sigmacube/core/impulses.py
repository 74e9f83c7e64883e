"""Signs of impulses in what a solver that knows none has removed."""

from __future__ import annotations

import numpy as np

from sigmacube.core.scene import Scene
from sigmacube.core.solvers.robust import RobustSolver

__all__ = ["advice_on_impulses", "advice_on_ranks"]

# Residuals beyond this many noise std: one Gaussian residual in two million.
WILD = 5.0
# Share of wild residuals from which on the user is told.
NOTABLE = 1e-4
# Elements that are looked at, roughly.
SAMPLE = 400_000
# From this share of the largest possible rank on, windows are looked at again; how many of them,
# and from which share of left-out elements on the user is told.
LARGE_RANK_SHARE = 1 / 3
WINDOWS = 3
NOTABLE_IN_WINDOWS = 0.002


def advice_on_ranks(scene: Scene, ranks: np.ndarray) -> str | None:
    """Return what to tell a user whose windows took impulses for signal; None if they did not.

    Many impulses leave no wild residuals: they lift singular values over the noise edge, and the
    rank takes them all in. Where it holds a large share of the bands, a few windows are solved
    again by the robust solver.

    Parameters
    ----------
    scene
        The scene.
    ranks
        Ranks of its windows.
    """
    rows, cols, bands = scene.grid.window
    typical = float(np.median(ranks))
    if typical <= LARGE_RANK_SHARE * min(rows * cols, bands):
        return None
    white = scene.scaled()
    shares = []
    for i, j in zip(*(np.linspace(0, n - 1, WINDOWS).astype(int) for n in scene.grid.shape[:2]),
                    strict=True):  # fmt: skip
        where = scene.grid.slices(int(i), int(j))
        whole = scene.valid[where[:2]].ravel()
        patch = white[where].reshape(len(whole), -1)[whole]
        if len(patch) < 2:
            continue
        solution = RobustSolver()(patch)
        if solution.kept is not None and solution.rank < typical / 2:
            shares.append(1 - float(solution.kept.mean()))
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
