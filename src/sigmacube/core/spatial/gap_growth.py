"""By how much errors of single bands grow where values are missing around.

Windows average what pixels tell: with Ā the mean of A = BᵀΩB over those around that lack some of
their bands (whole ones beside a hole are no part of what is in it), a band's noise is
h_vv = b_v Ā⁻¹ b_vᵀ over that of whole pixels. A pixel that adds a share q by itself has
1 + q (Σ_w Ω_w h_vw² / h_vv − 1) times as much information on band v as those around it.
"""

from __future__ import annotations

import numpy as np

from sigmacube.core.parallel import ParallelMap
from sigmacube.core.spatial.geometry import Box
from sigmacube.core.spatial.missing import FEW

__all__ = ["MARGIN", "growth_by_band"]

# Sides of the cells that Ā is found for, anchored to the scene, and pixels around them.
CELL, NEAR = 4, 4
MARGIN = CELL - 1 + NEAR
# What else limits a direction, and the most that a pixel has by itself.
DELTA, MOST_OWN = 0.008, 0.95


def growth_by_band(
    kept: np.ndarray,
    box: Box,
    core: Box,
    basis: np.ndarray,
    own: np.ndarray,
    run: ParallelMap,
) -> np.ndarray:
    """Return (row, col, P) on ``core`` how much larger a band's variance is by what is missing.

    That a pixel tells less of itself, averaged over its bands, is for `less_seen`. One where
    nothing is missing.

    Parameters
    ----------
    kept
        (row, col, P) on ``box``, which holds `MARGIN` pixels around ``core``, what is there.
    basis
        (P, k) B.
    own
        (row, col) on ``core``, the share of its error that a pixel has by itself.
    """
    out = np.ones((*core.shape, len(basis)), dtype=np.float32)

    def fill(top: int) -> None:
        for left in range(core.left // CELL * CELL, core.right, CELL):
            cell = Box(max(top, core.top), min(top + CELL, core.bottom),
                       max(left, core.left), min(left + CELL, core.right))  # fmt: skip
            wide = Box(max(top - NEAR, box.top), min(top + CELL + NEAR, box.bottom),
                       max(left - NEAR, box.left), min(left + CELL + NEAR, box.right))  # fmt: skip
            around = kept[wide.within(box)]
            around = around[partly(around)]
            if len(around):
                here, mine = cell.within(core), kept[cell.within(box)]
                some = ~mine.all(axis=2)
                out[here][some] = _grown(mine[some], around.mean(axis=0), basis, own[here][some])

    run(fill, list(range(core.top // CELL * CELL, core.bottom, CELL)))
    return out


def partly(kept: np.ndarray) -> np.ndarray:
    """Return (...) which pixels (..., P) miss some values, but tell of themselves."""
    return np.asarray(~kept.all(axis=-1) & (kept.mean(axis=-1) > FEW))


def _grown(kept: np.ndarray, share: np.ndarray, basis: np.ndarray, own: np.ndarray) -> np.ndarray:
    """Return (pixels, P) the growth in a cell, from the share (P,) of values around it."""
    known = basis.T @ (basis * share[:, None]) + DELTA * np.eye(basis.shape[1])
    kernel = basis @ np.linalg.solve(known, basis.T) * (1 + DELTA)
    c = np.maximum(np.sum(basis**2, axis=1), 1e-12)
    grown = np.maximum(np.diag(kernel), 1e-12)
    told = np.einsum("nw,wv->nv", kept.astype(np.float64), kernel**2) / grown
    mean = told @ (grown / grown.sum())
    q = np.minimum(own, MOST_OWN)[:, None]
    return np.asarray(grown / c * (1 + q * (mean[:, None] - 1)) / (1 + q * (told - 1)))
