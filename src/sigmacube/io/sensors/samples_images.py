"""Samples of EnMAP and DESIS (images with an XML file) and of AVIRIS-NG (ENVI)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

import numpy as np

from sigmacube.io.sensors.content import epsg_wkt
from sigmacube.io.sensors.samples import EAST, EPSG, NORTH, TIME, Sample, Setting

__all__ = ["aviris_ng", "desis_l1c", "desis_l2a", "enmap_l1b", "enmap_l1c", "enmap_l2a"]

_VNIR = np.linspace(418.0, 993.0, 24)
_SWIR = np.linspace(902.0, 2445.0, 36)


def _write_tif(path: Path, stored: np.ndarray, nodata: float | None, mapped: bool) -> None:
    import rasterio
    from rasterio.crs import CRS
    from rasterio.errors import NotGeoreferencedWarning
    from rasterio.transform import Affine

    options = {"crs": CRS.from_epsg(EPSG), "transform": Affine(30, 0, EAST, 0, -30, NORTH)}
    import warnings

    rows, cols, bands = stored.shape
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotGeoreferencedWarning)
        with rasterio.open(
            path, "w", driver="GTiff", width=cols, height=rows, count=bands,
            dtype=stored.dtype.name, nodata=nodata, **(options if mapped else {}),
        ) as file:  # fmt: skip
            file.write(stored.transpose(2, 0, 1))


def enmap_l1b(folder: Path, setting: Setting) -> Sample:
    """Write an EnMAP L1B product; the sample is its SWIR detector (``variable="swir"``)."""
    home, made = _enmap(folder, setting, "L1B")
    return Sample(home, *made[1], *setting.grid(), EPSG, TIME, "radiance")


def enmap_l1c(folder: Path, setting: Setting) -> Sample:
    """Write an EnMAP L1C product: radiance on a map, gains and offsets per band."""
    return _enmap_map(folder, setting, "L1C", "radiance")


def enmap_l2a(folder: Path, setting: Setting) -> Sample:
    """Write an EnMAP L2A product: reflectance on a map."""
    return _enmap_map(folder, setting, "L2A", "reflectance")


def _enmap_map(folder: Path, setting: Setting, level: str, kind: str) -> Sample:
    home, ((v, centres, ok), (s, swir, fine)) = _enmap(folder, setting, level)
    stays = centres < swir.min()
    values = np.concatenate([v[..., stays], s], axis=2)
    valid = np.concatenate([ok[..., stays], fine], axis=2)
    joined = np.concatenate([centres[stays], swir])
    return Sample(home, values, joined, valid, *setting.grid(), EPSG, TIME, kind)


def _enmap(
    folder: Path, setting: Setting, level: str
) -> tuple[Path, list[tuple[np.ndarray, np.ndarray, np.ndarray]]]:
    """Write a product; return its folder, and values, wavelengths and flags of each detector."""
    stem = f"ENMAP01-____{level}-DT0000001867_20240618T102030Z_008_V010502_20240619T010203Z"
    home = folder / stem
    home.mkdir()
    centres = np.concatenate([_VNIR, _SWIR])
    reflecting = level == "L2A"
    physical = setting.reflectance(centres) if reflecting else setting.radiance(centres) / 100
    gain = np.full(len(centres), 1e-4) if reflecting else physical.max(axis=(0, 1)) / 25_000
    offset = np.zeros(len(centres)) if reflecting else -10 * gain
    background = -32768 if reflecting else 0
    stored = np.rint((physical - offset) / gain).astype("i2")
    stored[0, 0] = background
    bad = setting.bad(len(centres))
    split = len(_VNIR)
    parts = {"": slice(None)}
    if level == "L1B":
        parts = {"_VNIR": slice(0, split), "_SWIR": slice(split, None)}
    for ending, bands in parts.items():
        _write_tif(home / f"{stem}-SPECTRAL_IMAGE{ending}.TIF", stored[..., bands], background,
                   level != "L1B")  # fmt: skip
        flags = bad[..., bands].astype("u1")
        _write_tif(home / f"{stem}-QL_PIXELMASK{ending}.TIF", flags, None, level != "L1B")
    cloud = np.zeros((setting.rows, setting.cols, 1), "u1")
    _write_tif(home / f"{stem}-QL_QUALITY_CLOUD.TIF", cloud, None, level != "L1B")
    names = ("wavelengthCenterOfBand", "FWHMOfBand", "GainOfBand", "OffsetOfBand")
    columns = (centres, np.full(len(centres), 7.5), gain, offset)
    root = ElementTree.Element("level_X")
    base = ElementTree.SubElement(root, "base")
    ElementTree.SubElement(base, "level").text = level
    when = ElementTree.SubElement(base, "temporalCoverage")
    ElementTree.SubElement(when, "startTime").text = TIME
    special = ElementTree.SubElement(root, "specific")
    ElementTree.SubElement(special, "backgroundValue").text = str(background)
    ElementTree.SubElement(special, "numberOfVNIRBands").text = str(split)
    _bands(special, "bandID", names, columns)
    (home / f"{stem}-METADATA.XML").write_bytes(ElementTree.tostring(root))
    decoded = stored * gain + offset
    valid = (stored != background) & ~bad
    sides = (slice(0, split), slice(split, None))
    return home, [(decoded[..., k], centres[k], valid[..., k]) for k in sides]


def _bands(
    parent: ElementTree.Element, tag: str, names: Sequence[str], columns: Sequence[np.ndarray]
) -> None:
    table = ElementTree.SubElement(parent, "bandCharacterisation")
    for number, row in enumerate(zip(*columns, strict=True), start=1):
        band = ElementTree.SubElement(table, tag, {"number": str(number)})
        ElementTree.SubElement(band, "bandNumber").text = str(number)
        for name, value in zip(names, row, strict=True):
            ElementTree.SubElement(band, name).text = repr(float(value))


def desis_l1c(folder: Path, setting: Setting) -> Sample:
    """Write a DESIS L1C product: radiance on a map."""
    return _desis(folder, setting, "L1C")


def desis_l2a(folder: Path, setting: Setting) -> Sample:
    """Write a DESIS L2A product: reflectance on a map."""
    return _desis(folder, setting, "L2A")


def _desis(folder: Path, setting: Setting, level: str) -> Sample:
    stem = f"DESIS-HSI-{level}-DT0485529167_001-20240618T102030-V0215"
    home = folder / stem
    home.mkdir()
    centres = np.linspace(401.9, 999.5, 60)
    reflecting = level == "L2A"
    physical = setting.reflectance(centres) if reflecting else setting.radiance(centres)
    gain = np.full(60, 1e-4) if reflecting else physical.max(axis=(0, 1)) / 30_000
    offset = np.zeros(60) if reflecting else 5 * gain
    stored = np.rint((physical - offset) / gain).astype("i2")
    stored[0, 0] = -32768
    _write_tif(home / f"{stem}-SPECTRAL_IMAGE.tif", stored, -32768, True)
    root = ElementTree.Element("hsi_doc")
    base = ElementTree.SubElement(root, "base")
    ElementTree.SubElement(base, "productType").text = level
    ElementTree.SubElement(base, "startTime").text = TIME
    special = ElementTree.SubElement(root, "specific")
    # Bands are listed a second time, with their geometry.
    inner = ElementTree.SubElement(special, "interiorOrientation")
    ElementTree.SubElement(ElementTree.SubElement(inner, "band"), "bandNumber").text = "1"
    names = ("wavelengthCenterOfBand", "wavelengthWidthOfBand", "gainOfBand", "offsetOfBand")
    _bands(special, "band", names, (centres, np.full(60, 3.5), gain, offset))
    (home / f"{stem}-METADATA.xml").write_bytes(ElementTree.tostring(root))
    valid = stored != -32768
    kind = "reflectance" if reflecting else "radiance"
    decoded = stored * gain + offset
    return Sample(home, decoded, centres, valid, *setting.grid(), EPSG, TIME, kind)


def aviris_ng(folder: Path, setting: Setting) -> Sample:
    """Write an AVIRIS-NG radiance flight line (ENVI), on a map that is turned."""
    centres = np.linspace(377.0, 2500.0, 60)
    path = folder / "ang20240618t102030_rdn_v2z1_img"
    values = setting.radiance(centres).astype("<f4")
    values[0, 0] = -9999
    values.transpose(0, 2, 1).tofile(path)
    listed = ", ".join(repr(float(c)) for c in centres)
    lines = (
        "ENVI",
        "description = {ang20240618t102030 orthocorrected radiance, uW nm-1 cm-2 sr-1}",
        f"samples = {setting.cols}", f"lines = {setting.rows}", f"bands = {len(centres)}",
        "data type = 4", "interleave = bil", "byte order = 0", "header offset = 0",
        f"map info = {{UTM, 1, 1, {EAST}, {NORTH}, 5, 5, 33, North, WGS-84, rotation=-30}}",
        f"coordinate system string = {{{epsg_wkt(EPSG)}}}",
        "wavelength units = Nanometers", f"wavelength = {{{listed}}}",
    )  # fmt: skip
    path.with_name(f"{path.name}.hdr").write_text("\n".join(lines) + "\n", encoding="utf-8")
    stored = values.astype(float)
    # A turn of -30 degrees: rows and columns run at that angle to north and east.
    row, col = np.mgrid[: setting.rows, : setting.cols] + 0.5
    cos, sin = np.cos(np.radians(-30)), np.sin(np.radians(-30))
    x, y = EAST + 5 * (col * cos + row * sin), NORTH + 5 * (col * sin - row * cos)
    return Sample(path, stored, centres, stored != -9999, x, y, EPSG, TIME, "radiance")
