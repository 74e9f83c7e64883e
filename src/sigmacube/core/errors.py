"""What an error model can do, and those that know no windows: measurements and fused cubes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

Weights = np.ndarray | Mapping[tuple[int, int, int], float]
"""Weights of a linear functional: an array of the cube's shape, or a few by (row, col, band)."""

# Directions whose eigenvalue is below this share of the largest are left out of the low-rank form.
NEGLIGIBLE = 1e-10
# Fused means over more supports times bands than this take too long one by one.
MOST_FUNCTIONALS = 2000


@dataclass(frozen=True, eq=False)
class SpectralCovariance:
    """Error covariance of a spectrum as a share of the noise plus a part of low rank.

    Σ = √sᵀ C √s + F diag(d) Fᵀ, with C the noise covariance of a spectrum.

    Examples
    --------
    >>> import numpy as np
    >>> cov = SpectralCovariance(np.full(3, 0.5), np.eye(3), np.ones((3, 1)), np.array([2.0]))
    >>> cov.dense()
    array([[2.5, 2. , 2. ],
           [2. , 2.5, 2. ],
           [2. , 2. , 2.5]])
    >>> cov.of(np.array([[1.0, -1.0, 0.0]]))
    array([[1.]])
    """

    noise_share: np.ndarray
    """(band,) s, the share of the noise variance that every direction keeps; NaN without data."""
    noise: np.ndarray
    """(band, band) C, or (band,) variances where bands are independent."""
    vectors: np.ndarray
    """(band, k) F, in the units of the data."""
    values: np.ndarray
    """(k,) d, by falling size."""

    def dense(self) -> np.ndarray:
        """Return the (band, band) covariance; NaN for bands without data."""
        return self.of(np.eye(len(self.noise_share)), missing=True)

    def std(self) -> np.ndarray:
        """Return the (band,) standard deviations; NaN for bands without data."""
        variance = self.noise if self.noise.ndim == 1 else np.diag(self.noise)
        return np.sqrt(self.noise_share * variance + self.vectors**2 @ self.values)

    def expand(self, bands: np.ndarray, n_bands: int) -> SpectralCovariance:
        """Return the same for a cube of which these are some of the bands."""
        if len(bands) == n_bands:
            return self
        share = np.full(n_bands, np.nan)
        share[bands] = self.noise_share
        vectors = np.zeros((n_bands, self.vectors.shape[1]))
        vectors[bands] = self.vectors
        noise = np.zeros((n_bands,) * self.noise.ndim)
        noise[np.ix_(*[bands] * self.noise.ndim)] = self.noise
        return SpectralCovariance(share, noise, vectors, self.values)

    def scaled(self, bands: np.ndarray) -> SpectralCovariance:
        """Return the covariance of the spectrum with every band multiplied by a factor."""
        outer = np.square(bands) if self.noise.ndim == 1 else np.outer(bands, bands)
        return SpectralCovariance(
            self.noise_share, self.noise * outer, self.vectors * bands[:, None], self.values
        )

    def of(self, combinations: np.ndarray, *, missing: bool = False) -> np.ndarray:
        """Return the (n, n) covariance of combinations (n, bands) of the bands.

        Bands without data must have no weight; with ``missing`` they give NaN.
        """
        combinations = np.asarray(combinations, dtype=np.float64)
        absent = np.isnan(self.noise_share)
        bad = np.any(combinations[:, absent] != 0, axis=1)
        if np.any(bad) and not missing:
            raise ValueError("Invalid combination: it has a weight on a band without data.")
        root = combinations * np.sqrt(np.where(absent, 0, self.noise_share))
        noise = (root * self.noise) @ root.T if self.noise.ndim == 1 else root @ self.noise @ root.T
        part = combinations @ np.where(absent[:, None], 0, self.vectors)
        covariance = noise + (part * self.values) @ part.T
        covariance[bad] = np.nan
        covariance[:, bad] = np.nan
        return covariance


