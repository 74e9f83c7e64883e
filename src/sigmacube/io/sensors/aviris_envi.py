"""AVIRIS-3, -NG and Classic as ENVI files, whose header names the flight line."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np

from sigmacube.io.sensors.aviris import NODATA, instrument_in
from sigmacube.io.sensors.content import radiance, reflectance
from sigmacube.io.source import Source

_TIME = re.compile(r"(?:AV[35]|ang)(\d{4})(\d\d)(\d\d)t(\d\d)(\d\d)(\d\d)", re.I)


def _description(source: Source) -> str:
    envi = source.metadata.get("envi") or {}
    return " ".join(str(envi.get(key, "")) for key in ("description", "sensor type"))


def finds(source: Source) -> bool:
    """Tell whether a header speaks of AVIRIS and the file is no result of ours."""
    return "denoised" not in source.metadata and instrument_in(_description(source)) is not None


def _location(source: Source) -> dict[str, Any]:
    """Return longitude, latitude and height of every pixel, from the LOC file of the flight line.

    It is looked for beside the radiance, under the same identifier.
    """
    found = _TIME.search(_description(source)) or _TIME.search(source.path.name)
    if found is None:
        return {}
    for header in sorted(source.path.parent.glob("*.hdr")):
        stem = header.name.lower().removesuffix(".hdr").removesuffix(".img")
        if found[0].lower() not in stem or not stem.endswith("_loc"):
            continue
        from sigmacube.io import envi

        places = envi.open_source(header)
        if places.shape == (*source.shape[:2], 3):
            lon, lat, elev = np.moveaxis(places.read().values.astype(np.float64), 2, 0)
            return {"location": {"lat": lat, "lon": lon, "elev": elev}}
    return {}


def opened(source: Source) -> Source:
    """Return the source with its instrument, time, quantity and no-data value."""
    text = _description(source)
    metadata = dict(source.metadata)
    metadata["instrument"] = instrument_in(text)
    if (found := _TIME.search(text)) is not None:
        year, month, day, hour, minute, second = found.groups()
        metadata.setdefault("acquisition_time", f"{year}-{month}-{day}T{hour}:{minute}:{second}")
    if "transform" not in metadata:
        metadata |= _location(source)
    lower = text.lower()
    if source.stored_dtype.kind != "f":
        return replace(source, metadata=metadata)
    if "radiance" in lower or "rdn" in lower:
        metadata = {**radiance("uW nm-1 cm-2 sr-1"), **metadata}
    elif "reflectance" in lower or "rfl" in lower:
        metadata = {**reflectance(), **metadata}
    if source.nodata is not None:
        return replace(source, metadata=metadata)
    return replace(source, metadata=metadata | {"nodata": NODATA}, nodata=NODATA)
