"""Errors of whitened bands, told in the units and bands of the cube."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from sigmacube.core.errors import NEGLIGIBLE, PixelSets, SpectralCovariance, Weights
from sigmacube.core.parallel import parallel
from sigmacube.core.stored import ModelArrays
from sigmacube.core.whitening import Noise
from sigmacube.core.windows import Span, WindowGrid


@dataclass(frozen=True, eq=False)
class ErrorsInUnits:
    """An error model of unit noise on some bands, as that of the cube itself.

    With C = L Lᵀ the noise of the bands and f_u the factor of a pixel on it, an error e of the
    whitened spectrum is f_u L e in the units of the data.
    """

    white: Any
    """Error model of the whitened bands."""
    noise: Noise
    """Noise of these bands."""
    bands: np.ndarray
    """Indices of the cube's bands that they are."""
    n_bands: int
    """Number of bands of the cube."""
    pixel_scale: np.ndarray | None = None
    """(row, col) factor of every pixel on its noise; None where all are alike."""
    band_scale: np.ndarray | None = None
    """(bands of the cube,) factor of a calibration on the standard deviation; None for none."""
    grid: WindowGrid | None = None
    """Windows of the whole scene, where the model can be stored."""
    gap_factor: np.ndarray | None = None
    """(row, col, band of ``bands``) what left-out elements, or noise that grows with the signal, do
    to the std of an element; None is one. Sums over many elements take its mean over them."""

    @property
    def shape(self) -> tuple[int, int, int]:
        """Shape of the cube (rows, cols, bands)."""
        rows, cols, _ = self.white.shape
        return rows, cols, self.n_bands

    def scaled(self, factors: np.ndarray) -> Self:
        """Return the model with the standard deviation of every band scaled."""
        previous = 1.0 if self.band_scale is None else self.band_scale
        return replace(self, band_scale=factors * previous)

    def to_arrays(self, rows: Span | None = None, cols: Span | None = None) -> ModelArrays:
        """Return what is kept in a file: the rows and columns of the scene that it knows."""
        from sigmacube.core.spatial.storage import to_arrays

        assert self.grid is not None
        top, left = self.white.box.top, self.white.box.left
        height, width, _ = self.shape
        span = (rows or (top, top + height), cols or (left, left + width))
        return to_arrays(self, self.grid, span)

    def functional_covariance(self, weights: Sequence[Weights]) -> np.ndarray:
        """Return the (n, n) covariance of Σ weights · estimate for several sets of weights."""
        covariance: np.ndarray = self.white.functional_covariance([self._white(w) for w in weights])
        return covariance

    def spectral_covariance(self, row: int, col: int) -> np.ndarray:
        """Return the (band, band) error covariance of a pixel; NaN for bands without data."""
        scale = np.ones(len(self.bands))
        if self.pixel_scale is not None:
            scale *= self.pixel_scale[row, col]
        if self.gap_factor is not None:
            scale *= self.gap_factor[row, col]
        if self.band_scale is not None:
            scale *= self.band_scale[self.bands]
        found = self.noise.unwhiten(self.white.spectral_covariance(row, col))
        found = self.noise.unwhiten(found.T)
        covariance = np.full((self.n_bands, self.n_bands), np.nan)
        covariance[np.ix_(self.bands, self.bands)] = found * np.outer(scale, scale)
        return covariance

    def region_covariance(self, weights: np.ndarray) -> SpectralCovariance:
        """Return the error covariance of Σ weights · spectrum, weights (row, col)."""
        weights = np.asarray(weights, dtype=np.float64)
        white = self.white.region_covariance(self._on_pixels(weights))
        values, vectors = np.linalg.eigh(white)
        share = max(float(values[0]), 0.0)  # that of most directions: those outside the subspace
        order = np.flatnonzero(values - share > NEGLIGIBLE * values[-1])[::-1]
        noise = (
            np.square(self.noise.std) if self.noise.is_diagonal else np.asarray(self.noise.value)
        )
        found = SpectralCovariance(
            np.full(len(values), share),
            noise,
            self.noise.unwhiten(vectors[:, order].T).T,
            values[order] - share,
        )
        return found.scaled(self._on_bands * self._in_region(weights)).expand(
            self.bands, self.n_bands
        )

    def band_covariance(
        self, first: np.ndarray, second: np.ndarray, workers: int | None = None
    ) -> np.ndarray:
        """Return (row, col, n) covariances of combinations (n, bands) of bands at every pixel."""
        with parallel(workers) as run:
            covariance = self.white.band_covariance(self._rows(first), self._rows(second), run)
        covariance = covariance * np.square(self._on_pixels(1.0))[..., None]
        if self.gap_factor is not None:
            for rows in (first, second):
                covariance *= np.sqrt(self._of_elements(rows))
        return np.asarray(covariance)

    def support_covariance(
        self, sets: PixelSets, first: np.ndarray, second: np.ndarray, workers: int | None = None
    ) -> np.ndarray:
        """Return (sets, n) covariances of combinations (n, bands) of bands, summed over sets."""
        weights, rows = self._on_pixels(sets.weights), (self._rows(first), self._rows(second))
        covariance: np.ndarray = self.white.support_covariance(
            sets.labels, sets.count, weights, *rows
        )
        return covariance * self._in_sets(sets, first, second)

    def draws(
        self, count: int, rng: np.random.Generator, rows: slice, cols: slice
    ) -> Iterator[np.ndarray]:
        """Yield draws (rows, cols, bands) of the error; NaN for bands without data."""
        for drawn in self.white.draws(count, rng, rows, cols):
            error = self.noise.unwhiten(drawn)
            if self.gap_factor is not None:
                error = error * self.gap_factor[rows, cols]
            if self.pixel_scale is not None:
                error = error * self.pixel_scale[rows, cols][..., None]
            whole = np.full((*error.shape[:2], self.n_bands), np.nan)
            whole[..., self.bands] = error
            yield whole if self.band_scale is None else whole * self.band_scale

    def _on_pixels(self, weights: Any) -> Any:
        """Return weights (row, col) of pixels on what the whitened bands say of them."""
        if self.gap_factor is not None:
            weights = weights * self._of_pixels
        return weights if self.pixel_scale is None else weights * self.pixel_scale

    @property
    def _on_bands(self) -> np.ndarray:
        """(band of ``bands``,) factor of calibration on the std."""
        return np.ones(len(self.bands)) if self.band_scale is None else self.band_scale[self.bands]

    @cached_property
    def _of_pixels(self) -> np.ndarray:
        """(row, col) root mean square over bands of the factor of elements; one where unknown."""
        assert self.gap_factor is not None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # pixels without any value
            mean = np.nanmean(np.square(self.gap_factor, dtype=np.float64), axis=2)
        return np.nan_to_num(np.sqrt(mean), nan=1.0)

    def _beside(self, pixels: Any = slice(None)) -> np.ndarray:
        """Return the square of the factor of elements, beside that of their pixel."""
        assert self.gap_factor is not None
        beside = self.gap_factor[pixels] / self._of_pixels[pixels][..., None]
        return np.nan_to_num(np.square(beside, dtype=np.float64), nan=1.0)

    def _in_region(self, weights: np.ndarray) -> np.ndarray | float:
        """Return (band of ``bands``,) what the factor of elements does to the std in a region."""
        if self.gap_factor is None or not weights.any():
            return 1.0
        at = np.nonzero(weights)
        return np.sqrt(np.average(self._beside(at), axis=0, weights=np.square(weights[at])))

    def _of_elements(self, combinations: np.ndarray) -> np.ndarray:
        """Return (row, col, n) what that factor does to the variance of combinations of bands.

        Bands count by the noise that they bring into a combination.
        """
        brought = np.square(np.asarray(combinations)[:, self.bands] * self.noise.std)
        brought /= np.maximum(brought.sum(axis=1, keepdims=True), 1e-300)
        return self._beside() @ brought.T

    def _in_sets(
        self, sets: PixelSets, first: np.ndarray, second: np.ndarray
    ) -> np.ndarray | float:
        """Return (sets, n) what that factor does to covariances of combinations, over sets."""
        if self.gap_factor is None:
            return 1.0
        inside = sets.labels >= 0
        label, weight = sets.labels[inside], np.square(sets.weights[inside])
        total = np.maximum(np.bincount(label, weight, sets.count), 1e-300)
        found: np.ndarray | float = 1.0
        for combinations in (first, second):
            part = self._of_elements(combinations)[inside] * weight[:, None]
            sums = [np.bincount(label, column, sets.count) / total for column in part.T]
            found = found * np.sqrt(np.stack(sums, axis=1))
        return found

    def _rows(self, combinations: np.ndarray) -> np.ndarray:
        """Return combinations (n, bands of the cube) as (n, whitened bands)."""
        combinations = np.asarray(combinations, dtype=np.float64)
        absent = np.setdiff1d(np.arange(self.n_bands), self.bands)
        if np.any(combinations[:, absent]):
            raise ValueError("Invalid combination: it has a weight on a band without data.")
        return self.noise.weights_to_white(combinations[:, self.bands] * self._on_bands)

    def _white(self, weights: Weights) -> Weights:
        """Return weights on the cube as weights on whitened bands."""
        if not isinstance(weights, Mapping):
            dense = np.asarray(weights, dtype=np.float64)
            if dense.shape != self.shape:
                raise ValueError(
                    f"Invalid weights of shape {dense.shape}. They must have the shape of the "
                    f"cube, {self.shape}, or be a mapping from (row, col, band) to a weight."
                )
            return self._of_spectra(dense, np.s_[:, :])
        pixels: dict[tuple[int, int], np.ndarray] = {}
        for (row, col, band), weight in weights.items():
            pixels.setdefault((row, col), np.zeros(self.n_bands))[band] += weight
        whitened: dict[tuple[int, int, int], float] = {}
        for (row, col), spectrum in pixels.items():
            white = self._of_spectra(spectrum, (row, col))
            whitened |= {(row, col, int(v)): float(white[v]) for v in np.flatnonzero(white)}
        return whitened

    def _of_spectra(self, weights: np.ndarray, pixels: Any) -> np.ndarray:
        """Return weights (..., band) on some pixels as weights on their whitened bands."""
        if self.band_scale is not None:
            weights = weights * self.band_scale
        weights = weights[..., self.bands]
        if self.gap_factor is not None:  # NaN where nothing is known and nothing asked
            weights = np.where(weights == 0, 0.0, weights * self.gap_factor[pixels])
        white = self.noise.weights_to_white(weights)
        return white if self.pixel_scale is None else white * self.pixel_scale[pixels][..., None]
