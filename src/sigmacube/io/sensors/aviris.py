"""AVIRIS-3, -5 and -NG in netCDF: the cube in a group, the map beside it.

Orthocorrected files have a grid of eastings and northings. Files in sensor geometry come with the
lookup of the map grid (lines and samples from 1, 0 for none, negative where a neighbour fills in).
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np

from sigmacube.io.crs import from_grid_mapping
from sigmacube.io.sensors.content import HdfContent, radiance, reflectance
from sigmacube.io.source import Source

_CUBES = ("reflectance/reflectance", "radiance/radiance", "uncertainty/uncertainty")
NODATA = -9999.0
_IDS = ((r"\bAV3\d{8}t\d{6}", "AVIRIS-3"), (r"\bAV5\d{8}t\d{6}", "AVIRIS-5"),
        (r"\bang\d{8}t\d{6}", "AVIRIS-NG"))  # fmt: skip


def instrument_in(text: str) -> str | None:
    """Return which AVIRIS a text speaks of, by name or by the identifier of a flight line.

    Examples
    --------
    >>> instrument_in("ang20220224t210144 calibrated radiance"), instrument_in("HyMap")
    ('AVIRIS-NG', None)
    """
    for pattern, name in _IDS:
        if re.search(pattern, text, re.I) or name.lower() in text.lower():
            return name
    return "AVIRIS" if "aviris" in text.lower() else None


def finds(content: HdfContent) -> bool:
    """Tell whether a cube lies in a group of its own name, beside a map grid or lookup."""
    placed = content.get("transverse_mercator") or content.get("geolocation_lookup_table/line")
    return placed is not None and any(content.get(name) for name in _CUBES)


def opened(content: HdfContent) -> Source:
    """Open the cube of a file."""
    name = content.variable or next(name for name in _CUBES if content.get(name))
    source = content.cube(name)
    if source.wavelengths is None:
        group = name.rsplit("/", 1)[0]
        raise ValueError(
            f"{content.place}: AVIRIS product without {group}/wavelength for its "
            f"{source.shape[2]} bands. The file must have one per band."
        )
    told = " ".join(str(content.attrs.get(k, "")) for k in ("instrument", "title", "sensor"))
    metadata = dict(source.metadata)
    metadata["instrument"] = instrument_in(f"{told} {content.path.name}") or "AVIRIS"
    if name.startswith("radiance"):
        metadata |= radiance(str(metadata.get("units", "uW nm-1 cm-2 sr-1")))
    elif name.startswith("reflectance"):
        metadata |= reflectance()
    metadata |= _place(content, source, metadata)
    nodata = NODATA if source.nodata is None else source.nodata
    return replace(source, metadata=metadata | {"nodata": nodata}, nodata=nodata)


def _place(content: HdfContent, source: Source, metadata: dict[str, Any]) -> dict[str, Any]:
    """Return where pixels lie: on the map itself, or by way of its lookup."""
    grid = content.get("transverse_mercator")
    found = {} if grid is None else from_grid_mapping(grid.attrs)
    line = content.get("geolocation_lookup_table/line")
    sample = content.get("geolocation_lookup_table/sample")
    if line is None or sample is None or line.shape == source.shape[:2]:
        return found
    metadata.pop("transform", None)
    metadata.pop("crs_wkt", None)
    lookup = {
        "glt_x": np.abs(sample.all()).astype(np.int32),
        "glt_y": np.abs(line.all()).astype(np.int32),
    }
    return {"location": lookup} | {f"ortho_{key}": value for key, value in found.items()}
