"""Variance of every element, from the views of a region."""

from __future__ import annotations

from functools import partial

import numpy as np

from sigmacube.core.spatial.geometry import Box
from sigmacube.core.spatial.smoothing import Run
from sigmacube.core.spatial.views import View, pixel_sum, shares

__all__ = ["element_variance", "variance_along"]

# Rows of the scene that are computed at a time, anchored to the scene.
BAND_ROWS = 20


def element_variance(
    views: list[View], core: Box, basis: np.ndarray, gain: np.ndarray, beyond: np.ndarray, run: Run
) -> np.ndarray:
    """Return the variance (rows, cols, P) of every element of a region.

    Σ_a ω_a(u) [Σ_i q_ui (BV)²_vi + d_u (c_v − b_v)] + a^g_u (1 − c_v)

    Parameters
    ----------
    gain
        (k,) what the variance along each direction of B is multiplied by.
    beyond
        (rows, cols) a^g, the error of the subspace at each pixel.
    """
    share = np.sum(basis**2, axis=1)
    inside = basis * np.sqrt(gain)
    out = variance_along(views, core, inside, inside, run)
    out += (beyond[..., None] * np.maximum(1 - share, 0)).astype(np.float32)
    return np.maximum(out, np.float32(1e-12), out=out)


def variance_along(
    views: list[View], core: Box, first: np.ndarray, second: np.ndarray, run: Run
) -> np.ndarray:
    """Return the covariance (rows, cols, n) of combinations (n, k) of each pixel's coefficients."""
    single = [np.asarray(rows, dtype=np.float32) for rows in (first, second)]
    parts = [_weighted(view) for view in views]
    flat = pixel_sum(views, core, [part[1] for part in parts])
    cross = np.einsum("vk,vk->v", *single)
    tops = range(core.top // BAND_ROWS * BAND_ROWS, core.bottom, BAND_ROWS)
    bands = [
        Box(max(t, core.top), min(t + BAND_ROWS, core.bottom), core.left, core.right) for t in tops
    ]
    out = np.empty((*core.shape, len(first)), dtype=np.float32)
    run(partial(_fill, out, core, views, parts, single, flat, cross), bands)
    return out


def _weighted(view: View) -> tuple[np.ndarray, np.ndarray]:
    """Return ω(q_i − d) (windows, rows, cols, R) and ωd (windows, rows, cols)."""
    kept, dropped = shares(view)
    kept -= dropped[:, None]
    kept *= view.weight[:, None]
    return np.ascontiguousarray(np.moveaxis(kept, 1, 3)), dropped * view.weight


def _fill(
    out: np.ndarray,
    core: Box,
    views: list[View],
    parts: list[tuple[np.ndarray, np.ndarray]],
    single: list[np.ndarray],
    flat: np.ndarray,
    cross: np.ndarray,
    band: Box,
) -> None:
    """Fill one band of rows; bands start where the scene says, so shapes are always the same."""
    at = band.within(core)
    margin = max(view.side[1] for view in views)
    start = band.top // BAND_ROWS * BAND_ROWS
    width = band.shape[1] + 2 * margin
    total = np.zeros((BAND_ROWS, width, len(cross)), dtype=np.float32)
    for view, (kept, _) in zip(views, parts, strict=True):
        r, c = view.side
        for top in np.unique(view.corner[:, 0]).tolist():
            low, high = max(top, start), min(top + r, start + BAND_ROWS)
            if low >= high or high <= band.top or low >= band.bottom:
                continue
            mine = np.flatnonzero(view.corner[:, 0] == top)
            a, b = (np.matmul(rows, view.directions[mine]) for rows in single)
            weight = kept[mine, low - top : high - top].reshape(len(mine), -1, kept.shape[3])
            values = np.matmul(weight, (a * b).transpose(0, 2, 1))
            lefts = (view.corner[mine, 1] - core.left + margin).tolist()
            for x, value in zip(lefts, values, strict=True):
                total[low - start : high - start, x : x + c] += value.reshape(-1, c, len(cross))
    inside = total[band.top - start : band.bottom - start, margin : margin + band.shape[1]]
    out[at] = inside + flat[at][..., None] * cross
