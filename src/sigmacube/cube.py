"""A hyperspectral cube with what identifies it: wavelengths, validity mask, metadata."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from sigmacube.core.card import Card, size_of, span_of


@dataclass(frozen=True, eq=False)
class Cube(Card):
    """A cube of values (row, col, band) with its wavelengths, mask and metadata.

    Parameters
    ----------
    values
        (row, col, band) array, possibly lazy (a memory map), in physical units: a scale factor of
        the file has been applied.
    wavelengths
        (bands,) band centres in nanometres, or None when unknown.
    mask
        (row, col, band) or broadcastable boolean array, True where a value is valid. None means
        that every finite value is valid.
    metadata
        What the file says about itself, JSON-like. The keys every reader and writer shares are
        listed on the documentation's formats page: ``name``, ``units``, ``fwhm`` (nm),
        ``good_bands``, ``band_names``, ``nodata``, ``scale_factor``, ``crs_wkt``, ``transform``
        (six numbers, GDAL affine order a b c d e f), ``map_info``, ``acquisition_time``,
        ``interleave``, ``byte_order``, ``wavelength_units``, ``source``, ``add_offset``,
        ``long_name``, ``standard_name``, ``notes`` (what a reader assumed), ``denoised`` (settings
        of the run that made the file), ``envi`` (other header fields), ``location``,
        ``ortho_transform`` and ``ortho_crs_wkt`` (EMIT), ``instrument``, ``xarray`` (labels of a
        `DataArray`).

    Examples
    --------
    >>> import numpy as np, sigmacube as sc
    >>> cube = sc.Cube(np.zeros((4, 5, 3)), wavelengths=np.array([450.0, 550.0, 650.0]))
    >>> cube.shape
    (4, 5, 3)
    >>> cube.nearest_band(560.0)
    1
    >>> cube
    <Cube>
      size                4 × 5 pixels, 3 bands
      wavelengths         450 to 650 nm
      values              float64
    """

    values: np.ndarray
    wavelengths: np.ndarray | None = None
    mask: np.ndarray | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.values.ndim != 3:
            raise ValueError(
                f"Invalid cube of {self.values.ndim} dimensions, shape {self.values.shape}. "
                "It must have three: (row, col, band)."
            )
        if self.wavelengths is not None and len(self.wavelengths) != self.values.shape[2]:
            raise ValueError(
                f"Invalid wavelengths: {len(self.wavelengths)} given for {self.values.shape[2]} "
                "bands. There must be one per band."
            )

    def _facts(self) -> dict[str, str]:
        metadata = self.metadata
        facts = {"size": size_of(self.shape)} | span_of(self.wavelengths)
        unit = str(metadata.get("units") or "")
        named = " ".join(part for part in (str(metadata.get("name") or ""), unit) if part != "1")
        facts["values"] = f"{self.values.dtype} {named}".strip()
        if self.mask is not None:
            facts["valid"] = f"{100 * float(np.mean(self.mask)):.3g} % of elements"
        if metadata.get("source"):
            facts["source"] = str(metadata["source"])
        return facts

    @property
    def shape(self) -> tuple[int, int, int]:
        """(rows, cols, bands)."""
        rows, cols, bands = self.values.shape
        return rows, cols, bands

    @property
    def dtype(self) -> np.dtype:
        """Type of the values."""
        return self.values.dtype

    def block(self, rows: slice, cols: slice) -> tuple[np.ndarray, np.ndarray | None]:
        """Return values and mask of some rows and columns; nothing is copied.

        Examples
        --------
        >>> import numpy as np, sigmacube as sc
        >>> values, mask = sc.Cube(np.zeros((4, 5, 2))).block(slice(1, 3), slice(0, 5))
        >>> values.shape, mask
        ((2, 5, 2), None)
        """
        if self.mask is None:
            return self.values[rows, cols], None
        whole = slice(None)
        own = [
            whole if size == 1 else part
            for size, part in zip(self.mask.shape, (rows, cols), strict=False)
        ]
        return self.values[rows, cols], self.mask[tuple(own)]

    def nearest_band(self, wavelength: float) -> int:
        """Return the index of the band whose centre is nearest to ``wavelength`` (nm)."""
        if self.wavelengths is None:
            raise ValueError("Invalid wavelength look-up: the cube has no wavelengths.")
        return int(np.argmin(np.abs(np.asarray(self.wavelengths) - wavelength)))

    def with_values(self, values: np.ndarray) -> Cube:
        """Return the same cube with other values."""
        return replace(self, values=values)
