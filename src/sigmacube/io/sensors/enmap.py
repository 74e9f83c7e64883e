"""EnMAP L1B, L1C and L2A: a folder or zip file, or its METADATA.XML.

The detectors of L1B are not registered to one another, so one of them is read at a time; later
levels hold one image of both. Values are stored · GainOfBand + OffsetOfBand. The pixel mask is not
0 where a detector element is defective or outside of the scene.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

from sigmacube.io.sensors.content import ProductFolder, radiance, reflectance
from sigmacube.io.sensors.images import BandTable, bands_in, level_in, open_images, text_of
from sigmacube.io.source import Source

_NAMES = ("wavelengthCenterOfBand", "FWHMOfBand", "GainOfBand", "OffsetOfBand")
_VNIR_BANDS = 91


def finds(root: ElementTree.Element) -> bool:
    """Tell whether an XML file characterises bands the way EnMAP's does."""
    return bool(bands_in(root, "bandID"))


def opened(
    folder: ProductFolder, root: ElementTree.Element, variable: str | None, join: str | None
) -> Source:
    """Open the cube of a product."""
    level = level_in(folder, root, ("level", "processingLevel"))
    table = BandTable.read(str(folder.path), bands_in(root, "bandID"), _NAMES)
    split = int(float(text_of(root, "numberOfVNIRBands") or _VNIR_BANDS))
    background = float(text_of(root, "backgroundValue") or (-32768 if level == "L2A" else 0))
    metadata: dict[str, Any] = {"instrument": "EnMAP", "processing_level": level}
    metadata |= reflectance() if level == "L2A" else radiance("W m-2 sr-1 nm-1")
    if time := text_of(root, "startTime"):
        metadata["acquisition_time"] = time
    layers = sorted(n.rsplit("-", 1)[-1] for n in folder.names if "QL_QUALITY" in n.upper())
    if layers:
        metadata["quality_layers"] = layers
    if level == "L1B":
        return _one_detector(folder, table, split, variable, background, metadata)
    cube = _image(folder, "SPECTRAL_IMAGE")
    flags = folder.find("QL_PIXELMASK")
    return open_images(folder, cube, flags, table, background, metadata, split, join)


def _one_detector(
    folder: ProductFolder,
    table: BandTable,
    split: int,
    variable: str | None,
    background: float,
    metadata: dict[str, Any],
) -> Source:
    """Open one detector of level L1B, whose two are not registered to one another."""
    wanted = (variable or "").lower()
    if wanted not in ("vnir", "swir"):
        raise ValueError(
            f"{folder.path}: the VNIR and SWIR images of L1B are not registered to one another. "
            "One must be named with variable (--variable): vnir or swir."
        )
    own = table.part(0, split) if wanted == "vnir" else table.part(split, len(table) - split)
    cube = _image(folder, f"SPECTRAL_IMAGE_{wanted.upper()}")
    flags = folder.find(f"QL_PIXELMASK_{wanted.upper()}")
    made = open_images(folder, cube, flags, own, background, metadata)
    # The transform of an L1B image is a fit of its corners, no map.
    kept = {k: v for k, v in made.metadata.items() if k not in ("transform", "crs_wkt")}
    return replace(made, metadata=kept)


def _image(folder: ProductFolder, ending: str) -> str:
    name = folder.find(ending)
    if name is None:
        raise ValueError(f"{folder.path}: no {ending}.TIF beside {folder.xml}. It must be there.")
    return name
