"""`xarray.DataArray` as input: which dimension is which, and what its labels say."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr

from sigmacube.cube import Cube
from sigmacube.io import wavelengths as spectral
from sigmacube.io.crs import from_grid_mapping
from sigmacube.io.variables import BAND_NAMES, COL_NAMES, ROW_NAMES, axes_from_names

#: Units of coordinates that are taken for wavelengths.
_LENGTHS = ("nm", "um", "µm", "nanometer", "nanometre", "micrometer", "micrometre", "micron")


def from_dataarray(array: xr.DataArray) -> Cube:
    """Return a `DataArray` as a cube, in the order (row, col, band).

    The band dimension is found by its name (``band``, ``wavelength``, ``channel`` and the like), by
    a coordinate whose attributes speak of wavelengths, or as the one left beside ``y`` and ``x``.
    Values are taken as they are. Dimensions, coordinates and attributes are kept under
    ``metadata["xarray"]`` and come back with `DenoisedCube.to_xarray`.

    Examples
    --------
    >>> import numpy as np, xarray as xr
    >>> array = xr.DataArray(np.zeros((3, 4, 5)), dims=("wavelength", "y", "x"))
    >>> from_dataarray(array).shape
    (4, 5, 3)
    """
    ordered, wavelengths, metadata = describe(array)
    values = ordered.values
    mask = dataarray_mask(array, values)
    if mask is not None and mask.all():
        mask = None
    return Cube(values, wavelengths, mask, metadata)


def describe(array: xr.DataArray) -> tuple[xr.DataArray, np.ndarray | None, dict[str, Any]]:
    """Return a `DataArray` as (row, col, band), its wavelengths and metadata; nothing is read."""
    if array.ndim != 3:
        raise ValueError(
            f"Invalid DataArray of {array.ndim} dimensions {array.dims}. "
            "It must have three: two of the image and one of the bands."
        )
    roles = _roles(array)
    ordered = array.transpose(*roles)
    band = roles[2]
    metadata: dict[str, Any] = {"xarray": labels_of(array, roles)}
    for key in ("units", "long_name", "standard_name"):
        if isinstance(array.attrs.get(key), str):
            metadata[key] = array.attrs[key]
    if array.name is not None:
        metadata["name"] = str(array.name)
    centres = _band_coordinate(array, band)
    widths = next((array.coords[k] for k in spectral.FWHM_NAMES if k in array.coords), None)
    wavelengths = None
    if centres is not None:
        units = centres.attrs.get("units")
        widths_given = None if widths is None else list(np.atleast_1d(widths.values))
        wavelengths, fwhm, note = spectral.to_nanometres(
            list(centres.values), units if isinstance(units, str) else None, widths_given
        )
        metadata |= {"fwhm": fwhm} if fwhm is not None else {}
        metadata |= {"wavelength_units": units} if isinstance(units, str) else {}
        metadata |= {"notes": [note]} if note else {}
    nodata = _nodata(array)
    metadata |= {} if nodata is None else {"nodata": nodata}
    key = str(array.attrs.get("grid_mapping", "spatial_ref"))
    place = from_grid_mapping(array.coords[key].attrs) if key in array.coords else {}
    return ordered, wavelengths, metadata | place


def _roles(array: xr.DataArray) -> tuple[str, str, str]:
    """Return the dimensions of (row, col, band)."""
    names = [str(dim) for dim in array.dims]
    found = axes_from_names(names)
    if found is None:
        lower = [name.lower() for name in names]
        spectral_dims = [
            i for i, dim in enumerate(names) if _band_coordinate(array, dim) is not None
        ]
        left = [i for i, name in enumerate(lower) if name not in ROW_NAMES | COL_NAMES]
        generic = [i for i, name in enumerate(lower) if re.fullmatch(r"dim_\d+", name)]
        if len(spectral_dims) == 1:
            band = spectral_dims[0]
        elif len(left) == 1:
            band = left[0]
        elif len(generic) == 3:
            band = 2
        else:
            raise ValueError(
                f"Invalid dimensions {tuple(names)}: the band dimension is not clear. "
                f"It must be called one of {', '.join(sorted(BAND_NAMES - {'b'}))}."
            )
        first, second = (i for i in range(3) if i != band)
        if lower[first] in COL_NAMES and lower[second] in ROW_NAMES:
            first, second = second, first
        found = first, second, band
    return names[found[0]], names[found[1]], names[found[2]]


def _band_coordinate(array: xr.DataArray, dim: str) -> xr.DataArray | None:
    """Return the coordinate along ``dim`` that holds wavelengths, by name or by attributes."""
    along = [c for c in array.coords.values() if c.dims == (dim,) and c.dtype.kind in "iuf"]
    for coordinate in along:
        about = str(coordinate.attrs.get("standard_name", ""))
        if "wavelength" in about or str(coordinate.name).lower() in spectral.NAMES:
            return coordinate
    for coordinate in along:
        units = str(coordinate.attrs.get("units", "")).lower().rstrip("s")
        if units in _LENGTHS:
            return coordinate
    return None


def _nodata(array: xr.DataArray) -> float | None:
    nodata = array.attrs.get("_FillValue", array.attrs.get("missing_value"))
    return None if nodata is None else float(nodata)


def dataarray_mask(array: xr.DataArray, values: np.ndarray) -> np.ndarray | None:
    """Return where values of a `DataArray` are not its no-data value; None where it has none."""
    nodata = _nodata(array)
    if nodata is None:
        return None
    valid = values != np.asarray(nodata, dtype=values.dtype)
    if values.dtype.kind == "f":
        valid &= np.isfinite(values)
    return valid


def labels_of(array: xr.DataArray, roles: tuple[str, ...]) -> dict[str, Any]:
    """Return what gives a `DataArray` back its dimensions, coordinates and attributes."""
    return {
        "dims": [str(dim) for dim in array.dims],
        "roles": list(roles),
        "name": array.name,
        "coords": array.coords.to_dataset(),
        "attrs": dict(array.attrs),
    }


def labelled(
    values: np.ndarray, labels: Mapping[str, Any], name: str, attrs: Mapping[str, Any]
) -> xr.DataArray:
    """Return a (row, col, band) array with dimensions, order and coordinates of an input."""
    made = xr.DataArray(values, dims=labels["roles"], name=name, attrs=dict(attrs))
    return made.assign_coords(labels["coords"].coords).transpose(*labels["dims"])


def unlabelled_array(given: Any, labels: Mapping[str, Any]) -> Any:
    """Return a labelled array in the order (row, col, band); anything else as it is."""
    if not isinstance(given, xr.DataArray):
        return given
    unknown = set(given.dims) - set(labels["roles"])
    if unknown:
        raise ValueError(
            f"Invalid dimensions {given.dims}. They must be of the cube's, {labels['roles']}."
        )
    return given.transpose(*(dim for dim in labels["roles"] if dim in given.dims)).values