@dataclass(frozen=True, eq=False)
class PixelSets:
    """Sets of pixels with weights, to sum spectra over: blocks, regions."""

    labels: np.ndarray
    """(row, col) number of the set a pixel belongs to, from 0; negative for none."""
    weights: np.ndarray
    """(row, col) weight of each pixel in its set."""
    count: int
    """Number of sets."""
    boxes: np.ndarray | None = None
    """(sets, 4) first row, end, first col, end of each in the whole scene, masked or not; by
    default those of the pixels with a weight."""


class ErrorModel(Protocol):
    """What products, checks and files need to know of the error of a cube."""

    @property
    def shape(self) -> tuple[int, int, int]:
        """Shape of the cube (rows, cols, bands)."""
        ...

    def functional_covariance(self, weights: Sequence[Weights]) -> np.ndarray:
        """Return the (n, n) covariance of Σ weights · estimate for several sets of weights."""
        ...

    def spectral_covariance(self, row: int, col: int) -> np.ndarray:
        """Return the (band, band) error covariance of a pixel."""
        ...

    def region_covariance(self, weights: np.ndarray) -> SpectralCovariance:
        """Return the error covariance of Σ weights · spectrum, weights (row, col)."""
        ...

    def band_covariance(
        self, first: np.ndarray, second: np.ndarray, workers: int | None = None
    ) -> np.ndarray:
        """Return (row, col, n) covariances of combinations (n, bands) of bands at every pixel."""
        ...

    def support_covariance(
        self, sets: PixelSets, first: np.ndarray, second: np.ndarray, workers: int | None = None
    ) -> np.ndarray:
        """Return (sets, n) covariances of combinations (n, bands) of bands, summed over sets."""
        ...

    def draws(
        self, count: int, rng: np.random.Generator, rows: slice, cols: slice
    ) -> Iterator[np.ndarray]:
        """Yield draws (rows, cols, bands) of the error."""
        ...


@dataclass(frozen=True, eq=False)
class IndependentErrors:
    """Errors of a measurement that are independent of each other."""

    variance: np.ndarray
    """(row, col, band); NaN where there is no value."""

    @property
    def shape(self) -> tuple[int, int, int]:
        """Shape of the cube (rows, cols, bands)."""
        rows, cols, bands = self.variance.shape
        return rows, cols, bands

    def functional_covariance(self, weights: Sequence[Weights]) -> np.ndarray:
        """Return the (n, n) covariance of Σ weights · estimate for several sets of weights."""
        dense = np.stack([_dense(w, self.shape).ravel() for w in weights])
        return (dense * np.nan_to_num(self.variance).ravel()) @ dense.T

    def spectral_covariance(self, row: int, col: int) -> np.ndarray:
        """Return the (band, band) error covariance of a pixel."""
        return np.diag(self.variance[row, col])

    def region_covariance(self, weights: np.ndarray) -> SpectralCovariance:
        """Return the error covariance of Σ weights · spectrum, weights (row, col)."""
        used = weights != 0
        variance = np.einsum("p,pv->v", weights[used] ** 2, self.variance[used])
        empty = np.empty((len(variance), 0))
        return SpectralCovariance(np.ones_like(variance), variance, empty, np.empty(0))

    def band_covariance(
        self, first: np.ndarray, second: np.ndarray, workers: int | None = None
    ) -> np.ndarray:
        """Return (row, col, n) covariances of combinations (n, bands) of bands at every pixel."""
        return np.nan_to_num(self.variance) @ (first * second).T

    def support_covariance(
        self, sets: PixelSets, first: np.ndarray, second: np.ndarray, workers: int | None = None
    ) -> np.ndarray:
        """Return (sets, n) covariances of combinations (n, bands) of bands, summed over sets."""
        maps = self.band_covariance(first, second)
        inside = sets.labels >= 0
        each = (sets.weights**2)[inside, None] * maps[inside]
        columns = [np.bincount(sets.labels[inside], column, sets.count) for column in each.T]
        return np.stack(columns, axis=1)

    def draws(
        self, count: int, rng: np.random.Generator, rows: slice, cols: slice
    ) -> Iterator[np.ndarray]:
        """Yield draws (rows, cols, bands) of the error."""
        std = np.sqrt(self.variance[rows, cols])
        for _ in range(count):
            yield std * rng.standard_normal(std.shape)


