"""DESIS L1B, L1C and L2A: a folder or zip file, or its METADATA.xml; one detector, VNIR."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

from sigmacube.io.sensors.content import ProductFolder, radiance, reflectance
from sigmacube.io.sensors.images import BandTable, bands_in, level_in, open_images, text_of
from sigmacube.io.source import Source

_NAMES = ("wavelengthCenterOfBand", "wavelengthWidthOfBand", "gainOfBand", "offsetOfBand")


def finds(root: ElementTree.Element) -> bool:
    """Tell whether an XML file characterises bands the way DESIS' does."""
    return bool(bands_in(root, "band"))


def opened(
    folder: ProductFolder, root: ElementTree.Element, variable: str | None, join: str | None
) -> Source:
    """Open the cube of a product."""
    if variable is not None or join is not None:
        raise ValueError(f"{folder.path}: DESIS has one detector; neither variable nor join apply.")
    level = level_in(folder, root, ("processingLevel", "productType", "level"))
    table = BandTable.read(str(folder.path), bands_in(root, "band"), _NAMES)
    background = float(text_of(root, "backgroundValue") or -32768)
    metadata: dict[str, Any] = {"instrument": "DESIS", "processing_level": level}
    metadata |= reflectance() if level == "L2A" else radiance("mW cm-2 sr-1 um-1")
    if time := text_of(root, "startTime"):
        metadata["acquisition_time"] = time
    cube = folder.find("SPECTRAL_IMAGE")
    if cube is None:
        raise ValueError(f"{folder.path}: no SPECTRAL_IMAGE.tif beside {folder.xml}.")
    return open_images(folder, cube, None, table, background, metadata)
