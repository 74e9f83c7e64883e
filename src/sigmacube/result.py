"""The result of denoising: an estimate, its standard deviation, and what they rest on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["DenoisedCube"]


@dataclass(frozen=True, eq=False)
class DenoisedCube:
    """A denoised cube with the standard deviation of every value."""

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
    factors: Any = None
    """Window factors behind `functional_std` and `spectral_cov`; None when they were dropped."""

    def interval(self, level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
        """Return the bounds (low, high) of the central interval at ``level``."""
        raise NotImplementedError

    def to_xarray(self) -> xr.Dataset:
        """Return the CF-1.11 dataset that `save` writes."""
        from sigmacube.io import dataset

        return dataset.from_result(self)

    def save(self, path: str | Path, **options: Any) -> Path:
        """Write the result; the suffix decides the format."""
        from sigmacube import io

        return io.write(self, path, **options)
