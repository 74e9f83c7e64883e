"""Signal outside the subspace where it surely is: fields whose material B does not have.

What lies outside B is left out of the estimate, so that its noise has no part in the error: the
mean of a tile of 5 × 5 pixels shows what is lost there, and nothing is selected by looking.
"""

from __future__ import annotations

import math

import numpy as np

from sigmacube.core.parallel import ParallelMap
from sigmacube.core.spatial.geometry import Block, Box
from sigmacube.core.spatial.subspace import project

__all__ = ["lost_at", "lost_in_tiles"]

TILE = 5
# The standard errors that a tile's signal must exceed, by the share of James and Stein.
SURELY = 2.5


def lost_in_tiles(
    y: np.ndarray,
    kept: np.ndarray | None,
    basis: np.ndarray,
    values: np.ndarray,
    left: int,
    run: ParallelMap,
) -> np.ndarray:
    """Return (down, across) the signal per pixel outside B that surely is in each whole tile of y.

    Parameters
    ----------
    y, kept
        (rows, cols, P) of unit noise, and what is there; None where all is. Nothing is said of
        tiles that lack any.
    values
        (k,) sum over the scene of the squared coefficients along each direction: of the noise that
        went with them, B has taken a part.
    left
        The scene's column of tiles that y starts at: products are of one shape.
    """
    bands, k = basis.shape
    down, across, n = y.shape[0] // TILE, y.shape[1] // TILE, TILE**2
    if min(down, across) == 0:
        return np.zeros((down, across))

    def mean_of(row: int) -> np.ndarray:
        total = y[row * TILE : (row + 1) * TILE, : across * TILE].sum(axis=0)
        return np.asarray(total.reshape(across, TILE, bands).sum(axis=1) / n)

    mean = np.array(run(mean_of, range(down)))
    z = project(mean, basis, left, run)
    rest = mean - project(z, np.ascontiguousarray(basis.T), left, run)
    found = np.square(rest).sum(axis=2)
    found -= (bands - k) * (1 / n - np.square(z) @ (1 / values))
    least = SURELY * math.sqrt(2 * (bands - k)) / n
    found *= np.maximum(1 - (least / np.maximum(found, least)) ** 2, 0)
    if kept is not None:
        there = np.asarray(kept.all(axis=2))[: down * TILE, : across * TILE]
        found *= there.reshape(down, TILE, across, TILE).all(axis=(1, 3))
    return np.asarray(found)


def lost_at(
    block: Block,
    core: Box,
    shape: tuple[int, ...],
    basis: np.ndarray,
    values: np.ndarray,
    run: ParallelMap,
) -> np.ndarray:
    """Return (rows, cols) of ``core`` the signal per pixel that is lost in a pixel's tile.

    Tiles are anchored to the scene; what is beyond the last whole one is taken to be like it.
    """
    down, across = shape[0] // TILE, shape[1] // TILE
    if min(down, across) == 0:
        return np.zeros(core.shape)
    rows, cols = (
        np.minimum(np.arange(first, last) // TILE, count - 1)
        for first, last, count in (
            (core.top, core.bottom, down),
            (core.left, core.right, across),
        )
    )
    top, left = int(rows[0]), int(cols[0])
    bottom, right = int(rows[-1]) + 1, int(cols[-1]) + 1
    part = block(*Box(top * TILE, bottom * TILE, left * TILE, right * TILE).slices)
    found = lost_in_tiles(*part, basis, values, left, run)
    return np.asarray(found[np.ix_(rows - top, cols - left)])
