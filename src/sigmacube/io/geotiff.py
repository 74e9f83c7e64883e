"""GeoTIFF, COG and VRT through rasterio, on a disk, in a zip file or at an address."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np

from sigmacube.io.metadata import from_json, merged
from sigmacube.io.places import check_beside, gdal_name, reason_of
from sigmacube.io.source import Source, planes
from sigmacube.io.wavelengths import numbers, to_nanometres

_INTERLEAVE = {"band": "bsq", "pixel": "bip", "line": "bil"}
_TIMES = ("acquisition_time", "start_time", "TIFFTAG_DATETIME", "ACQUISITIONDATETIME")
# "band 1 (418.24 Nanometers)", "550 nm": a number followed by its unit.
_DESCRIBED = re.compile(r"(\d+(?:\.\d+)?)\s*(nanometers?|nm|micrometers?|um|µm|microns?)\b", re.I)


#: Only what is asked for is fetched: no listing of the folder, no files that may lie beside.
_FETCHING = {
    "GDAL_DISABLE_READDIR_ON_OPEN": "EMPTY_DIR",
    "GDAL_HTTP_MERGE_CONSECUTIVE_RANGES": "YES",
    "GDAL_INGESTED_BYTES_AT_OPEN": "32768",
    "VSI_CACHE": "NO",
}
#: A file on the disk may name another elsewhere; nothing is fetched for it.
_LOCAL = {"CPL_VSIL_CURL_ALLOWED_FILENAME": "none", "GDAL_VRT_ENABLE_PYTHON": "NO"}


@contextmanager
def opened(path: Path | str, mode: str = "r", **options: Any) -> Iterator[Any]:
    """Open a raster; a scene without coordinates is nothing to warn about."""
    import rasterio
    from rasterio.errors import NotGeoreferencedWarning

    place = str(path)
    remote = place.startswith(("/vsicurl/", "/vsis3/", "/vsigs/"))
    driver = "VRT" if place.lower().endswith(".vrt") else "GTiff"
    if mode == "r" and not place.startswith("/vsi"):
        check_beside(Path(place))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotGeoreferencedWarning)
        with (
            rasterio.Env(**(_FETCHING if remote else _LOCAL)),
            rasterio.open(place, mode, driver=driver, **options) as dataset,
        ):
            yield dataset


def open_source(
    path: Path,
    *,
    place: str | None = None,
    address: str | None = None,
    external: bool | None = None,
) -> Source:
    """Open a GeoTIFF or a VRT.

    Parameters
    ----------
    path
        What the user named.
    place
        What rasterio calls it, where that differs: a file in a zip file.
    address
        Where it lies if not on a disk, such as ``https://host/cube.tif``.
    external
        Whether a VRT may take values from any file of this machine.
    """
    from rasterio.errors import RasterioError

    told = address or str(path)
    where = gdal_name(address) if address is not None else place or str(path)
    if address is None and where.lower().endswith(".vrt"):
        check_sources(path, external=bool(external))
    try:
        with opened(where) as dataset:
            return _source(path, where, dataset)
    except RasterioError as error:
        reason = reason_of(error.__cause__ or error)
        raise ValueError(f"{told}: not readable as GeoTIFF ({reason}).") from None
    except ValueError as error:
        if str(error).startswith(f"{told}:"):
            raise
        raise ValueError(f"{told}: {error}") from None


def _source(path: Path, place: str, dataset: Any) -> Source:
    kinds = set(dataset.dtypes)
    if len(kinds) != 1:
        raise ValueError(f"{path}: bands of different types: {', '.join(sorted(kinds))}.")
    bands = dataset.count
    tags = {key.lower(): value for key, value in dataset.tags().items()}
    metadata: dict[str, Any] = {}
    notes: list[str] = []
    extra = _spectral(dataset, tags, metadata, notes)
    extra |= _scaling(dataset, metadata)
    metadata["source"] = path.name
    metadata["interleave"] = _INTERLEAVE.get(dataset.profile.get("interleave"), "bsq")
    if any(dataset.descriptions):
        names = [name or f"Band {i + 1}" for i, name in enumerate(dataset.descriptions)]
        metadata["band_names"] = names
    if dataset.crs:
        metadata["crs_wkt"] = dataset.crs.to_wkt()
    if not dataset.transform.is_identity:
        metadata["transform"] = [float(v) for v in dataset.transform[:6]]
    units = set(dataset.units)
    if len(units) == 1 and (unit := units.pop()):
        metadata["units"] = unit
    for key in _TIMES:
        if tags.get(key.lower()):
            metadata.setdefault("acquisition_time", tags[key.lower()])
    if notes:
        metadata["notes"] = notes
    if "sigmacube_metadata" in tags:
        metadata = merged(metadata, from_json(tags["sigmacube_metadata"]), bands)
        metadata["denoised"] = from_json(tags.get("sigmacube_settings", "{}"))
    return Source(
        path=path,
        shape=(dataset.height, dataset.width, bands),
        stored_dtype=np.dtype(kinds.pop()),
        load=_loader(place),
        metadata=metadata,
        **extra,
    )


def _loader(path: str) -> Any:
    def load(rows: slice, cols: slice) -> np.ndarray:
        from rasterio.errors import RasterioError
        from rasterio.windows import Window

        try:
            with opened(path) as dataset:
                r0, r1, _ = rows.indices(dataset.height)
                c0, c1, _ = cols.indices(dataset.width)
                block = dataset.read(window=Window(c0, r0, c1 - c0, r1 - r0))
        except RasterioError as error:
            reason = reason_of(error.__cause__ or error)
            raise ValueError(f"{path}: the pixels cannot be read ({reason}).") from None
        return np.ascontiguousarray(block.transpose(1, 2, 0))

    return load


def _listed(text: str) -> list[str]:
    return [item for item in re.split(r"[,\s]+", text.strip().strip("{}[]")) if item]


def _band_items(dataset: Any, tags: Mapping[str, str], names: tuple[str, ...]) -> list[str] | None:
    """Return one text per band from the band tags, else from a list in the file's tags."""
    per_band = []
    for i in dataset.indexes:
        band = {key.lower(): value for key, value in dataset.tags(i).items()}
        found = [band[name] for name in names if name in band]
        if not found:
            break
        per_band.append(found[0])
    if len(per_band) == dataset.count:
        return per_band
    envi = {key.lower(): value for key, value in dataset.tags(ns="ENVI").items()}
    for source in (tags, envi):
        for name in names:
            items = _listed(source.get(name, ""))
            if len(items) == dataset.count:
                return items
    return None


