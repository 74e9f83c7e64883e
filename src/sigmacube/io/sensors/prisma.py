"""PRISMA L1, L2B, L2C and L2D: VNIR and SWIR cubes as one, by rising wavelength.

Cubes are stored (row, band, col), wavelengths fall, and a wavelength of 0 marks a band that was not
acquired. The error matrices beside the cubes are not 0 where a value is defective or saturated.
Corners of the map-projected level are those of pixel centres.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from sigmacube.io.sensors.content import HdfContent, epsg_wkt, radiance, reflectance
from sigmacube.io.sensors.detectors import Detector, Joined
from sigmacube.io.source import Source
from sigmacube.io.variables import Variable, cube_loader, number_in

_MAX = 65535
_LEVELS = ("1", "2B", "2C", "2D")
_CUBES = ("vnir_cube", "swir_cube")
_ORDER = (0, 2, 1)
_CORNERS = ("ULcorner_easting", "ULcorner_northing", "LRcorner_easting", "LRcorner_northing")


def finds(content: HdfContent) -> bool:
    """Tell whether a file holds VNIR and SWIR cubes of PRISMA, and one of them is asked for."""
    asked = content.variable
    if asked is not None and asked.rsplit("/", 1)[-1].lower() not in _CUBES:
        return False
    return any(v.base in _CUBES for v in content.variables)


def opened(content: HdfContent) -> Source:
    """Open the cubes of a product as one."""
    try:
        return _opened(content)
    except ValueError as error:
        if str(error).startswith((f"{content.place}:", "Invalid join")):
            raise
        raise ValueError(f"{content.place}: PRISMA product: {error}") from None


def _opened(content: HdfContent) -> Source:
    attrs = content.attrs
    level = str(attrs.get("Processing_Level", "")).strip().upper().removeprefix("L")
    if level not in _LEVELS:
        raise ValueError(
            f"Processing_Level {level!r} is not known. It must be one of {', '.join(_LEVELS)}."
        )
    cubes = _cubes(content)
    shapes = {cube.shape[::2] for cube in cubes if len(cube.shape) == 3}
    if len(shapes) != 1:
        raise ValueError(f"VNIR and SWIR differ in size: {sorted(shapes)}. They must be alike.")
    rows, cols = shapes.pop()
    joined = Joined.create([_detector(content, cube) for cube in cubes], content.join)
    metadata = _metadata(content, level, (rows, cols))
    # Level 2 stores 0 around the swath and where a retrieval failed; in level 1 it is a radiance.
    nodata = None if level == "1" else 0.0
    return joined.source(content.path, (rows, cols), cubes[0].dtype, metadata, nodata)


def _cubes(content: HdfContent) -> list[Variable]:
    """Return the cubes that are asked for: VNIR and SWIR of the swath of coregistered ones."""
    asked = content.variable
    found = [v for v in content.variables if v.base in _CUBES]
    if asked is not None:
        named = [v for v in found if v.name.strip("/") == asked.strip("/")]
        found = named or [v for v in found if v.base == asked.rsplit("/", 1)[-1].lower()]
    # Level 1 has the same cubes before coregistration too (HRC).
    found = [v for v in found if "_HCO/" in v.name.upper()] or found
    by_name = {v.base: v for v in found}
    return [by_name[name] for name in _CUBES if name in by_name]


def _detector(content: HdfContent, cube: Variable) -> Detector:
    attrs, name = content.attrs, cube.base[:4].capitalize()
    key = f"List_Cw_{name}"
    if key not in attrs:
        raise ValueError(f"the attribute {key!r} is missing. It must list the wavelengths.")
    centres = np.asarray(attrs[key], dtype=float).reshape(-1)
    widths = np.asarray(attrs.get(f"List_Fwhm_{name}", np.zeros_like(centres)), dtype=float)
    if len(cube.shape) != 3 or len(centres) != cube.shape[1]:
        raise ValueError(
            f"{len(centres)} wavelengths for {cube.name} of shape {cube.shape}. "
            "There must be one per band, bands in the middle axis."
        )
    if f"L2Scale{name}Max" in attrs:
        low, high = (number_in(attrs, f"L2Scale{name}{end}") for end in ("Min", "Max"))
        scale, offset = (high - low) / _MAX, low
    else:
        scale = 1 / number_in(attrs, f"ScaleFactor_{name}")
        offset = -number_in(attrs, f"Offset_{name}", 0.0)
    ones = np.ones(len(centres))
    errors = _errors(content, cube)
    flags = None if errors is None else cube_loader(errors, _ORDER)
    load = cube_loader(cube, _ORDER)
    return Detector(load, centres, widths, scale * ones, offset * ones, flags)


def _errors(content: HdfContent, cube: Variable) -> Variable | None:
    """Return the error matrix of a cube."""
    group, name = cube.name.rsplit("/", 1)[0], cube.base[:4].upper()
    for ending in ("PIXEL_SAT_ERR_MATRIX", "PIXEL_L2_ERR_MATRIX"):
        found = content.get(f"{group}/{name}_{ending}")
        if found is not None:
            if found.shape != cube.shape:
                raise ValueError(
                    f"{found.name} of shape {found.shape} for a cube of {cube.shape}. They must be "
                    "alike."
                )
            return found
    return None


def _metadata(content: HdfContent, level: str, size: tuple[int, int]) -> dict[str, Any]:
    attrs = content.attrs
    metadata: dict[str, Any] = {
        "source": content.path.name,
        "instrument": "PRISMA",
        "processing_level": f"L{level}",
        "wavelength_units": "nm",
        "interleave": "bil",
    }
    if level == "2B":  # at the surface, so not the radiance that leaves the atmosphere
        metadata |= {"name": "radiance", "units": "W m-2 sr-1 um-1"}
        metadata["long_name"] = "radiance at the surface"
    else:
        metadata |= radiance("W m-2 sr-1 um-1") if level == "1" else reflectance()
    if isinstance(attrs.get("Product_StartTime"), str):
        metadata["acquisition_time"] = attrs["Product_StartTime"]
    if level == "2D":
        return metadata | _map(attrs, size)
    fields = {v.base: v for v in content.variables if "geolocation fields" in v.name.lower()}
    lat = fields.get("latitude") or fields.get("latitude_vnir")
    lon = fields.get("longitude") or fields.get("longitude_vnir")
    location = content.location(lat, lon)
    if location and location["lat"].shape == size:
        metadata["location"] = location
    return metadata


def _map(attrs: Mapping[str, Any], size: tuple[int, int]) -> dict[str, Any]:
    """Return the place of the map-projected level; corners are those of pixel centres."""
    keys = [f"Product_{corner}" for corner in _CORNERS]
    if not all(key in attrs for key in keys):
        return {}
    west, north, east, south = (number_in(attrs, key) for key in keys)
    width = (east - west) / max(size[1] - 1, 1)
    height = (south - north) / max(size[0] - 1, 1)
    found: dict[str, Any] = {
        "transform": [width, 0.0, west - width / 2, 0.0, height, north - height / 2]
    }
    code = number_in(attrs, "Epsg_Code", 0.0)
    return found | ({"crs_wkt": epsg_wkt(code)} if code else {})
