r"""The error of the final estimate, as windows see it.

Every window a looks at the same error, that of the final average, in its own coordinates: ρ_i(f)
along its kept directions, d(f) along the others,

.. math:: S_a = \sum_i Φ^T diag(N ρ_i) Φ ⊗ v_i v_i^T + Φ^T diag(N d) Φ ⊗ (I - V V^T)

and the covariance of the error is :math:`\sum_a E_a^T S_a E_a`, with :math:`E_a = \sqrt{ω_a}` on
the window and :math:`\sum_a ω_a(u) = 1` at every pixel. No pairs of windows, and positive definite.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from sigmacube.core.spatial.fit import Fits
from sigmacube.core.spatial.geometry import Box, Windows
from sigmacube.core.spatial.model import RiskTable
from sigmacube.core.spatial.smoothing import Smoothed
from sigmacube.core.spatial.transform import rings, spread

__all__ = ["View", "look", "claimed", "merged", "pixel_sum", "scaled", "shares"]


@dataclass(frozen=True, eq=False)
class View:
    """Some windows of one size that the error is seen through."""

    size: int
    corner: np.ndarray
    """(windows, 2) first pixel in the scene."""
    directions: np.ndarray
    """(windows, k, R) V, float32, zero beyond the rank."""
    rank: np.ndarray
    """(windows,) kept directions."""
    kept: np.ndarray
    """(windows, R, rows, cols) N ρ, float32."""
    dropped: np.ndarray
    """(windows, rows, cols) N d, float32."""
    weight: np.ndarray
    """(windows, rows, cols) ω, float32, zero outside the region."""

    @property
    def side(self) -> tuple[int, int]:
        """Rows and columns of a window."""
        r, c = self.weight.shape[1:]
        return r, c


def chosen_windows(fits: Fits, sizes: tuple[Windows, ...]) -> np.ndarray:
    """Return (windows,) bool: those that the error model looks through."""
    rows, cols = sizes[fits.size].views()
    return rows[fits.index[:, 0]] & cols[fits.index[:, 1]]


def look(
    smoothed: Smoothed,
    core: Box,
    sizes: tuple[Windows, ...],
    noise_power: Sequence[np.ndarray],
    risk: Sequence[RiskTable],
) -> list[View]:
    """Return the views of a region with weights that sum to one at every pixel of ``core``."""
    views = []
    for fits, omega in zip(smoothed.fits, smoothed.weights, strict=True):
        chosen = chosen_windows(fits, sizes)
        if not chosen.any():
            continue
        part, table, power = fits.part(chosen), risk[fits.size], noise_power[fits.size]
        level = np.searchsorted(table.levels, part.left)
        power = power.astype(np.float32)
        views.append(
            View(
                fits.size,
                part.corner,
                part.directions,
                part.rank,
                table.kept.astype(np.float32)[part.classes] * part.kept * power,
                table.dropped.astype(np.float32)[:, rings(part.side)][level] * power,
                omega[chosen],
            )
        )
    return _normalised(views, core)


def _normalised(views: list[View], core: Box) -> list[View]:
    total = pixel_sum(views, core, [view.weight for view in views])
    share = np.divide(1, total, out=np.zeros_like(total), where=total > 0)
    return scaled(views, core, share)


def scaled(views: list[View], core: Box, factor: np.ndarray) -> list[View]:
    """Return the views with their weights times a factor per pixel (rows, cols) of ``core``."""
    return [replace(v, weight=v.weight * _cut(factor, core, v)) for v in views]


def _cut(image: np.ndarray, core: Box, view: View) -> np.ndarray:
    """Return (windows, rows, cols) parts of an image on ``core``, zero outside of it."""
    r, c = view.side
    padded = np.zeros((image.shape[0] + 2 * r, image.shape[1] + 2 * c), dtype=np.float32)
    padded[r:-r, c:-c] = image
    at = view.corner - (core.top, core.left) + (r, c)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (r, c))
    return windows[at[:, 0], at[:, 1]]


def pixel_sum(views: list[View], core: Box, values: list[np.ndarray]) -> np.ndarray:
    """Return Σ_a values_a(u) (rows, cols) over ``core`` of values (windows, rows, cols)."""
    rows = max((v.side[0] for v in views), default=0)
    cols = max((v.side[1] for v in views), default=0)
    total = np.zeros((core.shape[0] + 2 * rows, core.shape[1] + 2 * cols), dtype=np.float32)
    for view, value in zip(views, values, strict=True):
        r, c = view.side
        at = view.corner - (core.top, core.left) + (rows, cols)
        for (y, x), window in zip(at.tolist(), value, strict=True):
            total[y : y + r, x : x + c] += window
    return total[rows : rows + core.shape[0], cols : cols + core.shape[1]]


def shares(view: View) -> tuple[np.ndarray, np.ndarray]:
    """Return the diagonals q_ui (windows, R, rows, cols) and d_u (windows, rows, cols) of S_a."""
    return spread(view.kept), spread(view.dropped[:, None])[:, 0]


def trace(view: View, gain: np.ndarray) -> np.ndarray:
    """Return (windows, rows, cols) the claimed squared error of a pixel's k coefficients."""
    along = np.einsum("akr,akr,k->ar", view.directions, view.directions, gain.astype(np.float32))
    beyond = (np.float32(gain.sum()) - along.sum(axis=1))[:, None, None] * view.dropped
    total = np.einsum("arxy,ar->axy", view.kept, along) + beyond
    return spread(total[:, None])[:, 0]


def claimed(views: list[View], core: Box, gain: np.ndarray) -> np.ndarray:
    """Return (rows, cols) the claimed squared error of every pixel's k coefficients."""
    return pixel_sum(views, core, [view.weight * trace(view, gain) for view in views])


def merged(views: list[View]) -> list[View]:
    """Return views of several regions with every window once, its weights added."""
    groups: dict[tuple[int, int, tuple[int, int]], list[View]] = {}
    for view in views:
        groups.setdefault((view.size, view.directions.shape[2], view.side), []).append(view)
    result = []
    for same in groups.values():
        corner = np.concatenate([v.corner for v in same])
        _, first, where = np.unique(corner, axis=0, return_index=True, return_inverse=True)
        weight = np.concatenate([v.weight for v in same])
        total = np.zeros((len(first), *weight.shape[1:]), dtype=np.float32)
        np.add.at(total, where.ravel(), weight)
        directions, rank, kept, dropped = (
            np.concatenate([getattr(v, name) for v in same])[first]
            for name in ("directions", "rank", "kept", "dropped")
        )
        result.append(View(same[0].size, corner[first], directions, rank, kept, dropped, total))
    return result
