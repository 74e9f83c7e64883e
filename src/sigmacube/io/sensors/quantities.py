"""What products hold: radiance or reflectance, under the names and units of CF."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["RADIANCE", "SURFACE_REFLECTANCE", "quantity_of", "radiance", "reflectance"]

SURFACE_REFLECTANCE = "surface_bidirectional_reflectance"
RADIANCE = "toa_outgoing_radiance_per_unit_wavelength"


def radiance(units: str) -> dict[str, str]:
    """Return the metadata of radiance at the sensor.

    Examples
    --------
    >>> radiance("uW/cm^2/SR/nm")["units"]
    'uW/cm^2/sr/nm'
    """
    return {"name": "radiance", "standard_name": RADIANCE, "units": units.replace("SR", "sr")}


def reflectance() -> dict[str, str]:
    """Return the metadata of surface reflectance."""
    return {"name": "reflectance", "standard_name": SURFACE_REFLECTANCE, "units": "1"}


def quantity_of(metadata: Mapping[str, Any]) -> str | None:
    """Return "radiance" or "reflectance" where the metadata of a cube say so, else None.

    Examples
    --------
    >>> quantity_of({"name": "toa_radiance"}), quantity_of({"name": "cube"})
    ('radiance', None)
    """
    words = " ".join(str(metadata.get(k, "")) for k in ("standard_name", "name", "long_name"))
    found = [what for what in ("radiance", "reflectance") if what in words.lower()]
    return found[0] if len(found) == 1 else None
