"""EMIT L1B radiance and L2A reflectance, with the band mask that lies beside a granule.

Pixels lie in sensor geometry; ``location`` has their coordinates and the lookup (GLT, from 1, 0 for
none) of the map grid. The L2A mask file marks elements that were interpolated over bad detector
pixels or saturation: they hold no measurement, so they are masked.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from sigmacube.io.crs import from_gdal
from sigmacube.io.metadata import noted
from sigmacube.io.places import address_of
from sigmacube.io.sensors.content import SURFACE_REFLECTANCE, HdfContent, quantity_of, radiance
from sigmacube.io.source import Source
from sigmacube.io.variables import Variable


def finds(content: HdfContent) -> bool:
    """Tell whether a file is an EMIT granule: a group ``location`` beside the cube."""
    if content.says("EMIT", "instrument", "title", "sensor", "summary"):
        return True
    return bool(content.under("location")) and bool(content.under("sensor_band_parameters"))


def opened(content: HdfContent) -> Source:
    """Open the cube of a granule."""
    source = content.cube(content.variable)
    metadata = dict(source.metadata) | _place(content, source.shape)
    metadata["instrument"] = "EMIT"
    if isinstance(content.attrs.get("platform"), str):
        metadata["platform"] = content.attrs["platform"]
    if "surface reflectance" in str(metadata.get("long_name", "")).lower():
        metadata.setdefault("standard_name", SURFACE_REFLECTANCE)
    if quantity_of(metadata) == "radiance":
        metadata |= radiance(str(metadata.get("units", "uW/cm^2/sr/nm")))
    if source.wavelengths is None and quantity_of(metadata) is not None:
        note = (
            "EMIT granule without sensor_band_parameters/wavelengths, so its bands have none; "
            "wavelengths (--wavelengths) names them"
        )
        metadata = noted(metadata, note)
    source = replace(source, metadata=metadata)
    return source if address_of(content.place) else _masked(source, content.path)


def _place(content: HdfContent, shape: tuple[int, int, int]) -> dict[str, Any]:
    """Return what places a granule: its pixels lie in sensor geometry, not on a map."""
    found: dict[str, Any] = {}
    location = {v.base: v.all() for v in content.under("location")}
    for key in ("lat", "lon", "elev"):
        if key in location and location[key].shape != shape[:2]:
            raise ValueError(
                f"{content.place}: location/{key} of shape {location[key].shape} for "
                f"{shape[0]} x {shape[1]} pixels. It must have one value per pixel."
            )
    if location:
        found["location"] = location
    numbers = np.asarray(content.attrs.get("geotransform", []), dtype=float).reshape(-1)
    if len(numbers) == 6:
        found["ortho_transform"] = from_gdal(numbers)
    if isinstance(content.attrs.get("spatial_ref"), str):
        found["ortho_crs_wkt"] = content.attrs["spatial_ref"]
    return found


def _masked(source: Source, path: Path) -> Source:
    """Return a granule with the band mask of the file beside it, where there is one."""
    beside = path.with_name(path.name.replace("_RFL_", "_MASK_"))
    if beside == path or not beside.is_file():
        return source
    from sigmacube.io.hdf import contents

    packed = next((v for v in contents(beside)[1] if v.base == "band_mask"), None)
    if packed is None:
        return source
    rows, cols, bands = source.shape
    if packed.shape[:2] != (rows, cols) or packed.shape[2] * 8 < bands:
        raise ValueError(
            f"{beside}: band_mask of shape {packed.shape} for a granule of {source.shape}. It must "
            "have one bit per band of every pixel."
        )
    note = f"elements that {beside.name} calls interpolated are masked (--ignore-quality: kept)"
    metadata = noted(source.metadata, note)
    return replace(source, quality=_bits(packed, bands), metadata=metadata, files=(path, beside))


def _bits(packed: Variable, bands: int) -> Callable[[slice, slice], np.ndarray]:
    """Return what reads the flags of a block: one bit per band, 1 for interpolated."""

    def quality(rows: slice, cols: slice) -> np.ndarray:
        block = np.asarray(packed.load((rows, cols, slice(None)))).astype(np.uint8)
        return np.unpackbits(block, axis=2)[..., :bands] == 0

    return quality
