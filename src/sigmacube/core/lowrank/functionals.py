"""Variance of any linear functional of the estimate, and the covariance of a pixel's spectrum.

For weights c on the cube, each window sees its share C_a of them and passes on
T_a(C_a) = P_U C_a + C_a P_V − P_U C_a P_V. With h the sum of these over all windows, the variance
of Σ c Ŵ is Σ h², exactly what the noise does to the weighted mean to first order.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from sigmacube.core.lowrank.factors import Factors
from sigmacube.core.lowrank.regions import SpectralCovariance, region_covariance
from sigmacube.core.windows import WindowGrid

if TYPE_CHECKING:
    from sigmacube.core.stored import ModelArrays

__all__ = [
    "ErrorModel",
    "functional_covariance",
    "functional_variance",
    "mean_inflation",
    "spectral_covariance",
]

Weights = np.ndarray | Mapping[tuple[int, int, int], float]


@dataclass(frozen=True, eq=False)
class ErrorModel:
    """First-order error of a result: noise through the windows, plus kept pure noise."""

    factors: Factors
    noise_variance: np.ndarray | None
    """(row, col, band cell) variance of kept components of pure noise, relative to the noise."""
    bands: np.ndarray
    """Indices of the cube's bands that the factors hold."""
    n_bands: int
    """Number of bands of the cube."""
    pixel_scale: np.ndarray | None = None
    """(row, col) factor of every pixel on its noise; None where all are alike."""
    band_scale: np.ndarray | None = None
    """(bands of the cube,) factor of a calibration on the standard deviation; None for none."""
    inflation: np.ndarray | None = None
    """(row, col, band of the factors) what left-out elements do to the std; None is one."""
    mean_inflation: np.ndarray | None = None
    """(band of the factors,) that of the whole scene by band, where this is a part of it."""

    @property
    def shape(self) -> tuple[int, int, int]:
        """Shape of the cube (rows, cols, bands)."""
        rows, cols, _ = self.factors.grid.cube_shape
        return rows, cols, self.n_bands

    def to_arrays(
        self, rows: tuple[int, int] | None = None, cols: tuple[int, int] | None = None
    ) -> ModelArrays:
        """Return what is kept in a file of some rows and columns of the whole scene; all of it."""
        from sigmacube.core.lowrank.storage import to_arrays

        return to_arrays(self, rows or (0, self.shape[0]), cols or (0, self.shape[1]))

    def functional_variance(self, weights: Weights) -> float:
        """Return the variance of Σ weights · estimate, weights on all bands of the cube."""
        return float(self.functional_covariance([weights])[0, 0])

    def functional_covariance(self, weights: Sequence[Weights]) -> np.ndarray:
        """Return the (n, n) covariance of Σ weights · estimate for several sets of weights."""
        crops = [_Crop.create(w, self.shape) for w in weights]
        crops = [crop.scaled(self.pixel_scale, self.band_scale) for crop in crops]
        crops = [crop.select(self.bands) for crop in crops]
        if self.inflation is None:
            return functional_covariance(self.factors, crops, self.noise_variance)
        # Errors keep their correlation and grow by the inflation of each element; kept pure noise
        # is observed, not predicted, and does not grow.
        grown = [crop.times(self.inflation) for crop in crops]
        covariance = functional_covariance(self.factors, grown)
        if self.noise_variance is not None and np.any(self.noise_variance):
            covariance += functional_covariance(self.factors, crops, self.noise_variance)
            covariance -= functional_covariance(self.factors, crops)
        return covariance

    def spectral_covariance(self, row: int, col: int) -> np.ndarray:
        """Return the (band, band) error covariance of a pixel; NaN for bands without data."""
        part = spectral_covariance(self.factors, row, col, self.noise_variance)
        if self.inflation is not None:
            plain = spectral_covariance(self.factors, row, col)
            factor = self.inflation[row, col]
            part = part - plain + plain * factor[:, None] * factor
        covariance = np.full((self.n_bands, self.n_bands), np.nan)
        covariance[np.ix_(self.bands, self.bands)] = part
        if self.pixel_scale is not None:
            covariance *= self.pixel_scale[row, col] ** 2
        if self.band_scale is not None:
            covariance *= np.outer(self.band_scale, self.band_scale)
        return covariance

    def region_covariance(self, weights: np.ndarray) -> SpectralCovariance:
        """Return the error covariance of Σ weights · spectrum, weights (row, col)."""
        part = region_covariance(self.factors, self._on_pixels(weights), self.noise_variance)
        whole = part.expand(self.bands, self.n_bands)
        if self.inflation is not None:
            bands = np.ones(self.n_bands)
            bands[self.bands] = self._separate_inflation[1]
            whole = whole.scaled(bands)
        return whole if self.band_scale is None else whole.scaled(self.band_scale)

    def band_covariance(
        self, first: np.ndarray, second: np.ndarray, workers: int | None = None
    ) -> np.ndarray:
        """Return (row, col, n) covariances of combinations (n, bands) of bands at every pixel."""
        from sigmacube.core.lowrank.covariance import band_covariance
        from sigmacube.core.parallel import parallel

        sides = (self._known_bands(first), self._known_bands(second))
        with parallel(workers) as run:
            covariance = band_covariance(self.factors, *sides, self.noise_variance, run)
        scale = self._pixel_factor
        if scale is not None:
            covariance *= np.square(scale)[..., None]
        return covariance

    def support_covariance(
        self,
        labels: np.ndarray,
        count: int,
        weights: np.ndarray,
        first: np.ndarray,
        second: np.ndarray,
        workers: int | None = None,
        boxes: np.ndarray | None = None,
    ) -> np.ndarray:
        """Return (supports, n) covariances of combinations of bands, averaged over supports.

        Supports are given by ``labels`` (row, col), from 0, negative for none; ``weights``
        (row, col) are those of the pixels in their supports. ``boxes`` (supports, 4) are the rows
        and columns of the whole scene that hold them; found here by default.
        """
        from sigmacube.core.lowrank.covariance import support_covariance
        from sigmacube.core.parallel import parallel

        sides = (self._known_bands(first), self._known_bands(second))
        weights = self._on_pixels(weights)
        wide = _wide_supports(labels, count, self.factors.grid)
        small = np.where(np.isin(labels, wide), -1, labels)
        with parallel(workers) as run:
            covariance = support_covariance(
                self.factors, small, count, weights, *sides, self.noise_variance, run, boxes
            )
        for number in wide:
            own = np.where(labels == number, weights, 0.0)
            region = region_covariance(self.factors, own, self.noise_variance)
            covariance[number] = region.pairs(*sides)
        return covariance

    def draws(
        self, count: int, rng: np.random.Generator, rows: slice, cols: slice
    ) -> Iterator[np.ndarray]:
        """Yield draws (rows, cols, bands) of the error; NaN for bands without data."""
        from sigmacube.core.lowrank.sampling import draw_errors

        drawn = draw_errors(
            self.factors, count, rng, rows=rows, cols=cols, noise_variance=self.noise_variance
        )
        for error in drawn:
            if self.inflation is not None:
                error *= self.inflation[rows, cols]
            if self.pixel_scale is not None:
                error *= self.pixel_scale[rows, cols, None]
            if self.band_scale is not None:
                error *= self.band_scale[self.bands]
            if len(self.bands) == self.n_bands:
                yield error
            else:
                whole = np.full((*error.shape[:2], self.n_bands), np.nan)
                whole[..., self.bands] = error
                yield whole

    def _known_bands(self, rows: np.ndarray) -> np.ndarray:
        """Return weights (n, bands) on the bands that the factors hold."""
        absent = np.setdiff1d(np.arange(self.n_bands), self.bands)
        if np.any(rows[:, absent]):
            raise ValueError("Invalid combination: it has a weight on a band without data.")
        scale = 1.0 if self.band_scale is None else self.band_scale
        known = (rows * scale)[:, self.bands]
        return known if self.inflation is None else known * self._separate_inflation[1]

    def _on_pixels(self, weights: np.ndarray) -> np.ndarray:
        """Return weights (row, col) on errors that the factors give, before the pixels' scale."""
        scale = self._pixel_factor
        return weights if scale is None else weights * scale

    @property
    def _pixel_factor(self) -> np.ndarray | None:
        """(row, col) factor of every pixel on what the factors give."""
        if self.inflation is None:
            return self.pixel_scale
        pixels = self._separate_inflation[0]
        return pixels if self.pixel_scale is None else pixels * self.pixel_scale

    @cached_property
    def _separate_inflation(self) -> tuple[np.ndarray, np.ndarray]:
        """Inflation as a factor per pixel times one per band, for sums over many elements."""
        assert self.inflation is not None
        bands = self.mean_inflation
        if bands is None:
            bands = mean_inflation([self.inflation])
        return np.nan_to_num(_pixel_inflation(self.inflation), nan=1.0), bands


