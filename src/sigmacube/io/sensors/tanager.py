"""Tanager radiance and surface reflectance, as a swath or on a map; bands lie first."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from sigmacube.io.sensors.content import HdfContent, as_text, epsg_wkt, radiance, reflectance
from sigmacube.io.source import Source
from sigmacube.io.variables import Variable, cube_loader, number_in

_CUBES = ("surface_reflectance", "toa_radiance")
_POINT = r"{}=\(([-\d.eE+]+),([-\d.eE+]+)\)"


def _cube(content: HdfContent) -> Variable | None:
    asked = None if content.variable is None else content.variable.rsplit("/", 1)[-1].lower()
    names = _CUBES if asked is None else (asked,)
    found = [v for v in content.variables if "/hyp/data fields/" in v.name.lower()]
    return next((v for name in names for v in found if v.base == name and v.base in _CUBES), None)


def finds(content: HdfContent) -> bool:
    """Tell whether a file has a cube under ``HDFEOS/SWATHS/HYP`` or ``HDFEOS/GRIDS/HYP``."""
    return _cube(content) is not None


def opened(content: HdfContent) -> Source:
    """Open the radiance or reflectance of a product."""
    cube = _cube(content)
    assert cube is not None
    if "wavelengths" not in cube.attrs:
        raise ValueError(
            f"{content.place}: {cube.name} has no attribute 'wavelengths'. It must list one per "
            "band."
        )
    centres = np.asarray(cube.attrs["wavelengths"], dtype=float).reshape(-1)
    if len(cube.shape) != 3 or len(centres) != cube.shape[0]:
        raise ValueError(
            f"{content.place}: {len(centres)} wavelengths for {cube.name} of shape {cube.shape}. "
            "There must be one per band, bands in the first axis."
        )
    bands, rows, cols = cube.shape
    metadata: dict[str, Any] = {"source": content.path.name, "instrument": "Tanager"}
    units = str(cube.attrs.get("Unit", cube.attrs.get("units", "W/(m^2 sr um)")))
    plain = "W m-2 sr-1 um-1" if "(" in units else units
    metadata |= reflectance() if cube.base == "surface_reflectance" else radiance(plain)
    metadata["wavelength_units"] = "nm"
    if "fwhm" in cube.attrs:
        metadata["fwhm"] = np.asarray(cube.attrs["fwhm"], dtype=float).reshape(-1).tolist()
    good = None
    if "good_wavelengths" in cube.attrs:
        good = np.asarray(cube.attrs["good_wavelengths"]).reshape(-1) != 0
        metadata["good_bands"] = good.tolist()
    nodata = number_in(cube.attrs, "_FillValue", -9999.0)
    metadata |= {"nodata": nodata} | _place(content, cube, (rows, cols))
    return Source(
        path=content.path,
        shape=(rows, cols, bands),
        stored_dtype=cube.dtype,
        load=cube_loader(cube, (1, 2, 0)),
        wavelengths=centres,
        good_bands=good,
        nodata=nodata,
        metadata=metadata,
        quality=_quality(content, cube),
    )


def _quality(content: HdfContent, cube: Variable) -> Callable[[slice, slice], np.ndarray] | None:
    """Return what reads which pixels were acquired."""
    outside = content.get(f"{cube.name.rsplit('/', 1)[0]}/nodata_pixels")
    if outside is None:
        return None
    flags = outside
    return lambda rows, cols: np.asarray(flags.load((rows, cols)) == 0)[..., None]


def _place(content: HdfContent, cube: Variable, size: tuple[int, int]) -> dict[str, Any]:
    """Return the time, and the map of a grid or the coordinates of a swath."""
    group = cube.name.rsplit("/", 2)[0]
    about = content.group_attrs(group)
    found: dict[str, Any] = {}
    moment = re.match(r"(\d{4})(\d\d)(\d\d)_(\d\d)(\d\d)(\d\d)", str(about.get("strip_id", "")))
    if moment:
        year, month, day, hour, minute, second = moment.groups()
        found["acquisition_time"] = f"{year}-{month}-{day}T{hour}:{minute}:{second}"
    if "/grids/" in cube.name.lower():
        return found | _grid(content, about, size)
    lat = content.get(f"{group}/Geolocation Fields/Latitude")
    lon = content.get(f"{group}/Geolocation Fields/Longitude")
    location = content.location(lat, lon)
    return found | ({"location": location} if location else {})


def _grid(content: HdfContent, about: dict[str, Any], size: tuple[int, int]) -> dict[str, Any]:
    """Return the map of a grid, whose corners are those of the outermost pixels."""
    text = content.get("HDFEOS INFORMATION/StructMetadata.0")
    told = "" if text is None else str(as_text(text.all()[()]))
    corners = [re.search(_POINT.format(k), told) for k in ("UpperLeftPointMtrs", "LowerRightMtrs")]
    if "epsg_code" not in about or None in corners:
        return {}
    (west, north), (east, south) = ([float(v) for v in c.groups()] for c in corners if c)
    width, height = (east - west) / size[1], (south - north) / size[0]
    transform = [width, 0.0, west, 0.0, height, north]
    return {"crs_wkt": epsg_wkt(number_in(about, "epsg_code")), "transform": transform}