def _imagery(dataset: Any, name: str) -> list[str] | None:
    items = [dataset.tags(i, ns="IMAGERY").get(name) for i in dataset.indexes]
    return None if None in items else items


def _described(dataset: Any) -> tuple[list[str], str] | None:
    """Return the wavelengths that stand in the bands' descriptions, with their unit."""
    found = [_DESCRIBED.search(name or "") for name in dataset.descriptions]
    matches = [match for match in found if match]
    if len(matches) != dataset.count or len({m[2].lower() for m in matches}) != 1:
        return None
    return [match[1] for match in matches], matches[0][2]


def _spectral(
    dataset: Any, tags: Mapping[str, str], metadata: dict[str, Any], notes: list[str]
) -> dict[str, Any]:
    extra: dict[str, Any] = {}
    centres = _band_items(dataset, tags, ("wavelength", "wavelengths", "center_wavelength"))
    widths = _band_items(dataset, tags, ("fwhm",))
    units_found = _band_items(dataset, tags, ("wavelength_units", "wavelength_unit"))
    units = units_found[0] if units_found else tags.get("wavelength_units")
    if centres is None and (centres := _imagery(dataset, "CENTRAL_WAVELENGTH_UM")):
        widths, units = _imagery(dataset, "FWHM_UM"), "um"
    if centres is None and (described := _described(dataset)):
        centres, units = described
        widths = None
    if centres is not None:
        extra["wavelengths"], fwhm, note = to_nanometres(centres, units, widths)
        if units:
            metadata["wavelength_units"] = units
        if fwhm is not None:
            metadata["fwhm"] = fwhm
        notes += [note] if note else []
    flags = _band_items(dataset, tags, ("bbl", "good_band"))
    if flags is not None:
        good = [number != 0 for number in numbers(flags, "bbl value")]
        metadata["good_bands"] = good
        extra["good_bands"] = np.array(good)
    return extra


def _scaling(dataset: Any, metadata: dict[str, Any]) -> dict[str, Any]:
    extra: dict[str, Any] = {}
    nodata = {value for value in dataset.nodatavals if value is not None and value == value}
    if len(nodata) > 1:
        raise ValueError(f"bands of different nodata values: {sorted(nodata)}.")
    if dataset.nodata is not None:
        extra["nodata"] = float(dataset.nodata)
        metadata["nodata"] = float(dataset.nodata)
    parts = (
        ("scale", "scale_factor", dataset.scales, 1.0),
        ("offset", "add_offset", dataset.offsets, 0.0),
    )
    for name, key, values, neutral in parts:
        if all(value == neutral for value in values):
            continue
        same = len(set(values)) == 1
        metadata[key] = float(values[0]) if same else [float(v) for v in values]
        extra[name] = float(values[0]) if same else np.array(values, dtype=float)
    return extra


