"""Predict every element from all others, and compare: calibration without truth.

With Q = L⁻ᵀ(I − P_V)L⁻¹, the residual of band v at pixel u when it is predicted from everything
else is [Q y_u]_v / Q_vv, with variance 1 / (Q_vv (1 − a_u)). No refit is needed (the identity of
universal kriging), and

    z_uv = [Q y_u]_v / √(Q_vv (1 − a_u))

is standard normal if the low-rank model and the noise are right.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from sigmacube.core.factors import Factors
from sigmacube.core.functionals import ErrorModel
from sigmacube.core.noise import Noise
from sigmacube.core.patch_variance import residual_share
from sigmacube.core.windows import Axis

__all__ = ["LeftOut", "SolvedScene", "band_spread", "leave_one_out", "partition"]

# A pixel or band that is nearly all of its own fit cannot be predicted from the others.
SMALLEST_SHARE = 0.05


@dataclass(frozen=True, eq=False)
class LeftOut:
    """Standardised prediction errors of a scene, and what its windows say about space."""

    z: np.ndarray
    """(row, col, band) prediction error over its standard deviation; NaN where there is none."""
    window: np.ndarray
    """(row, col) number of the window that predicted a pixel; −1 for none."""
    removed_lag1: float
    """Autocorrelation of what was removed between neighbouring pixels, less what fits cause."""
    weakest_lag1: float
    """Mean autocorrelation of the weakest kept component; NaN where windows keep one or none."""


def partition(axis: Axis) -> list[int]:
    """Return windows of an axis that cover it all with as little overlap as they can.

    Examples
    --------
    >>> partition(Axis(length=50, size=20, step=4))
    [0, 5, 8]
    """
    chosen, covered = [], 0
    while covered < axis.length:
        starts = np.asarray(axis.starts)
        chosen.append(int(np.flatnonzero(starts <= covered)[-1]))
        covered = int(starts[chosen[-1]]) + axis.size
    return chosen


@dataclass(frozen=True, eq=False)
class SolvedScene:
    """A denoised scene, seen from its result: what its windows were solved on."""

    values: np.ndarray
    """(row, col, valid band) float64 observed values over the pixels' noise factors; elements
    that were not used hold the estimate."""
    used: np.ndarray
    """(row, col, valid band) True for elements that the windows were solved on."""
    factors: Factors

    @classmethod
    def create(
        cls,
        values: np.ndarray,
        estimate: np.ndarray,
        errors: ErrorModel,
        rejected: np.ndarray | None = None,
    ) -> SolvedScene:
        """Put observed values beside the factors that a result kept.

        Parameters
        ----------
        values, estimate
            (row, col, band) observed and denoised cube.
        errors
            Error model of the result.
        rejected
            (row, col, band) True for elements that a robust solver set aside.
        """
        observed = np.asarray(values[..., errors.bands], dtype=np.float64)
        known = np.asarray(estimate[..., errors.bands], dtype=np.float64)
        used = np.isfinite(observed) & np.isfinite(known)
        # A constant band is predicted exactly by construction.
        low, high = (np.where(used, observed, fill) for fill in (np.inf, -np.inf))
        used &= low.min(axis=(0, 1)) < high.max(axis=(0, 1))
        if rejected is not None:
            used &= ~rejected[..., errors.bands]
        observed = np.where(used, observed, np.nan_to_num(known))
        if errors.pixel_scale is not None:
            observed = observed / errors.pixel_scale[..., None]
        return cls(observed, used, errors.factors)

    @property
    def valid(self) -> np.ndarray:
        """(row, col) True for pixels with any element in use."""
        return np.any(self.used, axis=2)

    def windows(self) -> Iterator[tuple[int, int, int]]:
        """Yield the windows (row, band window, col) that predict: they hardly overlap."""
        grid = self.factors.grid
        for i in partition(grid.rows):
            for k in partition(grid.bands):
                for j in partition(grid.cols):
                    yield i, k, j

    def signal_part(self, window: tuple[int, int, int]) -> tuple[np.ndarray, np.ndarray]:
        """Return U (r, rows, cols) and V (r, bands) of the components above the noise edge."""
        count = int(self.factors.n_signal[window])
        return self.factors.left[window][:count], self.factors.right[window][:count]


def leave_one_out(scene: SolvedScene) -> LeftOut:
    """Return the standardised prediction errors of a solved scene."""
    factors, valid = scene.factors, scene.valid
    white = factors.noise.whiten(scene.values) * valid[..., None]
    z = np.full(white.shape, np.nan, dtype=np.float32)
    owner = np.full(valid.shape, -1)
    space = _Space()
    for number, (i, k, j) in enumerate(scene.windows()):
        rows, cols, bands = factors.grid.slices(i, j, k)
        left, right = scene.signal_part((i, k, j))
        patch = white[rows, cols, bands]
        residual = patch - np.tensordot(patch @ right.T, right, axes=1)
        inflation = factors.influence[i, k, j][: len(right)] ** 4
        freedom = residual_share(np.square(left), inflation)
        z[rows, cols, bands] = _standardised(factors.noise, residual, right, inflation, freedom)
        owner[rows, cols] = number
        space.add(residual, left, valid[rows, cols], patch.shape[2] - len(right))
    z[~scene.used] = np.nan
    owner[~valid] = -1
    return LeftOut(z, owner, space.removed, space.weakest)


def band_spread(z: np.ndarray) -> np.ndarray:
    """Return (bands,) the root mean square of z per band; NaN for bands without any.

    It is the factor by which σ of a band is too small.
    """
    count = np.count_nonzero(np.isfinite(z), axis=(0, 1))
    total = np.nansum(np.square(z, dtype=np.float64), axis=(0, 1))
    return np.sqrt(np.divide(total, count, out=np.full(len(count), np.nan), where=count > 0))


def _standardised(
    noise: Noise,
    residual: np.ndarray,
    right: np.ndarray,
    inflation: np.ndarray,
    freedom: np.ndarray,
) -> np.ndarray:
    """Return z of one window from its whitened residual (I − P_V) L⁻¹ y."""
    whole = np.ones(right.shape[1])
    taken = right
    if not noise.is_diagonal:
        inverse = noise.inverse_factor
        residual = residual @ inverse
        whole = np.einsum("wv,wv->v", inverse, inverse)
        taken = (right @ inverse) / np.sqrt(whole)
    share = residual_share(np.square(taken), inflation)
    known, open_pixels = share > SMALLEST_SHARE, freedom > SMALLEST_SHARE
    scale = np.sqrt(np.where(open_pixels, freedom, 1.0))[..., None] * np.sqrt(
        np.where(known, share * whole, 1.0)
    )
    return np.where(open_pixels[..., None] & known, residual / scale, np.nan)


class _Space:
    """Sums over windows for the two spatial tests."""

    def __init__(self) -> None:
        self._product = self._expected = self._power = 0.0
        self._weakest: list[float] = []

    def add(self, residual: np.ndarray, left: np.ndarray, inside: np.ndarray, freedom: int) -> None:
        """Add one window: residual (rows, cols, bands), U (r, rows, cols)."""
        n_pixels = np.count_nonzero(inside)
        if n_pixels < 2:
            return
        pairs = 0
        for a, b in ((np.s_[1:], np.s_[:-1]), (np.s_[:, 1:], np.s_[:, :-1])):
            self._product += float(np.vdot(residual[a], residual[b]))
            # A fit takes P_U out of white noise, which leaves neighbours −(P_U)_uu' in common.
            self._expected -= freedom * float(np.vdot(_rolled(left, a), _rolled(left, b)))
            pairs += int(np.count_nonzero(inside[a] & inside[b]))
        self._power += float(np.vdot(residual, residual)) / n_pixels * pairs
        if len(left) > 1:
            self._weakest.append(_image_lag1(left[-1], inside))

    @property
    def removed(self) -> float:
        """Lag-1 autocorrelation of the removed part, less what the fits themselves cause."""
        return (self._product - self._expected) / self._power if self._power > 0 else np.nan

    @property
    def weakest(self) -> float:
        """Mean lag-1 autocorrelation of the weakest kept component."""
        return float(np.mean(self._weakest)) if self._weakest else np.nan


def _rolled(left: np.ndarray, part: slice | tuple[slice, ...]) -> np.ndarray:
    """Return the same part of every component's image."""
    parts = part if isinstance(part, tuple) else (part,)
    return left[(slice(None), *parts)]


def _image_lag1(image: np.ndarray, inside: np.ndarray) -> float:
    """Return the autocorrelation of neighbouring pixels of one image, zero where masked."""
    product, pairs = 0.0, 0
    for a, b in ((np.s_[1:], np.s_[:-1]), (np.s_[:, 1:], np.s_[:, :-1])):
        product += float(np.vdot(image[a], image[b]))
        pairs += int(np.count_nonzero(inside[a] & inside[b]))
    power = float(np.vdot(image, image)) / np.count_nonzero(inside)
    return product / pairs / power if pairs and power > 0 else np.nan
