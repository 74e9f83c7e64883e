"""Draws of the error field: fresh noise sent through all windows."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from sigmacube.core.lowrank.factors import Factors
from sigmacube.core.lowrank.functionals import _propagate, _total_weight

__all__ = ["draw_errors"]


def draw_errors(
    factors: Factors,
    count: int,
    rng: np.random.Generator,
    *,
    rows: slice,
    cols: slice,
    noise_variance: np.ndarray | None = None,
) -> Iterator[np.ndarray]:
    """Yield ``count`` draws (rows, cols, bands) of the error, in the units of the data.

    Each is Σ_a w_a T_a(G_a) of fresh white noise G, which has exactly the covariance of the first
    order; kept components of pure noise add white noise of their own variance.

    Parameters
    ----------
    factors
        Factors of all windows.
    count
        Number of draws.
    rng
        Source of randomness.
    rows, cols
        Part of the scene to draw; the noise around it counts too.
    noise_variance
        (row, col, band cell) variance of kept components of pure noise.
    """
    grid = factors.grid
    windows = [
        (i, k, j) for i, k, j in np.ndindex(factors.left.shape[:3])
        if _meets(grid.slices(i, j, k)[0], rows) and _meets(grid.slices(i, j, k)[1], cols)
    ]  # fmt: skip
    top, side = (min(grid.slices(i, j)[n].start for i, _, j in windows) for n in (0, 1))
    bottom, end = (max(grid.slices(i, j)[n].stop for i, _, j in windows) for n in (0, 1))
    total = _total_weight(factors, slice(top, bottom), slice(side, end))
    inner = (slice(rows.start - top, rows.stop - top), slice(cols.start - side, cols.stop - side))
    extra = None
    if noise_variance is not None:
        widths = np.diff(grid.bands.edges)
        extra = np.sqrt(np.repeat(noise_variance[rows, cols], widths, axis=2))
    for _ in range(count):
        noise = rng.standard_normal(total.shape)
        error = np.zeros(total.shape)
        for i, k, j in windows:
            span_r, span_c, bands = grid.slices(i, j, k)
            where = (
                slice(span_r.start - top, span_r.stop - top),
                slice(span_c.start - side, span_c.stop - side),
                bands,
            )
            passed = _propagate(factors, (i, k, j), noise[where].reshape(-1, grid.bands.size))
            share = factors.pixel_weights[i, k, j][..., None] / total[where]
            error[where] += share * passed.reshape(share.shape[0], share.shape[1], -1)
        drawn = error[inner]
        if extra is not None:
            drawn = drawn + extra * rng.standard_normal(extra.shape)
        yield factors.noise.unwhiten(drawn)


def _meets(a: slice, b: slice) -> bool:
    return a.start < b.stop and b.start < a.stop
