"""Several measurements of one scene as one cube."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from sigmacube.core.errors import CombinedErrors, ErrorModel, IndependentErrors
from sigmacube.products._types import Product, of_bands
from sigmacube.result import EstimatedCube


@dataclass(frozen=True, eq=False)
class FusedCube(EstimatedCube):
    """Several measurements of one scene as one cube, with its standard deviation."""

    estimate: np.ndarray
    """(row, col, band) precision-weighted mean; NaN where no measurement has a value."""
    std: np.ndarray
    """(row, col, band) its standard deviation."""
    shares: tuple[np.ndarray, ...]
    """(row, col, band) weight of every measurement, summing to one."""
    wavelengths: np.ndarray | None = None
    """(band,) band centres in nm."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """Metadata of the first measurement."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the measurements."""
    error_model: ErrorModel | None = None
    """What products need; None when one of the measurements had none."""

    def as_product(self) -> Product:
        """Return the cube as a product, to be saved."""
        return of_bands(self, self.estimate, self.std, settings=self.settings)

    def save(self, path: str | Path, *, overwrite: bool = False) -> Path:
        """Write the cube as .nc or .zarr."""
        return self.as_product().save(path, overwrite=overwrite)


Measurement = EstimatedCube | Product | tuple[np.ndarray, np.ndarray]


def fuse(first: Measurement, *others: Measurement) -> FusedCube:
    """Fuse independent, co-registered measurements of one scene by precision weighting.

    Every value is the mean of the measurements' values with weights 1/σ², and has the variance
    1/Σ(1/σ²). The errors of different measurements must be independent: two looks at a scene, or a
    denoised cube and data of another instrument, but not two ways of denoising the same data.

    Parameters
    ----------
    first, *others
        Results of `sigmacube.denoise`, products with the same axes, or pairs (values, std) of
        arrays (row, col, band) whose errors are independent of each other.

    Returns
    -------
    FusedCube
        Products of it take all correlations into account where the measurements' are known.

    Examples
    --------
    >>> import numpy as np, sigmacube as sc
    >>> from sigmacube import products
    >>> truth = sc.synthetic.scene((24, 30, 40), rng=1)
    >>> looks = [sc.denoise(sc.synthetic.add_noise(truth, 0.05, rng=n), 0.05, window=12)
    ...          for n in (2, 3)]
    >>> both = products.fuse(*looks)
    >>> bool(np.median(both.std / looks[0].std) < 0.8)
    True
    """
    if not others:
        raise ValueError("Invalid request to fuse one cube. There must be at least two.")
    given = [part.unlabelled() if isinstance(part, EstimatedCube) else part
             for part in (first, *others)]  # fmt: skip
    parts = [_measured(part) for part in given]
    # A pair of arrays has none of these.
    wavelengths = [getattr(part, "wavelengths", None) for part in given]
    metadata = getattr(given[0], "metadata", {})
    settings = [dict(getattr(part, "settings", {})) for part in given]
    shape = parts[0][0].shape
    for number, (values, std, _) in enumerate(parts):
        if values.shape != shape or std.shape != shape:
            raise ValueError(
                f"Invalid measurement {number + 1} of shapes {values.shape} and {std.shape}. All "
                f"must have the shape of the first, {shape}."
            )
        theirs = wavelengths[number]
        if wavelengths[0] is not None and theirs is not None:
            _check_same_bands(wavelengths[0], theirs, number + 1)
    precision = np.stack([_precision(values, std) for values, std, _ in parts])
    total = precision.sum(axis=0)
    shares = np.divide(precision, total, out=np.zeros_like(precision), where=total > 0)
    estimate = sum(np.where(s > 0, s * v, 0) for s, (v, _, _) in zip(shares, parts, strict=True))
    models = [model for _, _, model in parts if model is not None]
    combined = None
    if len(models) == len(parts):
        combined = CombinedErrors(tuple(zip(models, shares, strict=True)))
    with np.errstate(divide="ignore"):
        std = np.where(total > 0, 1 / np.sqrt(total), np.nan)
    return FusedCube(
        np.where(total > 0, estimate, np.nan), std, tuple(shares), wavelengths[0], metadata,
        {"product": "fuse", "cubes": settings}, combined,
    )  # fmt: skip


def _measured(part: Measurement) -> tuple[np.ndarray, np.ndarray, ErrorModel | None]:
    """Return values, standard deviation and error model of a measurement."""
    if isinstance(part, tuple):
        if len(part) != 2:
            raise ValueError(
                f"Invalid measurement of {len(part)} arrays. It must be (values, std)."
            )
        values = np.asarray(part[0], dtype=np.float64)
        std = np.array(np.broadcast_to(np.asarray(part[1], dtype=np.float64), values.shape))
        if np.any(std[np.isfinite(values)] <= 0):
            raise ValueError("Invalid standard deviation of a measurement. It must be above 0.")
        model = IndependentErrors(np.square(std)) if values.ndim == 3 else None
        return values, std, model
    if part.std is None:
        raise ValueError("Invalid measurement: it was made with uncertainty=False.")
    values = np.asarray(part.estimate, dtype=np.float64)
    return values, np.asarray(part.std, dtype=np.float64), getattr(part, "error_model", None)


def _precision(values: np.ndarray, std: np.ndarray) -> np.ndarray:
    known = np.isfinite(values) & np.isfinite(std) & (std > 0)
    return np.where(known, 1 / np.square(np.where(known, std, 1)), 0.0)


def _check_same_bands(ours: np.ndarray, theirs: np.ndarray, number: int) -> None:
    spacing = np.median(np.abs(np.diff(ours))) if len(ours) > 1 else np.inf
    worst = float(np.max(np.abs(ours - theirs)))
    if worst > 0.25 * spacing:
        raise ValueError(
            f"Invalid wavelengths of measurement {number}: they differ by up to {worst:.1f} nm "
            "from the first. Resample to common bands first."
        )
