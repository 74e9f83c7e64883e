"""Correlation of the noise between bands, as a function of their distance.

Detectors, read-out and spectral resampling mix neighbouring bands alike wherever they sit, so a
handful of numbers describe the correlation of hundreds of bands. So few can be told from signal;
a free covariance could not.

What is seen of the noise is its part outside some directions of the signal, e = (I − BBᵀ)n. Its
mean products at distance h are linear in the correlations r(h') of n, so that these follow by least
squares. Two shapes are fitted: w ρ^h beside noise of each band's own, which read-out leaves and
which may reach over all bands; and free values up to eight bands, as resampling leaves.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

__all__ = ["BandCorrelation", "LAGS", "correlation_matrix", "fit_correlation"]

LAGS = 8
# Distances that are looked at.
FARTHEST = 40
# The spectral density of the noise across bands is kept above this share of its mean: it bounds
# what whitening can amplify.
LOWEST_DENSITY = 0.01
# Values of ρ that are tried. From ALIKE on little of the noise is seen and ρ comes out too small; a
# larger one may fit so much worse, as σ should rather be too large.
FACTORS = (*np.arange(0.1, 0.88, 0.05).round(2), *np.arange(0.88, 0.99, 0.01).round(2))
ALIKE, NEARLY = 0.88, 1.25
# Values beside the best of them.
FINER = np.arange(-0.04, 0.041, 0.01)
# Free values must fit so much better than ρ^h, and fall to so little.
BETTER, ENDS = 0.7, 0.1
# Shares of bands' own noise that are tried beside free values, and how much of what other bands do
# not predict must come out.
OWN, UNPREDICTED = (0.0, 0.0025, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.05, 0.08), 0.8
# Share of what independent bands do not explain that a correlation may leave, and with which it is
# beyond doubt.
EXPLAINED, SURE = 0.3, 0.15


class BandCorrelation(NamedTuple):
    """Correlation of the noise between bands."""

    by_lag: np.ndarray
    """Correlation at distances 0, 1, … up to that of the first and the last band."""
    std: np.ndarray
    """(bands,) standard deviations that go with it."""
    clear: bool
    """Whether it explains what is seen much better than independent bands do."""
    sure: bool
    """Whether that is beyond doubt."""


def correlation_matrix(by_lag: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """Return the positive definite (bands, bands) correlation with these values by distance.

    Examples
    --------
    >>> import numpy as np
    >>> matrix = correlation_matrix(np.array([1.0, 0.9, 0.1]), np.array([0, 1, 2, 7]))
    >>> bool(np.linalg.eigvalsh(matrix).min() > 0)
    True
    >>> matrix[0].round(2)[[0, 3]]
    array([1., 0.])
    """
    span = int(positions[-1] - positions[0]) + 1
    size = 4 * max(span, 4 * LAGS)
    ring, by_lag = np.zeros(size), by_lag[: size // 2]
    ring[: len(by_lag)] = by_lag
    ring[size - len(by_lag) + 1 :] = by_lag[:0:-1]
    density = np.maximum(np.fft.rfft(ring).real, LOWEST_DENSITY)
    by_distance = np.fft.irfft(density, n=size)
    by_distance /= by_distance[0]
    return by_distance[np.abs(np.subtract.outer(positions, positions))]


def fit_correlation(
    covariance: np.ndarray, directions: np.ndarray, positions: np.ndarray
) -> BandCorrelation:
    """Fit the correlation by distance to noise that is seen outside some directions.

    Parameters
    ----------
    covariance
        (bands, bands) covariance of noise in units of what other bands do not predict of a band;
        only its part outside the directions is used.
    directions
        (bands, k) orthonormal directions of the signal.
    positions
        (bands,) index of each band in the sensor's own numbering: a gap is a distance.

    Examples
    --------
    >>> import numpy as np
    >>> positions = np.arange(60)
    >>> noise = 4 * 0.5 ** np.abs(positions[:, None] - positions)
    >>> signal = np.linalg.qr(np.random.default_rng(0).normal(size=(60, 5)))[0]
    >>> found = fit_correlation(noise + 1e4 * signal @ signal.T, signal, positions)
    >>> bool(np.allclose(found.std, 2, rtol=0.02)), found.by_lag[:3].round(2)
    (True, array([1.  , 0.5 , 0.25]))
    """
    inside = covariance @ directions
    outer = inside @ directions.T
    seen = covariance - outer - outer.T + directions @ (directions.T @ inside) @ directions.T
    span = int(positions[-1] - positions[0]) + 1
    if span == 1 or not np.any(np.diag(seen) > 0):
        return BandCorrelation(np.ones(1), np.sqrt(np.diag(covariance)), False, False)
    lags = _Lags.create(positions, min(FARTHEST, max(span // 2, 1), span - 1))
    products, system = lags.means(seen), lags.system(directions)
    weight = np.sqrt(lags.counts / lags.counts[0])
    fits = _Fits(system * weight[:, None], products * weight, span)
    by_lag, left_over = fits.best()
    model = correlation_matrix(by_lag, positions)
    inner = directions @ (directions.T @ model @ directions) - 2 * model @ directions
    left = np.diag(model) + np.einsum("vk,vk->v", inner, directions)
    power = np.diag(seen) / np.maximum(left, 0.05)
    std = np.sqrt(np.maximum(power, 1e-12 * power.max()))
    return BandCorrelation(by_lag, std, left_over < EXPLAINED, left_over < SURE)


class _Lags(NamedTuple):
    """Pairs of bands by distance."""

    place: np.ndarray
    """(bands,) place of every band among all places."""
    counts: np.ndarray
    """Pairs at distances 0, 1, …."""

    @classmethod
    def create(cls, positions: np.ndarray, farthest: int) -> _Lags:
        place = positions - positions[0]
        here = np.zeros(int(place[-1]) + 1)
        here[place] = 1.0
        counts = [here[: len(here) - h] @ here[h:] for h in range(farthest + 1)]
        return cls(place, np.array(counts))

    def means(self, matrix: np.ndarray) -> np.ndarray:
        """Return the mean of a matrix (bands, bands) at every distance; zero without pairs."""
        distance = np.abs(np.subtract.outer(self.place, self.place))
        near = distance < len(self.counts)
        sums = np.bincount(distance[near], matrix[near], minlength=len(self.counts))
        pairs = np.maximum(self.counts * np.append(1, np.full(len(sums) - 1, 2)), 1)
        return np.asarray(sums / pairs)

    def system(self, directions: np.ndarray) -> np.ndarray:
        """Return how correlations at distances make mean products outside of directions."""
        basis = np.zeros((int(self.place[-1]) + 1, directions.shape[1]))
        basis[self.place] = directions
        there, size = np.zeros(len(basis)), len(self.counts)
        there[self.place] = 1.0
        columns = []
        for lag in range(size):
            moved = _moved(basis, lag) * there[:, None]
            rest = moved - basis @ (basis.T @ moved) / 2
            both = _products(basis, rest, size) + _products(rest, basis, size)
            columns.append(np.eye(size)[lag] - both / np.maximum(self.counts, 1))
        return np.transpose(columns)


def _moved(basis: np.ndarray, lag: int) -> np.ndarray:
    """Return T basis, with T one at places that are ``lag`` apart."""
    if lag == 0:
        return basis
    moved = np.zeros_like(basis)
    moved[:-lag] += basis[lag:]
    moved[lag:] += basis[:-lag]
    return moved


def _products(one: np.ndarray, other: np.ndarray, size: int) -> np.ndarray:
    """Return the sums of one[i] · other[i + h] for distances h below a size."""
    n = len(one)
    return np.array([np.vdot(one[: n - h], other[h:]) for h in range(size)])


class _Fits(NamedTuple):
    """Shapes of the correlation, fitted to what is seen."""

    system: np.ndarray
    products: np.ndarray
    span: int

    def best(self) -> tuple[np.ndarray, float]:
        """Return correlations by distance, and what they leave over what independence does."""
        alone = self._falling(0.0)[0]
        falling = {factor: self._falling(factor) for factor in FACTORS}
        best = min(FACTORS, key=lambda factor: falling[factor][0])
        if best >= ALIKE:
            best = max(f for f in FACTORS if falling[f][0] <= NEARLY * falling[best][0])
        else:
            falling |= {factor: self._falling(factor) for factor in best + FINER}
            best = min(falling, key=lambda factor: falling[factor][0])
        error, by_lag = falling[best]
        free_error, free = self._free()
        if free_error < BETTER * error and abs(by_lag[min(LAGS, len(by_lag) - 1)]) < ENDS:
            error, by_lag = free_error, free
        return by_lag, error / max(alone, 1e-300)

    def _falling(self, factor: float) -> tuple[float, np.ndarray]:
        """Fit noise of bands' own and noise whose correlation falls by a factor per band."""
        power = float(factor) ** np.arange(self.system.shape[1])
        own, shared = self.system[:, 0], self.system @ power
        both = np.stack([own, shared], axis=1) if factor else own[:, None]
        sizes = np.linalg.lstsq(both, self.products, rcond=None)[0]
        if factor and sizes[0] < 0:  # all of it falls
            sizes = np.array([0.0, shared @ self.products / (shared @ shared)])
        if sizes[-1] < 0:
            sizes = np.append(own @ self.products / (own @ own), 0.0)
        error = float(np.linalg.norm(both @ sizes[: both.shape[1]] - self.products))
        by_lag = np.zeros(self.span)
        if factor:
            by_lag = sizes[1] / max(sizes.sum(), 1e-300) * float(factor) ** np.arange(self.span)
        by_lag[0] = 1.0
        return error, by_lag

    def _free(self) -> tuple[float, np.ndarray]:
        """Fit free correlations up to a few bands.

        Where they almost cancel at some period, what a band has of its own is lost in the errors of
        the fit. It is known: one, in units of what other bands do not predict. Noise of bands' own
        takes the place of so much of the rest that it comes out.
        """
        part = self.system[:, : LAGS + 1]
        sizes = np.linalg.lstsq(part, self.products, rcond=None)[0]
        error = float(np.linalg.norm(part @ sizes - self.products))
        if not sizes[0] > 0:
            return np.inf, np.eye(1, LAGS + 1)[0]
        free = sizes / sizes[0]
        for own in OWN:
            by_lag = np.append(1.0, (1 - own) * free[1:])
            size = 4 * LAGS * 4
            ring = np.concatenate([by_lag, np.zeros(size - 2 * len(by_lag) + 1), by_lag[:0:-1]])
            density = np.maximum(np.fft.rfft(ring).real, LOWEST_DENSITY)
            if sizes[0] / np.mean(1 / density) > UNPREDICTED:
                break
        return error, by_lag
