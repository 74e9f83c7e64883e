"""Products of known sensors, found by what their files hold, not by their names.

One table lists the sensors; each lives in its own module with ``finds``, which tells whether a file
is one of its products, and ``opened``, which opens it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from sigmacube.io.sensors.content import HdfContent, ProductFolder
from sigmacube.io.source import Source
from sigmacube.io.variables import Variable

__all__ = [
    "SENSORS",
    "Sensor",
    "in_envi",
    "in_hdf",
    "open_beside",
    "open_product",
    "product_beside",
]


@dataclass(frozen=True)
class Sensor:
    """A family of products that one module reads."""

    name: str
    module: str
    """Where ``finds`` and ``opened`` are: a module of this folder, or one with dots in its name."""
    content: str
    """What its products are: ``"hdf"``, ``"folder"`` (images with an XML file) or ``"envi"``."""

    def __getattr__(self, name: str) -> Any:
        if name not in ("finds", "opened"):
            raise AttributeError(name)
        own = "." not in self.module
        return getattr(import_module(f"{__name__}.{self.module}" if own else self.module), name)


SENSORS = [
    Sensor("EMIT", "emit", "hdf"),
    Sensor("PRISMA", "prisma", "hdf"),
    Sensor("AVIRIS", "aviris", "hdf"),
    Sensor("NEON", "neon", "hdf"),
    Sensor("PACE OCI", "pace", "hdf"),
    Sensor("Tanager", "tanager", "hdf"),
    Sensor("EnMAP", "enmap", "folder"),
    Sensor("DESIS", "desis", "folder"),
    Sensor("AVIRIS", "aviris_envi", "envi"),
]
"""The sensors, in the order in which they are tried."""


def in_hdf(
    place: Path | str,
    attrs: Mapping[str, Any],
    variables: Sequence[Variable],
    *,
    variable: str | None = None,
    axes: str | Sequence[str] | None = None,
    join: str | None = None,
) -> Source | None:
    """Open the product of a known sensor in a netCDF or HDF5 file; None where it is none."""
    content = HdfContent(place, attrs, tuple(variables), variable, axes, join)
    for sensor in SENSORS:
        if sensor.content == "hdf" and sensor.finds(content):
            opened: Source = sensor.opened(content)
            return opened
    return None


def in_envi(source: Source) -> Source:
    """Return an ENVI source with what its sensor is known to mean."""
    for sensor in SENSORS:
        if sensor.content == "envi" and sensor.finds(source):
            known: Source = sensor.opened(source)
            return known
    return source


def open_product(path: Path, *, variable: str | None = None, join: str | None = None) -> Source:
    """Open a product that is a folder, a zip file or the XML file of a folder."""
    folder = ProductFolder.create(path)
    root = folder.metadata()
    for sensor in SENSORS:
        if sensor.content == "folder" and sensor.finds(root):
            opened: Source = sensor.opened(folder, root, variable, join)
            return opened
    names = ", ".join(sensor.name for sensor in SENSORS if sensor.content == "folder")
    raise ValueError(
        f"{path}: {folder.xml} describes no known product. It must be one of {names}, with "
        "wavelengths under bandCharacterisation."
    )


def open_beside(path: Path, *, variable: str | None = None, join: str | None = None) -> Source:
    """Open the product that an image belongs to, by its XML file; L1B names the detector."""
    xml = product_beside(path)
    assert xml is not None
    if variable is None:
        image = path.stem.upper()
        variable = next((d.lower() for d in ("VNIR", "SWIR") if f"IMAGE_{d}" in image), None)
    return open_product(xml, variable=variable, join=join)


def product_beside(path: Path) -> Path | None:
    """Return the XML file of the product that an image belongs to, where it lies beside it."""
    stem, mark, _ = path.name.partition("-SPECTRAL_IMAGE")
    if not mark:
        return None
    for name in (f"{stem}-METADATA.XML", f"{stem}-METADATA.xml"):
        if path.with_name(name).is_file():
            return path.with_name(name)
    return None