def write_raster(
    path: Path,
    values: np.ndarray,
    *,
    dtype: str,
    description: str,
    metadata: Mapping[str, Any],
    wavelengths: np.ndarray | None = None,
    tags: Mapping[str, str] | None = None,
) -> None:
    """Write (row, col, band) values as a compressed GeoTIFF."""
    rows, cols, bands = values.shape
    real = np.dtype(dtype).kind == "f"
    options: dict[str, Any] = {
        "width": cols,
        "height": rows,
        "count": bands,
        "dtype": dtype,
        "compress": "deflate",
        "predictor": 3 if real else 2,
        "interleave": "pixel" if metadata.get("interleave") == "bip" else "band",
        "bigtiff": "if_safer",
    }
    if real:
        options["nodata"] = float("nan")
    if min(rows, cols) >= 256:
        options |= {"tiled": True, "blockxsize": 256, "blockysize": 256}
    options |= placing(metadata)
    with opened(path, "w", **options) as dataset:
        dataset.update_tags(TIFFTAG_IMAGEDESCRIPTION=description, **(tags or {}))
        if metadata.get("acquisition_time"):
            dataset.update_tags(acquisition_time=str(metadata["acquisition_time"]))
        _tag_bands(dataset, metadata, wavelengths)
        for number, plane in enumerate(planes(values, 2), start=1):
            dataset.write(np.ascontiguousarray(plane, dtype=dtype), number)


def placing(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return rasterio's options for the place that metadata state."""
    from rasterio.crs import CRS
    from rasterio.errors import CRSError
    from rasterio.transform import Affine

    options: dict[str, Any] = {}
    if metadata.get("transform") is not None:
        options["transform"] = Affine(*metadata["transform"])
    if metadata.get("crs_wkt"):
        with suppress(CRSError):  # what is not understood is kept as text in the tags
            options["crs"] = CRS.from_wkt(metadata["crs_wkt"])
    return options


def _tag_bands(dataset: Any, metadata: Mapping[str, Any], wavelengths: np.ndarray | None) -> None:
    """Give every band its centre, width, flag, name and unit, at full precision."""
    bands = dataset.count

    def item(key: str, band: int) -> Any:
        items = metadata.get(key)
        return items[band] if items is not None and len(items) == bands else None

    for band in range(bands):
        tags: dict[str, str] = {}
        imagery: dict[str, str] = {}
        fwhm = item("fwhm", band)
        if wavelengths is not None:
            tags |= {"wavelength": repr(float(wavelengths[band])), "wavelength_units": "Nanometers"}
            imagery["CENTRAL_WAVELENGTH_UM"] = repr(float(wavelengths[band]) / 1000)
            if fwhm is not None:
                tags["fwhm"] = repr(float(fwhm))
                imagery["FWHM_UM"] = repr(float(fwhm) / 1000)
        if item("good_bands", band) is not None:
            tags["bbl"] = str(int(item("good_bands", band)))
        dataset.update_tags(band + 1, **tags)
        if imagery:
            dataset.update_tags(band + 1, ns="IMAGERY", **imagery)
        if item("band_names", band) is not None:
            dataset.set_band_description(band + 1, str(item("band_names", band)))
        if metadata.get("units"):
            dataset.set_band_unit(band + 1, str(metadata["units"]))


_ELSEWHERE = re.compile(r"/vsi(?!zip/|gzip/|tar/)\w+|://", re.I)
_NAMED = re.compile(r"source(?:filename|dataset)", re.I)
_SOURCE = re.compile(r"<source(filename|dataset)(\s[^<>]*)?>([^<>]*)</source\1\s*>", re.I)
_RELATIVE = re.compile(r"""relativetovrt\s*=\s*["']1["']""", re.I)
_TIFF = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")


def check_sources(path: Path, *, external: bool) -> None:
    """Refuse a VRT that names files of other hosts, or others than GeoTIFFs beside it.

    A VRT is a short text that names other files, of any kind, and parts of them as bare bytes. From
    strangers it could have any file of the machine read and shown.

    Parameters
    ----------
    path
        The VRT.
    external
        Whether it may name any file of this machine.
    """
    text = unescape(path.read_text(encoding="utf-8", errors="replace"))
    found = _ELSEWHERE.search(text)
    if found:
        raise ValueError(
            f"{path}: it names files elsewhere ({found[0]}). They are only read from an address "
            "that is given itself."
        )
    if external:
        return
    sources = list(_SOURCE.finditer(text))
    # Each is named when its element begins and ends; names in other places are hidden ones.
    hidden = len(_NAMED.findall(text)) != 2 * len(sources)
    outside = [source[3] for source in sources if not _is_beside(path, source)]
    if hidden or outside:
        other = outside[0].strip() if outside else "something else"
        raise ValueError(
            f"{path}: its values lie in {other}. Other files than GeoTIFFs in its own folder are "
            "only read with external=True (--external)."
        )


def _is_beside(path: Path, source: re.Match[str]) -> bool:
    """Tell whether a source is a GeoTIFF in the folder of the VRT, or below."""
    name = Path(source[3].strip())
    folder = path.parent.resolve()
    file = ((folder / name) if _RELATIVE.search(source[2] or "") else name).resolve()
    if not file.is_file() or not file.is_relative_to(folder):
        return False
    check_beside(file)
    with file.open("rb") as stream:
        return stream.read(4) in _TIFF
