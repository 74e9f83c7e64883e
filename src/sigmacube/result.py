"""The result of denoising: an estimate, its standard deviation, and what they rest on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sigmacube.core.functionals import ErrorModel

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["DenoisedCube"]


@dataclass(frozen=True, eq=False)
class DenoisedCube:
    """A denoised cube with the standard deviation of every value.

    The standard deviation is the noise that passes the estimator, to first order. It does not hold
    the bias of the low-rank model; ``residual_ratio`` shows where the model does not fit.

    Examples
    --------
    >>> import numpy as np, sigmacube as sc
    >>> noisy = sc.synthetic.add_noise(sc.synthetic.scene((24, 30, 40), rng=1), 0.05, rng=2)
    >>> result = sc.denoise(noisy, 0.05, window=12)
    >>> low, high = result.interval(0.95)
    >>> bool(np.all(high - low >= 3.9 * result.std))
    True
    >>> result.spectral_cov(3, 4).shape
    (40, 40)

    The error of a mean is not the mean error over √count: neighbouring errors are correlated.

    >>> weights = np.zeros(result.estimate.shape)
    >>> weights[10:15, 10:15, 20:24] = 1 / 100
    >>> naive = np.sqrt(np.sum(weights**2 * result.std**2))
    >>> bool(result.functional_std(weights) > 1.5 * naive)
    True
    """

    estimate: np.ndarray
    """(row, col, band) denoised values; NaN where the input is masked."""
    std: np.ndarray | None
    """(row, col, band) standard deviation of ``estimate``; None with ``uncertainty=False``."""
    ranks: np.ndarray
    """(window rows, window cols) rank of every window; a third axis when windows cut the bands."""
    noise: float | np.ndarray
    """Noise assumed or estimated: scalar std, (band,) stds, or (band, band) covariance."""
    residual_ratio: np.ndarray
    """Like ``ranks``: residual variance over what the noise predicts; 1 where the model fits."""
    rejected: np.ndarray | None = None
    """(row, col, band) True where a robust solver set an element aside; None for ``"svd"``."""
    wavelengths: np.ndarray | None = None
    """(band,) band centres in nm, as in the input."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """The input's metadata, unchanged (see `sigmacube.Cube`)."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """The options that made this result, JSON-like, with the version and the noise's origin."""
    error_model: ErrorModel | None = None
    """What `functional_std` and `spectral_cov` need; None when it was not kept."""

    def interval(self, level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
        """Return the bounds (low, high) of the central interval at ``level``, between 0 and 1."""
        if not 0 < level < 1:
            raise ValueError(f"Invalid level {level}. It must be between 0 and 1.")
        from scipy.special import ndtri

        half = ndtri((1 + level) / 2) * self._known_std()
        return self.estimate - half, self.estimate + half

    def rejected_share(self, axis: str = "band") -> np.ndarray:
        """Return the share of elements a robust solver set aside, per band or per pixel.

        Parameters
        ----------
        axis
            ``"band"`` gives (band,), ``"pixel"`` gives (row, col). Masked values do not count;
            NaN where a band or a pixel has no others. Zero everywhere for ``"svd"``.

        Examples
        --------
        >>> import sigmacube as sc
        >>> truth = sc.synthetic.scene((24, 30, 40), rng=1)
        >>> noisy = sc.synthetic.add_noise(truth, 0.03, impulses=0.1, rng=2)
        >>> result = sc.denoise(noisy, 0.03, window=12, step=6, solver="robust")
        >>> shares = result.rejected_share("band")
        >>> shares.shape, bool(0.08 < shares.mean() < 0.12)
        ((40,), True)
        """
        if axis not in ("band", "pixel"):
            raise ValueError(f"Invalid axis {axis!r}. It must be 'band' or 'pixel'.")
        over = (0, 1) if axis == "band" else 2
        known = np.count_nonzero(np.isfinite(self.estimate), axis=over)
        rejected = np.zeros(known.shape)
        if self.rejected is not None:
            rejected = np.count_nonzero(self.rejected, axis=over)
        return np.divide(rejected, known, out=np.full(known.shape, np.nan), where=known > 0)

    def functional_std(self, weights: np.ndarray | Mapping[tuple[int, int, int], float]) -> float:
        """Return the standard deviation of Σ weights · estimate, with all correlations.

        Parameters
        ----------
        weights
            (row, col, band) array, or a mapping from (row, col, band) to a weight. Weights on
            masked values must be zero.
        """
        return float(np.sqrt(self._known_errors().functional_variance(weights)))

    def spectral_cov(self, row: int, col: int) -> np.ndarray:
        """Return the (band, band) error covariance of one pixel; NaN for bands without data."""
        rows, cols = self.estimate.shape[:2]
        if not (0 <= row < rows and 0 <= col < cols):
            raise ValueError(f"Invalid pixel ({row}, {col}). The cube has {rows}×{cols} pixels.")
        return self._known_errors().spectral_covariance(row, col)

    def to_xarray(self) -> xr.Dataset:
        """Return the CF-1.11 dataset that `save` writes."""
        from sigmacube.io import dataset

        return dataset.from_result(self)

    def save(self, path: str | Path, **options: Any) -> Path:
        """Write the result; the suffix decides the format."""
        from sigmacube import io

        return io.write(self, path, **options)

    def _known_std(self) -> np.ndarray:
        if self.std is None:
            raise ValueError("Invalid request: the result was made with uncertainty=False.")
        return self.std

    def _known_errors(self) -> ErrorModel:
        self._known_std()
        if self.error_model is None:
            raise ValueError("Invalid request: the window factors were not kept with the result.")
        return self.error_model
