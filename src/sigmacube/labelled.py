"""The result for a `DataArray`: its arrays have the labels of what came in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import numpy as np

from sigmacube.core.errors import SpectralCovariance, Weights
from sigmacube.io.dataarray import labelled, unlabelled_array
from sigmacube.result import DenoisedCube

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["LabelledCube", "with_labels"]


@dataclass(frozen=True, eq=False)
class LabelledCube(DenoisedCube):
    """What `denoise` makes of a `DataArray`: ``estimate`` and ``std`` are labelled like it.

    They have its dimensions in its order, its coordinates and its attributes. Everything else is as
    in `DenoisedCube`; ``arrays`` is the same result in plain arrays (row, col, band).

    Examples
    --------
    >>> import sigmacube as sc, xarray as xr
    >>> noisy = sc.synthetic.add_noise(sc.synthetic.scene((24, 30, 40), rng=1), 0.05, rng=2)
    >>> cube = xr.DataArray(noisy.values, dims=("y", "x", "band"), name="rho")
    >>> result = sc.denoise(cube.transpose("band", ...), 0.05, window=12)
    >>> result.estimate.dims, result.std.dims
    (('band', 'y', 'x'), ('band', 'y', 'x'))
    >>> result.arrays.estimate.shape
    (24, 30, 40)
    """

    estimate: xr.DataArray  # type: ignore[assignment]
    """Denoised values, labelled as the input; NaN where it is masked."""
    std: xr.DataArray | None  # type: ignore[assignment]
    """Standard deviation of ``estimate``; None with ``uncertainty=False``."""
    rejected: xr.DataArray | None = None  # type: ignore[assignment]
    """True where a robust solver set an element aside; None for ``"svd"``."""
    arrays: DenoisedCube = None  # type: ignore[assignment]
    """The same result in plain arrays, (row, col, band)."""

    def unlabelled(self) -> DenoisedCube:
        """Return the same result in plain arrays."""
        return self.arrays

    def functional_cov(self, weights: Sequence[Weights | xr.DataArray]) -> np.ndarray:
        """Return the (n, n) covariance of n sums Σ weights · estimate; see `DenoisedCube`."""
        labels = self.metadata["xarray"]
        return self.arrays.functional_cov([unlabelled_array(one, labels) for one in weights])

    def spectral_cov(self, row: int | np.ndarray, col: int | None = None) -> np.ndarray:
        """Return the (band, band) error covariance of a pixel or of a region's mean spectrum."""
        return self.arrays.spectral_cov(unlabelled_array(row, self.metadata["xarray"]), col)

    def spectral_factors(self, row: int | np.ndarray, col: int | None = None) -> SpectralCovariance:
        """Return what `spectral_cov` does in low-rank form."""
        return self.arrays.spectral_factors(unlabelled_array(row, self.metadata["xarray"]), col)

    def calibrated(self, factors: np.ndarray) -> LabelledCube:
        """Return the result with the standard deviation of every band scaled."""
        return with_labels(self.arrays.calibrated(factors))


def with_labels(result: DenoisedCube) -> LabelledCube:
    """Give the arrays of a result the labels of the `DataArray` that it was made of."""
    labels = result.metadata["xarray"]
    held = {one.name: getattr(result, one.name) for one in fields(result)}
    name = labels["name"] or "estimate"
    held["estimate"] = labelled(result.estimate, labels, name, labels["attrs"])
    units = {key: labels["attrs"][key] for key in ("units",) if key in labels["attrs"]}
    if result.std is not None:
        held["std"] = labelled(result.std, labels, f"{name}_uncertainty", units)
    if result.rejected is not None:
        held["rejected"] = labelled(result.rejected, labels, f"{name}_rejected", {})
    return LabelledCube(**held, arrays=result)
