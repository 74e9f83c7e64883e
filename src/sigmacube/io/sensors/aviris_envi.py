"""AVIRIS-3, -NG and Classic as ENVI files, whose header names the flight line."""

from __future__ import annotations

import re
from dataclasses import replace

from sigmacube.io.sensors.aviris import NODATA, instrument_in
from sigmacube.io.sensors.quantities import radiance, reflectance
from sigmacube.io.source import Source

__all__ = ["finds", "opened"]

_TIME = re.compile(r"(?:AV[35]|ang)(\d{4})(\d\d)(\d\d)t(\d\d)(\d\d)(\d\d)", re.I)


def _description(source: Source) -> str:
    envi = source.metadata.get("envi") or {}
    return " ".join(str(envi.get(key, "")) for key in ("description", "sensor type"))


def finds(source: Source) -> bool:
    """Tell whether a header speaks of AVIRIS and the file is no result of ours."""
    return "denoised" not in source.metadata and instrument_in(_description(source)) is not None


def opened(source: Source) -> Source:
    """Return the source with its instrument, time, quantity and no-data value."""
    text = _description(source)
    metadata = dict(source.metadata)
    metadata["instrument"] = instrument_in(text)
    if (found := _TIME.search(text)) is not None:
        year, month, day, hour, minute, second = found.groups()
        metadata.setdefault("acquisition_time", f"{year}-{month}-{day}T{hour}:{minute}:{second}")
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
