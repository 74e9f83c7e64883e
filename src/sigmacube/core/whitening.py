"""Noise of a pixel's spectrum: one level, one per band, or a covariance between bands.

With C = L Lᵀ the covariance of a spectrum's noise, the rows L⁻¹y have unit white noise. Windows are
solved there; what they give is multiplied back by L.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

# Columns of a cube that are whitened together where the noise has a covariance. BLAS rounds
# differently for matrices of different shapes; blocks that start at multiples of this agree.
SEGMENT = 32


@dataclass(frozen=True, eq=False)
class Noise:
    """Gaussian noise, independent between pixels, with a known covariance between bands.

    Parameters
    ----------
    value
        Scalar standard deviation, (bands,) standard deviations, or (bands, bands) covariance.
    n_bands
        Number of bands of the cube.

    Examples
    --------
    >>> import numpy as np
    >>> noise = Noise.create(np.array([[4.0, 1.0], [1.0, 1.0]]), 2)
    >>> noise.std
    array([2., 1.])
    >>> white = noise.whiten(np.array([[2.0, 1.0]]))
    >>> np.allclose(noise.unwhiten(white), [[2.0, 1.0]])
    True
    """

    value: float | np.ndarray
    n_bands: int

    @classmethod
    def create(cls, value: float | np.ndarray, n_bands: int) -> Noise:
        """Check what the user gave and wrap it."""
        array = np.asarray(value, dtype=np.float64)
        allowed = (
            f"It must be one standard deviation, {n_bands} of them, or a "
            f"{n_bands}×{n_bands} covariance."
        )
        if array.shape not in {(), (n_bands,), (n_bands, n_bands)}:
            raise ValueError(f"Invalid noise of shape {array.shape}. {allowed}")
        if not np.all(np.isfinite(array)):
            raise ValueError("Invalid noise: it holds NaN or infinity. It must be finite.")
        if array.ndim < 2:
            if np.any(array <= 0):
                raise ValueError(
                    f"Invalid noise {array.min():g}. A standard deviation must be above zero."
                )
            return cls(float(array) if array.ndim == 0 else array.copy(), n_bands)
        scale = np.sqrt(np.abs(np.outer(np.diag(array), np.diag(array)))) + 1e-300
        if not np.allclose(array / scale, array.T / scale, atol=1e-8):
            raise ValueError("Invalid noise covariance: it is not symmetric.")
        noise = cls((array + array.T) / 2, n_bands)
        try:
            _ = noise.factor
        except np.linalg.LinAlgError:
            raise ValueError("Invalid noise covariance: it is not positive definite.") from None
        return noise

    @property
    def is_diagonal(self) -> bool:
        """Whether bands are independent."""
        return np.ndim(self.value) < 2

    @cached_property
    def std(self) -> np.ndarray:
        """(bands,) standard deviation of every band."""
        if not self.is_diagonal:
            return np.sqrt(np.diag(self.value))
        return np.broadcast_to(np.asarray(self.value, dtype=np.float64), (self.n_bands,))

    @cached_property
    def factor(self) -> np.ndarray:
        """(bands, bands) lower triangular L with C = L Lᵀ."""
        if self.is_diagonal:
            return np.diag(self.std)
        return np.linalg.cholesky(self.value)

    @cached_property
    def inverse_factor(self) -> np.ndarray:
        """(bands, bands) lower triangular L⁻¹."""
        if self.is_diagonal:
            return np.diag(1 / self.std)
        from scipy.linalg import solve_triangular

        return solve_triangular(self.factor, np.eye(self.n_bands), lower=True)

    def whiten(self, spectra: np.ndarray) -> np.ndarray:
        """Return L⁻¹y for spectra along the last axis, as a new float64 array."""
        if self.is_diagonal:
            return np.multiply(spectra, 1 / self.std, dtype=np.float64)
        spectra = np.asarray(spectra, dtype=np.float64)
        if spectra.ndim < 3:
            return spectra @ self.inverse_factor.T
        white = np.empty(spectra.shape)
        for start in range(0, spectra.shape[1], SEGMENT):
            part = slice(start, start + SEGMENT)
            np.matmul(spectra[:, part], self.inverse_factor.T, out=white[:, part])
        return white

    def unwhiten(self, spectra: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        """Return L y for spectra along the last axis; in ``out``, maybe theirs, if bands allow."""
        if self.is_diagonal:
            return np.multiply(spectra, self.std, out=out)
        return spectra @ self.factor.T

    def weights_to_white(self, weights: np.ndarray) -> np.ndarray:
        """Return Lᵀc: the weights on whitened spectra that weights c on spectra amount to."""
        return weights * self.std if self.is_diagonal else weights @ self.factor

    def output_rows(self, vectors: np.ndarray) -> np.ndarray:
        """Return rows l_v V / σ_v for (..., bands, rank) vectors V of the whitened space.

        They take the place of V's own rows in every variance relative to the noise of its band
        (theory: β_v = ‖Vᵀl_v‖²). For independent bands they are the rows of V.
        """
        if self.is_diagonal:
            return vectors
        return (self.factor / self.std[:, None]) @ vectors

    def select(self, bands: np.ndarray) -> Noise:
        """Return the noise of some of the bands."""
        if not isinstance(self.value, np.ndarray):
            return Noise(self.value, len(bands))
        part = self.value[bands] if self.is_diagonal else self.value[np.ix_(bands, bands)]
        return Noise(part, len(bands))


def std_of_noise(noise: object) -> np.ndarray:
    """Return standard deviations, one or one per band, of a noise that may be a covariance."""
    level = np.asarray(noise, dtype=np.float64)
    return np.sqrt(np.diag(level)) if level.ndim == 2 else level
