"""PACE OCI level 2: ocean or surface reflectance of a swath, with the flags of its pixels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from sigmacube.io.metadata import noted
from sigmacube.io.sensors.content import HdfContent
from sigmacube.io.source import Source
from sigmacube.io.variables import Variable

_CUBES = ("rrs", "rhos", "nlw", "lt")
#: Flags of pixels whose values are none: failed correction or navigation, saturated.
BAD = ("ATMFAIL", "NAVFAIL", "HILT")


def finds(content: HdfContent) -> bool:
    """Tell whether a file has a cube under ``geophysical_data`` and ``navigation_data``."""
    if not content.under("navigation_data"):
        return False
    return any(len(v.shape) == 3 for v in content.under("geophysical_data"))


def opened(content: HdfContent) -> Source:
    """Open the spectral cube of a granule."""
    cubes = {v.base: v for v in content.under("geophysical_data") if len(v.shape) == 3}
    known = [cubes[name].name for name in _CUBES if name in cubes]
    name = content.variable or (known[0] if known else None)
    variables = [v for v in content.variables if v.base not in ("wavelength", "wavelength_3d")]
    centres = content.get("sensor_band_parameters/wavelength_3d")
    if centres is None:
        centres = content.need("sensor_band_parameters/wavelength", "PACE granule")
    # Two lists of wavelengths: those of the instrument, and those of the cube.
    variables.append(replace(centres, name="sensor_band_parameters/wavelength"))
    source = content.cube(name, variables)
    if source.wavelengths is None:
        raise ValueError(
            f"{content.place}: {centres.shape[0]} wavelengths for a cube of {source.shape[2]} "
            "bands. There must be one per band."
        )
    metadata = dict(source.metadata) | {"instrument": "PACE OCI", "wavelength_units": "nm"}
    location = content.location(
        content.get("navigation_data/latitude"), content.get("navigation_data/longitude")
    )
    if location and location["lat"].shape == source.shape[:2]:
        metadata["location"] = location
    flags = content.get("geophysical_data/l2_flags")
    quality = None if flags is None else _quality(flags)
    if quality is not None:
        note = f"pixels flagged {', '.join(BAD)} are masked (--ignore-quality: kept)"
        metadata = noted(metadata, note)
    return replace(source, metadata=metadata, quality=quality)


def _quality(flags: Variable) -> Callable[[slice, slice], np.ndarray] | None:
    """Return what reads which pixels are good; None where the flags have no meaning."""
    names = str(flags.attrs.get("flag_meanings", "")).split()
    masks = np.asarray(flags.attrs.get("flag_masks", [1 << i for i in range(len(names))]))
    bits = 0
    for name, mask in zip(names, masks.reshape(-1), strict=False):
        if name in BAD:
            bits |= int(mask) & 0xFFFFFFFF
    if not bits:
        return None

    def quality(rows: slice, cols: slice) -> np.ndarray:
        found = np.asarray(flags.load((rows, cols))).astype(np.int64)
        return ((found & bits) == 0)[..., None]

    return quality