def mean_inflation(strips: Iterable[np.ndarray]) -> np.ndarray:
    """Return (bands,) the inflation of a scene by band, beside that of its pixels.

    Parameters
    ----------
    strips
        (row, col, band) inflation of whole rows, strip after strip; how the scene is cut does not
        change the result.

    Examples
    --------
    >>> mean_inflation([np.full((2, 3, 2), 1.5), np.full((1, 3, 2), 1.2)])
    array([1., 1.])
    """
    total: np.ndarray | float = 0.0
    count: np.ndarray | int = 0
    for strip in strips:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # pixels without any value
            share = np.square(strip / _pixel_inflation(strip)[..., None])
        for row in np.nansum(share, axis=1):
            total = total + row
        count = count + np.count_nonzero(np.isfinite(share), axis=(0, 1))
    return np.where(count > 0, np.sqrt(total / np.maximum(count, 1)), 1.0)


def _pixel_inflation(inflation: np.ndarray) -> np.ndarray:
    """Return (row, col) the root mean square of the inflation over bands."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # pixels without any value
        return np.sqrt(np.nanmean(np.square(inflation, dtype=np.float64), axis=2))


@dataclass(frozen=True, eq=False)
class _Crop:
    """Weights on the cube, cut to the pixels where there are any."""

    row: int
    col: int
    values: np.ndarray
    """(rows, cols, bands)"""

    @classmethod
    def create(cls, weights: Weights, shape: tuple[int, int, int]) -> _Crop:
        if not isinstance(weights, Mapping):
            dense = np.asarray(weights, dtype=np.float64)
            if dense.shape != shape:
                raise ValueError(
                    f"Invalid weights of shape {dense.shape}. They must have the shape of the "
                    f"cube, {shape}, or be a mapping from (row, col, band) to a weight."
                )
            touched = np.any(dense, axis=2)
            rows, cols = _extent(np.any(touched, axis=1)), _extent(np.any(touched, axis=0))
            return cls(rows.start, cols.start, dense[rows, cols])
        where = np.array(list(weights), dtype=int).reshape(-1, 3)
        if np.any((where < 0) | (where >= shape)):
            raise ValueError(f"Invalid weights outside of the cube, {shape}.")
        low = where.min(axis=0, initial=0 if not len(where) else max(shape))
        high = where.max(axis=0, initial=0)
        values = np.zeros((*(high - low + 1)[:2], shape[2]))
        at = (where[:, 0] - low[0], where[:, 1] - low[1], where[:, 2])
        np.add.at(values, at, np.array(list(weights.values()), dtype=np.float64))
        return cls(int(low[0]), int(low[1]), values)

    def scaled(self, pixels: np.ndarray | None, bands: np.ndarray | None) -> _Crop:
        """Return the weights times a factor per pixel of the cube and one per band."""
        values = self.values
        if pixels is not None:
            rows, cols = (slice(s, s + n) for s, n in zip((self.row, self.col), values.shape[:2],
                                                          strict=True))  # fmt: skip
            values = values * pixels[rows, cols, None]
        if bands is not None:
            values = values * bands
        return _Crop(self.row, self.col, values)

    def times(self, factor: np.ndarray) -> _Crop:
        """Return the weights times a factor (row, col, band) of the cube, where there are any."""
        rows, cols, _ = self.values.shape
        part = factor[self.row : self.row + rows, self.col : self.col + cols]
        return _Crop(self.row, self.col, np.where(self.values == 0, 0.0, self.values * part))

    def select(self, bands: np.ndarray) -> _Crop:
        """Return the weights of some of the bands."""
        if len(bands) == self.values.shape[2]:
            return self
        return _Crop(self.row, self.col, self.values[..., bands])

    def dot(self, other: _Crop) -> float:
        """Return the sum of products where both are."""
        a, b = self.common(other), other.common(self)
        return float(np.sum(self.values[a] * other.values[b]))

    def common(self, other: _Crop) -> tuple[slice, slice]:
        """Return the part of this crop that the other covers too."""
        spans = []
        for start, size, theirs, extent in (
            (self.row, self.values.shape[0], other.row, other.values.shape[0]),
            (self.col, self.values.shape[1], other.col, other.values.shape[1]),
        ):
            low, high = max(start, theirs), min(start + size, theirs + extent)
            spans.append(slice(low - start, max(high, low) - start))
        return spans[0], spans[1]


def _wide_supports(labels: np.ndarray, count: int, grid: WindowGrid) -> np.ndarray:
    """Return the supports wider than two windows: these are better done one by one."""
    rows, cols = np.nonzero(labels >= 0)
    number = labels[rows, cols]
    wide = np.zeros(count, dtype=bool)
    for position, axis in ((rows, grid.rows), (cols, grid.cols)):
        low, high = np.full(count, np.iinfo(int).max), np.full(count, -1)
        np.minimum.at(low, number, position)
        np.maximum.at(high, number, position)
        wide |= (high - low >= 2 * axis.size) & (high >= 0)
    return np.flatnonzero(wide)


def _extent(used: np.ndarray) -> slice:
    where = np.flatnonzero(used)
    return slice(int(where[0]), int(where[-1]) + 1) if len(where) else slice(0, 1)


def functional_variance(
    factors: Factors, weights: np.ndarray, noise_variance: np.ndarray | None = None
) -> float:
    """Return the variance of Σ weights · estimate, weights (row, col, band)."""
    crop = _Crop.create(weights, factors.grid.cube_shape)
    return float(functional_covariance(factors, [crop], noise_variance)[0, 0])


def functional_covariance(
    factors: Factors, weights: Sequence[_Crop], noise_variance: np.ndarray | None = None
) -> np.ndarray:
    """Return the (n, n) covariance of several linear functionals of the estimate.

    Parameters
    ----------
    factors
        Factors of all windows.
    weights
        Weights of each functional on the bands that the factors hold.
    noise_variance
        (row, col, band cell) variance of kept components of pure noise, white inside a window.
    """
    noise = factors.noise
    white = [_Crop(c.row, c.col, noise.weights_to_white(c.values)) for c in weights]
    fields = [_field(factors, c) for c in white]
    covariance = np.empty((len(white), len(white)))
    for i in range(len(white)):
        for j in range(i, len(white)):
            value = fields[i].dot(fields[j])
            if noise_variance is not None:
                value += _scaled_by(white[i], noise_variance, factors).dot(white[j])
            covariance[i, j] = covariance[j, i] = value
    return covariance


def _scaled_by(crop: _Crop, noise_variance: np.ndarray, factors: Factors) -> _Crop:
    """Return weights times the variance of kept pure noise."""
    rows = slice(crop.row, crop.row + crop.values.shape[0])
    cols = slice(crop.col, crop.col + crop.values.shape[1])
    widths = np.diff(factors.grid.bands.edges)
    level = np.repeat(noise_variance[rows, cols], widths, axis=2)
    return _Crop(crop.row, crop.col, crop.values * level)


def _field(factors: Factors, crop: _Crop) -> _Crop:
    """Return h, what all windows pass on of some weights."""
    grid = factors.grid
    touched, spans = [], []
    for axis, start, size in ((grid.rows, crop.row, crop.values.shape[0]),
                              (grid.cols, crop.col, crop.values.shape[1])):  # fmt: skip
        meets = (axis.starts < start + size) & (axis.starts + axis.size > start)
        touched.append(np.flatnonzero(meets))
        first, last = axis.starts[touched[-1][[0, -1]]]
        spans.append(slice(int(first), int(last) + axis.size))
    extent = tuple(span.stop - span.start for span in spans)
    top, side = spans[0].start, spans[1].start
    padded = np.zeros((*extent, grid.bands.length))
    inner = (slice(crop.row - top, crop.row - top + crop.values.shape[0]),
             slice(crop.col - side, crop.col - side + crop.values.shape[1]))  # fmt: skip
    padded[inner] = crop.values
    padded /= _total_weight(factors, *spans)
    h = np.zeros_like(padded)
    for i in touched[0]:
        for j in touched[1]:
            for k in range(grid.shape[2]):
                rows, cols, bands = grid.slices(int(i), int(j), k)
                here = (slice(rows.start - top, rows.stop - top),
                        slice(cols.start - side, cols.stop - side), bands)  # fmt: skip
                c = padded[here]
                if not c.any():
                    continue
                c = (c * factors.pixel_weights[i, k, j][..., None]).reshape(-1, grid.bands.size)
                h[here] += _propagate(factors, (int(i), k, int(j)), c).reshape(h[here].shape)
    return _Crop(top, side, h)


def _propagate(factors: Factors, window: tuple[int, int, int], c: np.ndarray) -> np.ndarray:
    """Return T(C) of one window."""
    scale = factors.influence[window][:, None]
    u = factors.left[window].reshape(len(scale), -1) * scale
    v = factors.right[window] * scale
    by_pixel = u.T @ (u @ c)
    return by_pixel + ((c - by_pixel) @ v.T) @ v


def _total_weight(
    factors: Factors, row: int | slice = slice(None), col: int | slice = slice(None)
) -> np.ndarray:
    """Return (..., bands) the sum of weights of all windows over each element of some pixels."""
    bands = factors.grid.bands
    sums = factors.weight_sum[row, col]
    total = np.zeros((*sums.shape[:-1], bands.length))
    for k, start in enumerate(bands.starts):
        total[..., start : start + bands.size] += sums[..., k, None]
    return total


def spectral_covariance(
    factors: Factors, row: int, col: int, noise_variance: np.ndarray | None = None
) -> np.ndarray:
    """Return the (band, band) error covariance of one pixel, in the units of the data.

    Summed over the windows a, b over the pixel, with D_a the bands of a window and w_a its weights,

        Σ w_a [s_ab D_a D_b + (a_a − s_ab) D_a P_b + (a_b − s_ab) P_a D_b
               + (1 + s_ab − a_a − a_b) P_a P_b] w_b

    in whitened space, P = V Vᵀ: a diagonal matrix plus one of low rank.
    """
    grid = factors.grid
    windows = [(i, k, j) for i in grid.rows.covering(row) for k in range(grid.shape[2])
               for j in grid.cols.covering(col)]  # fmt: skip
    total = _total_weight(factors, row, col)
    fields, v, w, owner = _stacked(factors, windows, row, col, total)
    s = fields @ fields.T
    a = _own_leverage(factors, windows, row, col)

    vw = v * w[owner]
    kernel = (1 + s - a[:, None] - a)[np.ix_(owner, owner)] * (v @ v.T)
    linear = v * ((a[:, None] - s).T @ w)[owner]
    covariance = vw.T @ kernel @ vw + linear.T @ vw + vw.T @ linear
    diagonal = np.einsum("av,ab,bv->v", w, s, w)
    if noise_variance is not None:
        diagonal = diagonal + np.repeat(noise_variance[row, col], np.diff(grid.bands.edges))
    covariance[np.diag_indices(len(covariance))] += diagonal
    mixing = factors.noise.factor
    return mixing @ covariance @ mixing.T


def _stacked(
    factors: Factors, windows: list[tuple[int, int, int]], row: int, col: int, total: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return rows of P_U, all V and weights of the windows over a pixel.

    (windows, pixels around) rows of P_U; (components, bands) V; (windows, bands) normalised
    weights; (components,) the window each component belongs to.
    """
    grid = factors.grid
    top, side = int(grid.rows.starts[windows[0][0]]), int(grid.cols.starts[windows[0][2]])
    extent = (2 * grid.rows.size - 1, 2 * grid.cols.size - 1)
    rank = factors.left.shape[3]
    fields = np.zeros((len(windows), *extent))
    v = np.zeros((len(windows), rank, grid.cube_shape[2]))
    w = np.zeros((len(windows), grid.cube_shape[2]))
    for n, (i, k, j) in enumerate(windows):
        rows, cols, bands = grid.slices(i, j, k)
        scale = factors.influence[i, k, j]
        u = factors.left[i, k, j] * scale[:, None, None]
        own = u[:, row - rows.start, col - cols.start]
        here = (
            slice(rows.start - top, rows.stop - top),
            slice(cols.start - side, cols.stop - side),
        )
        fields[n][here] = np.tensordot(own, u, axes=1)
        v[n, :, bands] = factors.right[i, k, j] * scale[:, None]
        weight = factors.pixel_weights[i, k, j][row - rows.start, col - cols.start]
        w[n, bands] = weight / total[bands]
    owner = np.repeat(np.arange(len(windows)), rank)
    return fields.reshape(len(windows), -1), v.reshape(-1, v.shape[2]), w, owner


def _own_leverage(
    factors: Factors, windows: list[tuple[int, int, int]], row: int, col: int
) -> np.ndarray:
    """Return the diagonal element of P_U at a pixel, for each window over it."""
    values = []
    for window in windows:
        rows, cols, _ = factors.grid.slices(window[0], window[2], window[1])
        u = factors.left[window][:, row - rows.start, col - cols.start]
        values.append(np.sum(np.square(u * factors.influence[window])))
    return np.array(values)
