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

from sigmacube.core.lowrank.errors import LowRankErrors
from sigmacube.core.lowrank.factors import Factors
from sigmacube.core.lowrank.patch_variance import residual_share
from sigmacube.core.validity import valid_elements
from sigmacube.core.whitening import Noise
from sigmacube.core.windows import Axis

__all__ = [
    "Predicted",
    "SolvedScene",
    "Window",
    "band_spread",
    "leave_one_out",
    "partition",
    "predict",
    "territories",
]

# A pixel or band that is nearly all of its own fit cannot be predicted from the others.
SMALLEST_SHARE = 0.05


@dataclass(frozen=True, eq=False)
class Predicted:
    """What one window predicts of the elements that it answers for."""

    number: int
    """Of the window among all that predict in the whole scene, by rows and columns."""
    part: int
    """Of its band window among those that predict."""
    bands: slice
    """Bands with data that it answers for."""
    z: np.ndarray
    """(row, col, band) prediction error over its standard deviation; NaN where there is none."""
    space: tuple[float, float, float, float]
    """Sums for the spatial tests: product of neighbours in what was removed, what the fits cause of
    it, power; and autocorrelation of the weakest component. NaN where there is none."""


@dataclass(frozen=True)
class Window:
    """A window that predicts, and the elements that it answers for."""

    number: int
    part: int
    index: tuple[int, int, int]
    """(row, band window, col) in the grid."""
    own: tuple[slice, slice, slice]
    """(row, col, band) elements of the grid's cube."""


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


def territories(axis: Axis) -> list[tuple[int, int, slice]]:
    """Return the windows of `partition` that lie in an axis, and the elements each answers for.

    They are those of the whole axis, also where this one is a part of it.

    Returns
    -------
    list of (number, window, elements)
        Number among the windows of the whole axis's partition; index and elements in this axis.

    Examples
    --------
    >>> territories(Axis(length=50, size=20, step=4))
    [(0, 0, slice(0, 20, None)), (1, 5, slice(20, 30, None)), (2, 8, slice(30, 50, None))]
    """
    whole, origin = axis.root, axis.origin
    chosen = partition(whole)
    starts = [int(whole.starts[window]) for window in chosen]
    first = int(np.searchsorted(whole.starts, origin))
    return [
        (number, window - first, slice(start - origin, stop - origin))
        for number, (window, start, stop) in enumerate(
            zip(chosen, starts, [*starts[1:], whole.length], strict=True)
        )
        if start >= origin and start + axis.size <= origin + axis.length
    ]


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
        errors: LowRankErrors,
        rejected: np.ndarray | None = None,
        *,
        mask: np.ndarray | None = None,
        varied: np.ndarray | None = None,
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
        mask
            True where values are valid, as for `denoise`.
        varied
            (band with data,) False for bands that are constant in the whole scene; found here by
            default.
        """
        observed = np.asarray(values[..., errors.bands], dtype=np.float64)
        known = np.asarray(estimate[..., errors.bands], dtype=np.float64)
        used = valid_elements(values, mask)[..., errors.bands] & np.isfinite(known)
        # A constant band is predicted exactly by construction.
        if varied is None:
            low, high = (np.where(used, observed, fill) for fill in (np.inf, -np.inf))
            varied = low.min(axis=(0, 1)) < high.max(axis=(0, 1))
        used &= varied
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

    def windows(self) -> Iterator[Window]:
        """Yield the windows that predict: they hardly overlap."""
        grid = self.factors.grid
        n_cols = len(partition(grid.cols.root))
        for row, i, rows in territories(grid.rows):
            for part, k, bands in territories(grid.bands):
                for col, j, cols in territories(grid.cols):
                    yield Window(row * n_cols + col, part, (i, k, j), (rows, cols, bands))

    def signal_part(self, window: tuple[int, int, int]) -> tuple[np.ndarray, np.ndarray]:
        """Return U (r, rows, cols) and V (r, bands) of the components above the noise edge."""
        count = int(self.factors.n_signal[window])
        return self.factors.left[window][:count], self.factors.right[window][:count]


def predict(scene: SolvedScene, window: Window) -> Predicted:
    """Return what a window predicts of its own elements, each from all others.

    It depends on the window alone, to the last bit.
    """
    factors, (i, k, j) = scene.factors, window.index
    rows, cols, bands = factors.grid.slices(i, j, k)
    used = scene.used[rows, cols]
    valid = np.any(used, axis=2)
    left, right = scene.signal_part(window.index)
    white = factors.noise.whiten(np.ascontiguousarray(scene.values[rows, cols]))
    patch = np.ascontiguousarray(white[..., bands] * valid[..., None])
    residual = patch - np.tensordot(patch @ right.T, right, axes=1)
    inflation = factors.influence[i, k, j][: len(right)] ** 4
    freedom = residual_share(np.square(left), inflation)
    z = _standardised(factors.noise, residual, right, inflation, freedom).astype(np.float32)
    z[~used[..., bands]] = np.nan
    own = tuple(
        slice(mine.start - whole.start, mine.stop - whole.start)
        for mine, whole in zip(window.own, (rows, cols, bands), strict=True)
    )
    space = _space(residual, left, valid, patch.shape[2] - len(right))
    return Predicted(window.number, window.part, window.own[2], z[own], space)


def leave_one_out(scene: SolvedScene) -> np.ndarray:
    """Return (row, col, band) standardised prediction errors of a solved scene.

    NaN where there are none.
    """
    z = np.full(scene.values.shape, np.nan, dtype=np.float32)
    for window in scene.windows():
        z[window.own] = predict(scene, window).z
    return z


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


def _space(
    residual: np.ndarray, left: np.ndarray, inside: np.ndarray, freedom: int
) -> tuple[float, float, float, float]:
    """Return the sums of `Predicted.space` of a window: residual (rows, cols, bands), U."""
    n_pixels = np.count_nonzero(inside)
    if n_pixels < 2:
        return (np.nan,) * 4
    pairs, product, expected = 0, 0.0, 0.0
    for a, b in ((np.s_[1:], np.s_[:-1]), (np.s_[:, 1:], np.s_[:, :-1])):
        product += float(np.vdot(residual[a], residual[b]))
        # A fit takes P_U out of white noise, which leaves neighbours −(P_U)_uu' in common.
        expected -= freedom * float(np.vdot(_rolled(left, a), _rolled(left, b)))
        pairs += int(np.count_nonzero(inside[a] & inside[b]))
    power = float(np.vdot(residual, residual)) / n_pixels * pairs
    weakest = _image_lag1(left[-1], inside) if len(left) > 1 else np.nan
    return product, expected, power, weakest


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
