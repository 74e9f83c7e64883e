"""Error models of what is not a denoised cube alone: independent measurements, and fused cubes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from sigmacube.core.lowrank.functionals import Weights
from sigmacube.core.lowrank.regions import SpectralCovariance

__all__ = ["CombinedErrors", "Errors", "IndependentErrors"]

# Fused means over more supports times bands than this take too long one by one.
MOST_FUNCTIONALS = 2000


class Errors(Protocol):
    """What products need to know of the error of a cube."""

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
        maps = self.band_covariance(first, second)
        inside = labels >= 0
        each = (weights**2)[inside, None] * maps[inside]
        columns = [np.bincount(labels[inside], column, count) for column in each.T]
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

    parts: tuple[tuple[Errors, np.ndarray], ...]
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
        rows, index = np.unique(np.concatenate([first, second]), axis=0, return_inverse=True)
        index = index.ravel()
        if count * len(rows) > MOST_FUNCTIONALS:
            raise ValueError(
                f"Invalid request for {count} means of {len(rows)} bands of a fused cube; at most "
                f"{MOST_FUNCTIONALS} are possible. Aggregate each cube first, then fuse the means."
            )
        output = np.empty((count, len(first)))
        for number in range(count):
            own = np.where(labels == number, weights, 0)[..., None]
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
