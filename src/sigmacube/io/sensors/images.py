"""Products that are GeoTIFFs with an XML file: what EnMAP and DESIS share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree

import numpy as np

from sigmacube.io import geotiff
from sigmacube.io.sensors.content import ProductFolder
from sigmacube.io.sensors.detectors import Detector, Joined
from sigmacube.io.source import Source


@dataclass(frozen=True, eq=False)
class BandTable:
    """What the XML file says of the bands, in the order in which they are stored."""

    wavelengths: np.ndarray
    fwhm: np.ndarray
    gain: np.ndarray
    offset: np.ndarray

    def __len__(self) -> int:
        return len(self.wavelengths)

    @classmethod
    def read(
        cls, path: str, bands: Sequence[ElementTree.Element], names: Sequence[str]
    ) -> BandTable:
        """Read the centre, width, gain and offset of bands, under the given names."""
        columns = []
        for name in names:
            texts = [band.findtext(name) for band in bands]
            missing = [i + 1 for i, text in enumerate(texts) if not text or not text.strip()]
            if missing:
                raise ValueError(
                    f"{path}: band {missing[0]} has no {name} under bandCharacterisation. Every "
                    "band must have one."
                )
            try:
                columns.append(np.array([float(text) for text in texts if text]))
            except ValueError as error:
                raise ValueError(f"{path}: {name}: {error}. It must be a number.") from None
        return cls(*columns)

    def part(self, first: int, count: int) -> BandTable:
        """Return some bands that follow one another."""
        own = slice(first, first + count)
        return BandTable(self.wavelengths[own], self.fwhm[own], self.gain[own], self.offset[own])


def bands_in(root: ElementTree.Element, tag: str) -> list[ElementTree.Element]:
    """Return the bands that an XML file characterises, by their number; it may list them twice."""
    table = next(root.iter("bandCharacterisation"), None)
    found = [] if table is None else list(table.iter(tag))
    return sorted(
        found, key=lambda band: int(band.get("number") or band.findtext("bandNumber") or 0)
    )


def text_of(root: ElementTree.Element, tag: str) -> str | None:
    """Return the text of the first element of a name, wherever it is."""
    found = next(root.iter(tag), None)
    text = "" if found is None or found.text is None else found.text.strip()
    return text or None


def level_in(folder: ProductFolder, root: ElementTree.Element, tags: Sequence[str]) -> str:
    """Return the processing level, L1B, L1C or L2A."""
    told = [text_of(root, tag) for tag in tags]
    for text in (*told, folder.xml):
        for level in ("L1B", "L1C", "L2A"):
            if text and level in text.upper():
                return level
    stated = next((text for text in told if text), "nothing")
    raise ValueError(
        f"{folder.path}: processing level {stated!r} is not known. It must be L1B, L1C or L2A."
    )


def open_images(
    folder: ProductFolder,
    image: str,
    flags: str | None,
    table: BandTable,
    nodata: float,
    metadata: dict[str, Any],
    split: int | None = None,
    join: str | None = None,
) -> Source:
    """Return the bands of an image of a product as a cube.

    ``flags`` is an image of flags per band; ``split`` the number of bands of the first detector,
    where the image holds two.
    """
    source = geotiff.open_source(folder.path, place=folder.image(image))
    total = source.shape[2]
    if total != len(table):
        raise ValueError(
            f"{folder.path}: {total} bands in the images, {len(table)} in {folder.xml}. There "
            "must be as many."
        )
    flagged = None
    if flags is not None:
        flagged = geotiff.open_source(folder.path, place=folder.image(flags)).load
    columns = (table.wavelengths, table.fwhm, table.gain, table.offset)
    parts = [Detector(source.load, *columns, flagged)]
    if split is not None and 0 < split < total:
        parts = [parts[0].pick(np.arange(*ends)) for ends in ((0, split), (split, total))]
    joined = Joined.create(parts, join)
    for key in ("crs_wkt", "transform", "interleave"):
        if key in source.metadata:
            metadata.setdefault(key, source.metadata[key])
    metadata |= {"wavelength_units": "nm", "source": folder.path.name}
    size = source.shape[:2]
    return joined.source(folder.path, size, source.stored_dtype, metadata, nodata, folder.files)
