r"""One window: local directions, shrunk spatial frequencies, twice.

A window of n pixels holds z (n, k), unit noise. Its mean m is kept as it is. The principal
directions V (k, r) of z − m above the noise edge give r images X = (z − m)V; C = Φ X Φᵀ / √N(f) are
their coefficients, again of unit noise.

First round: with p the mean of C² and of its 3 × 3 surroundings, h = (1 − τ/p)₊. Second round: with
λ the squared coefficients of the first estimate, h = λ² / (λ² + 1). The estimate of the window is
x̂ = m + Φᵀ(√N h C)Φ Vᵀ.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from sigmacube.core.spatial.axes import Axes, principal, updated
from sigmacube.core.spatial.transform import (
    forward,
    inverse,
    neighbour_count,
    neighbour_sum,
    rings,
)
from sigmacube.core.spatial.transform import spread as spread_power

__all__ = ["BINS", "Fits", "cut", "fit_windows", "first_shrinkage", "padded_rank", "project",
           "second_shrinkage", "smooth", "weights"]  # fmt: skip

THRESHOLD = 2.0
BINS = 14
_FIRST, _LAST = math.log(0.02), math.log(200.0)
_PER_BIN = (BINS - 2) / (_LAST - _FIRST)
POWER = 2.5
PER_WINDOW = (
    "index", "corner", "rank", "left", "mean", "directions", "coefficients", "leverage",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Fits:
    """Some windows of one size whose ranks are padded to the same R."""

    size: int
    """Which of the sizes."""
    index: np.ndarray
    """(windows, 2) row and column of the window in the grid of that size."""
    corner: np.ndarray
    """(windows, 2) first pixel in the scene."""
    rank: np.ndarray
    """(windows,) kept directions r."""
    left: np.ndarray
    """(windows,) mean square per coefficient of the directions that were dropped."""
    mean: np.ndarray
    """(windows, k) m."""
    directions: np.ndarray
    """(windows, k, R) V, zero beyond r."""
    coefficients: np.ndarray
    """(windows, R, rows, cols) C, unit noise."""
    leverage: np.ndarray
    """(windows, rows, cols) 1/n + Σ_i U_ui²: the error that m and V bring to other directions."""

    def part(self, chosen: np.ndarray | slice) -> Fits:
        """Return some of the windows."""
        if not isinstance(chosen, slice) and chosen.all():
            return self
        return replace(self, **{name: getattr(self, name)[chosen] for name in PER_WINDOW})

    @classmethod
    def joined(cls, parts: Sequence[Fits]) -> Fits:
        """Return windows of one size and padded rank as one stack."""
        if len(parts) == 1:
            return parts[0]
        joint = {n: np.concatenate([getattr(p, n) for p in parts]) for n in PER_WINDOW}
        return cls(parts[0].size, **joint)

    @property
    def kept(self) -> np.ndarray:
        """(windows, R, 1, 1) whether a component is one of the kept directions."""
        padded = self.directions.shape[2]
        return (np.arange(padded) < self.rank[:, None])[:, :, None, None]

    @cached_property
    def classes(self) -> np.ndarray:
        """(windows, R, rows, cols) uint8: ring · bins + bin of the mean power of the neighbours.

        The coefficient itself has no part in its class, which is independent of its own noise.
        """
        power = self.coefficients * self.coefficients
        around = neighbour_sum(power)
        around -= power
        around /= np.maximum(neighbour_count(self.side) - 1, 1).astype(around.dtype)
        bins = np.clip((np.log(np.maximum(around, 1e-6)) - _FIRST) * _PER_BIN + 1, 0, BINS - 1)
        return bins.astype(np.uint8) + (rings(self.side) * BINS).astype(np.uint8)

    @property
    def side(self) -> tuple[int, int]:
        """Rows and columns of a window."""
        r, c = self.leverage.shape[1:]
        return r, c


def cut(image: np.ndarray, corner: np.ndarray, side: tuple[int, int]) -> np.ndarray:
    """Return (windows, rows, cols, k) copies of the windows at corners of an image."""
    (r, c), k = side, image.shape[2]
    down, across, along = image.strides
    shape = (image.shape[0] - r + 1, image.shape[1] - c + 1, r, c, k)
    view = np.lib.stride_tricks.as_strided(
        image, shape, (down, across, down, across, along), writeable=False
    )
    return np.asarray(view[corner[:, 0], corner[:, 1]])


def fit_windows(
    size: int,
    index: np.ndarray,
    corner: np.ndarray,
    z: np.ndarray,
    at: np.ndarray,
    edge: float,
    noise_power: np.ndarray,
    near: Axes | None = None,
) -> tuple[list[Fits], Axes]:
    """Return the fits of windows at corners (windows, 2) of z, in groups of equal padded rank.

    And their principal axes; with those of almost the same data, `near`, these are a start.
    """
    (r, c), count, k = noise_power.shape, len(at), z.shape[2]
    n = r * c
    flat = cut(z, at, (r, c)).reshape(count, n, k)
    mean = np.matmul(np.full((1, n), 1 / n), flat)
    flat -= mean
    mean = mean[:, 0].astype(np.float32)
    if near is None:
        values, vectors, axes = principal(flat, edge)
        flat = flat.astype(np.float32)
    else:
        flat = flat.astype(np.float32)
        values, vectors, axes = *updated(flat, edge, near), near
    rank = np.count_nonzero(values > edge**2, axis=1)
    dropped = np.where(np.arange(values.shape[1]) >= rank[:, None], values, 0).sum(axis=1)
    left = dropped / np.maximum((k - rank) * (n - 1), 1)
    padded = np.minimum(padded_rank(rank), values.shape[1])
    root = np.sqrt(noise_power).astype(np.float32)
    groups = []
    for R in np.unique(padded).tolist():
        mine: Any = np.flatnonzero(padded == R)
        if len(mine) == count:  # nothing need be copied
            mine = slice(None)
        kept = np.arange(R) < rank[mine, None]
        V = vectors[mine, :, :R] * kept[:, None]
        across = flat[mine].transpose(0, 2, 1)
        images = np.matmul(V.transpose(0, 2, 1), across).reshape(len(V), R, r, c)
        scale = np.where(kept, 1 / np.where(kept, values[mine, :R], 1), 0).astype(np.float32)
        leverage = np.einsum("ar,aryx->ayx", scale, images * images) + np.float32(1 / n)
        groups.append(
            Fits(size, index[mine], corner[mine], rank[mine], left[mine], mean[mine], V,
                 forward(images) / root, leverage)
        )  # fmt: skip
    return groups, axes


def padded_rank(rank: np.ndarray) -> np.ndarray:
    """Return the next of 0, 1, 2, 4, 8, 12, 16, 20, ... for every rank."""
    return np.where(rank <= 2, rank, 4 * ((rank + 3) // 4))


def first_shrinkage(fits: Fits) -> np.ndarray:
    """Return h (windows, R, rows, cols) = (1 − τ/p)₊ from the coefficients themselves."""
    power = fits.coefficients * fits.coefficients
    h = neighbour_sum(power)
    h *= (1 / neighbour_count(fits.side)).astype(power.dtype)
    h += power
    np.maximum(h, 1e-6, out=h)
    np.divide(-2 * THRESHOLD, h, out=h)
    h += 1
    np.maximum(h, 0, out=h)
    return _with_mean(h, fits)


def second_shrinkage(fits: Fits, pilot: np.ndarray, noise_power: np.ndarray) -> np.ndarray:
    """Return h = λ² / (λ² + 1) from the windows of a first estimate (windows, rows, cols, k)."""
    power = project(fits, pilot)
    power *= power
    if np.any(noise_power != 1):
        power /= noise_power.astype(pilot.dtype)
    # Beyond that h is one to the last bit of a single, and squares do not overflow.
    np.minimum(power, 1e4, out=power)
    power *= power
    h = power + 1
    np.divide(power, h, out=h)
    return _with_mean(h, fits)


def _with_mean(h: np.ndarray, fits: Fits) -> np.ndarray:
    h[:, :, 0, 0] = fits.kept[:, :, 0, 0]
    return h


def project(fits: Fits, windows: np.ndarray) -> np.ndarray:
    """Return the coefficients (windows, R, rows, cols) of other data along the kept directions."""
    count, r, c, k = windows.shape
    flat = windows.reshape(count, r * c, k).transpose(0, 2, 1)
    images = np.matmul(fits.directions.transpose(0, 2, 1), flat)
    return forward(images.reshape(count, fits.directions.shape[2], r, c))


def smooth(
    fits: Fits, h: np.ndarray, noise_power: np.ndarray, omega: np.ndarray, room: int
) -> np.ndarray:
    """Return ωx̂ (windows, rows, cols, k + room): weighted estimates, and room for more.

    Weights and the mean go into the product of images and directions.
    """
    count, R, r, c = h.shape
    k = fits.mean.shape[1]
    h *= fits.coefficients
    if np.any(noise_power != 1):
        h *= np.sqrt(noise_power).astype(h.dtype)
    images = np.empty((count, R + 1, r, c), dtype=h.dtype)
    np.multiply(inverse(h), omega[:, None], out=images[:, :R])
    images[:, R] = omega
    rows = np.concatenate([fits.directions.transpose(0, 2, 1), fits.mean[:, None]], axis=1)
    estimate = np.empty((count, r * c, k + room), dtype=fits.mean.dtype)
    flat = images.reshape(count, R + 1, r * c).transpose(0, 2, 1)
    np.matmul(flat, rows, out=estimate[..., :k])
    return estimate.reshape(count, r, c, k + room)


def weights(fits: Fits, h: np.ndarray, noise_power: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return t^−2.5 and t (windows, rows, cols), t_u = Σ_i q_ui + a_u (k − r) the claimed error."""
    k = fits.directions.shape[1]
    trace = h.sum(axis=1, keepdims=True) * noise_power.astype(h.dtype)
    claimed = spread_power(trace)[:, 0]
    claimed += fits.leverage * (k - fits.rank).astype(h.dtype)[:, None, None]
    lowest = 0.1 * k / (claimed.shape[1] * claimed.shape[2])
    return np.maximum(claimed, lowest) ** -POWER, claimed