@dataclass(frozen=True, eq=False)
class CombinedErrors:
    """Errors of Σ_i λ_i X_i, with λ_i (row, col, band) and the errors of the X_i independent."""

    parts: tuple[tuple[ErrorModel, np.ndarray], ...]
    """Error model and weights of each cube."""

    @property
    def shape(self) -> tuple[int, int, int]:
        """Shape of the cube (rows, cols, bands)."""
        return self.parts[0][0].shape

    def functional_covariance(self, weights: Sequence[Weights]) -> np.ndarray:
        """Return the (n, n) covariance of Σ weights · estimate for several sets of weights."""
        total = np.zeros((len(weights), len(weights)))
        for errors, share in self.parts:
            total += errors.functional_covariance([_times(w, share) for w in weights])
        return total

    def spectral_covariance(self, row: int, col: int) -> np.ndarray:
        """Return the (band, band) error covariance of a pixel."""
        total = np.zeros((self.shape[2], self.shape[2]))
        for errors, share in self.parts:
            own = share[row, col]
            used = own != 0
            part = errors.spectral_covariance(row, col) * own * own[:, None]
            total += np.where(used & used[:, None], part, 0)
        return total

    def region_covariance(self, weights: np.ndarray) -> SpectralCovariance:
        """Refuse: the weights λ mix the bands of a region in no simple form."""
        raise ValueError(
            "Invalid request for the covariance of a fused cube's region. It is known for pixels, "
            "and for any sums by functional_cov."
        )

    def band_covariance(
        self, first: np.ndarray, second: np.ndarray, workers: int | None = None
    ) -> np.ndarray:
        """Return (row, col, n) covariances of combinations (n, bands) of bands at every pixel.

        The weights λ differ from pixel to pixel, so a combination is spelled out in its bands.
        """
        output = np.zeros((*self.shape[:2], len(first)))
        unit = np.eye(self.shape[2])
        for n, (one, two) in enumerate(zip(first, second, strict=True)):
            i, j = (grid.ravel() for grid in np.meshgrid(*map(np.flatnonzero, (one, two))))
            for errors, share in self.parts:
                maps = errors.band_covariance(unit[i], unit[j], workers)
                output[..., n] += np.sum(maps * share[..., i] * share[..., j] * one[i] * two[j], -1)
        return output

    def support_covariance(
        self, sets: PixelSets, first: np.ndarray, second: np.ndarray, workers: int | None = None
    ) -> np.ndarray:
        """Return (sets, n) covariances of combinations (n, bands) of bands, summed over sets."""
        rows, index = np.unique(np.concatenate([first, second]), axis=0, return_inverse=True)
        index = index.ravel()
        if sets.count * len(rows) > MOST_FUNCTIONALS:
            raise ValueError(
                f"Invalid request for {sets.count} means of {len(rows)} bands of a fused cube; at "
                f"most {MOST_FUNCTIONALS} are possible. Aggregate each cube first, then fuse the "
                "means."
            )
        output = np.empty((sets.count, len(first)))
        for number in range(sets.count):
            own = np.where(sets.labels == number, sets.weights, 0)[..., None]
            covariance = self.functional_covariance([own * row for row in rows])
            output[number] = covariance[index[: len(first)], index[len(first) :]]
        return output

    def draws(
        self, count: int, rng: np.random.Generator, rows: slice, cols: slice
    ) -> Iterator[np.ndarray]:
        """Yield draws (rows, cols, bands) of the error."""
        streams = [errors.draws(count, rng, rows, cols) for errors, _ in self.parts]
        for drawn in zip(*streams, strict=True):
            total = np.zeros(drawn[0].shape)
            for error, (_, share) in zip(drawn, self.parts, strict=True):
                own = share[rows, cols]
                total += np.where(own != 0, own * error, 0)
            yield total


def _dense(weights: Weights, shape: tuple[int, int, int]) -> np.ndarray:
    if not isinstance(weights, Mapping):
        return np.asarray(weights, dtype=np.float64)
    dense = np.zeros(shape)
    for position, weight in weights.items():
        dense[position] += weight
    return dense


def _times(weights: Weights, share: np.ndarray) -> Weights:
    if isinstance(weights, Mapping):
        return {where: weight * share[where] for where, weight in weights.items()}
    return weights * share
