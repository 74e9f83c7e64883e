"""Errors of whitened bands, told in the units and bands of the cube."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sigmacube.core.errors import NEGLIGIBLE, SpectralCovariance, Weights
from sigmacube.core.stored import ModelArrays
from sigmacube.core.whitening import Noise
from sigmacube.core.windows import Span, WindowGrid

__all__ = ["ErrorsInUnits"]


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

    @property
    def shape(self) -> tuple[int, int, int]:
        """Shape of the cube (rows, cols, bands)."""
        rows, cols, _ = self.white.shape
        return rows, cols, self.n_bands

    def scaled(self, factors: np.ndarray) -> ErrorsInUnits:
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
        scale = 1.0 if self.pixel_scale is None else self.pixel_scale[row, col] ** 2
        return self._expanded(self.white.spectral_covariance(row, col) * scale)

    def region_covariance(self, weights: np.ndarray) -> SpectralCovariance:
        """Return the error covariance of Σ weights · spectrum, weights (row, col)."""
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
        ).expand(self.bands, self.n_bands)
        return found if self.band_scale is None else found.scaled(self.band_scale)

    def band_covariance(
        self, first: np.ndarray, second: np.ndarray, workers: int | None = None
    ) -> np.ndarray:
        """Return (row, col, n) covariances of combinations (n, bands) of bands at every pixel."""
        covariance = self.white.band_covariance(self._rows(first), self._rows(second))
        if self.pixel_scale is not None:
            covariance = covariance * np.square(self.pixel_scale)[..., None]
        return np.asarray(covariance)

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
        """Return (supports, n) covariances of combinations of bands, averaged over supports."""
        covariance: np.ndarray = self.white.support_covariance(
            labels, count, self._on_pixels(weights), self._rows(first), self._rows(second)
        )
        return covariance

    def draws(
        self, count: int, rng: np.random.Generator, rows: slice, cols: slice
    ) -> Iterator[np.ndarray]:
        """Yield draws (rows, cols, bands) of the error."""
        for drawn in self.white.draws(count, rng, rows, cols):
            error = self.noise.unwhiten(drawn)
            if self.pixel_scale is not None:
                error = error * self.pixel_scale[rows, cols][..., None]
            whole = np.full((*error.shape[:2], self.n_bands), np.nan)
            whole[..., self.bands] = error
            yield whole if self.band_scale is None else whole * self.band_scale

    def _on_pixels(self, weights: np.ndarray) -> np.ndarray:
        return weights if self.pixel_scale is None else weights * self.pixel_scale

    def _rows(self, combinations: np.ndarray) -> np.ndarray:
        """Return combinations (n, bands of the cube) as (n, whitened bands)."""
        combinations = np.asarray(combinations, dtype=np.float64)
        absent = np.setdiff1d(np.arange(self.n_bands), self.bands)
        if np.any(combinations[:, absent]):
            raise ValueError("Invalid combination: it has a weight on a band without data.")
        if self.band_scale is not None:
            combinations = combinations * self.band_scale
        return self.noise.weights_to_white(combinations[:, self.bands])

    def _white(self, weights: Weights) -> Weights:
        """Return weights on the cube as weights on whitened bands."""
        if not isinstance(weights, Mapping):
            dense = np.asarray(weights, dtype=np.float64)
            return self._of_spectra(dense, self.pixel_scale)
        pixels: dict[tuple[int, int], np.ndarray] = {}
        for (row, col, band), weight in weights.items():
            pixels.setdefault((row, col), np.zeros(self.n_bands))[band] += weight
        whitened: dict[tuple[int, int, int], float] = {}
        for (row, col), spectrum in pixels.items():
            scale = None if self.pixel_scale is None else self.pixel_scale[row, col]
            white = self._of_spectra(spectrum, scale)
            whitened |= {(row, col, int(v)): float(white[v]) for v in np.flatnonzero(white)}
        return whitened

    def _of_spectra(self, weights: np.ndarray, scale: Any) -> np.ndarray:
        if self.band_scale is not None:
            weights = weights * self.band_scale
        white = self.noise.weights_to_white(weights[..., self.bands])
        return white if scale is None else white * np.asarray(scale)[..., None]

    def _expanded(self, white: np.ndarray) -> np.ndarray:
        """Return a covariance of whitened bands as one of all bands of the cube."""
        factor = self.noise.factor
        covariance = np.full((self.n_bands, self.n_bands), np.nan)
        covariance[np.ix_(self.bands, self.bands)] = factor @ white @ factor.T
        if self.band_scale is not None:
            covariance *= np.outer(self.band_scale, self.band_scale)
        return covariance
