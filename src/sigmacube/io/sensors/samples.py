"""Small files in the layout of every sensor, to try things out on: for the tests and the docs.

Real products are too large to come along. These have their groups, names, types, scales, flags and
places, around a made scene, and come with what a reader must find in them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from sigmacube.io.sensors.content import epsg_wkt
from sigmacube.synthetic import scene

#: Metres of a degree of latitude.
DEGREE = 111_320.0
TIME = "2024-06-18T10:20:30"
#: Where samples lie: a map's upper left corner in UTM 33N, and a swath's first pixel.
EAST, NORTH, EPSG = 365_000.0, 5_807_000.0, 32633
LAT, LON = 52.4, 13.0
_NODATA = -9999.0
#: Values (row, col, band), wavelengths, and where values are valid.
Part = tuple[np.ndarray, np.ndarray, np.ndarray]


@dataclass(frozen=True, eq=False)
class Sample:
    """A product that was made, and what a reader must find in it."""

    path: Path
    values: np.ndarray
    """(row, col, band) in physical units."""
    wavelengths: np.ndarray
    valid: np.ndarray
    """(row, col, band) False where a value is none."""
    x: np.ndarray
    """(row, col) of pixel centres: easting or longitude."""
    y: np.ndarray
    epsg: int
    time: str | None = TIME
    quantity: str = "reflectance"


@dataclass(frozen=True, eq=False)
class Setting:
    """What samples are made from: a size, and a seed."""

    rows: int = 36
    cols: int = 30
    rng: int = 0

    def reflectance(self, centres: np.ndarray) -> np.ndarray:
        """Return a scene at some wavelengths, with noise."""
        truth = scene((self.rows, self.cols, 120), rng=self.rng)
        assert truth.wavelengths is not None
        table = np.array([np.interp(centres, truth.wavelengths, row) for row in np.eye(120)])
        noise = np.random.default_rng(self.rng).normal(size=(self.rows, self.cols, len(centres)))
        return np.clip(truth.values @ table + 0.004 * noise, 0.002, 0.98)

    def radiance(self, centres: np.ndarray) -> np.ndarray:
        """Return the radiance of the scene, in µW cm⁻² nm⁻¹ sr⁻¹."""
        return self.reflectance(centres) * sunlight(centres)

    def bad(self, bands: int) -> np.ndarray:
        """Return (row, col, band) True for some elements that the product calls not measured."""
        flags = np.zeros((self.rows, self.cols, bands), dtype=bool)
        flags[3, 4, 5], flags[10:12, 7, bands // 2], flags[20, 11, 3:6] = True, True, True
        return flags

    def swath(self, pixel: float = 60.0, angle: float = 12.0) -> tuple[np.ndarray, np.ndarray]:
        """Return the longitude and latitude of every pixel of a flight that is not due south."""
        row, col = np.mgrid[: self.rows, : self.cols].astype(float)
        cos, sin = np.cos(np.radians(angle)), np.sin(np.radians(angle))
        lat = LAT - pixel * (row * cos + col * sin) / DEGREE
        lon = LON + pixel * (col * cos - row * sin) / (DEGREE * np.cos(np.radians(LAT)))
        return lon, lat

    def lookup(
        self, pixel: float = 60.0, angle: float = 12.0
    ) -> tuple[np.ndarray, np.ndarray, list[float]]:
        """Return the lookup of a map grid of degrees (columns and rows from 1) and its transform.

        Every cell is taken back to the swath by the inverse of what `swath` does.
        """
        lon, lat = self.swath(pixel, angle)
        step = pixel / DEGREE
        west, north = lon.min() - step, lat.max() + step
        width = int((lon.max() - west) / step) + 3
        height = int((north - lat.min()) / step) + 3
        y, x = np.mgrid[:height, :width] + 0.5
        down = (LAT - (north - y * step)) * DEGREE / pixel
        right = (west + x * step - LON) * DEGREE * np.cos(np.radians(LAT)) / pixel
        cos, sin = np.cos(np.radians(angle)), np.sin(np.radians(angle))
        row, col = np.rint(down * cos - right * sin), np.rint(down * sin + right * cos)
        inside = (row >= 0) & (row < self.rows) & (col >= 0) & (col < self.cols)
        glt_x = np.where(inside, col + 1, 0).astype(np.int32)
        glt_y = np.where(inside, row + 1, 0).astype(np.int32)
        return glt_x, glt_y, [step, 0.0, west, 0.0, -step, north]

    def grid(self, pixel: float = 30.0) -> tuple[np.ndarray, np.ndarray]:
        """Return the easting and northing of the pixel centres of a map."""
        row, col = np.mgrid[: self.rows, : self.cols] + 0.5
        return EAST + pixel * col, NORTH - pixel * row


def sunlight(centres: np.ndarray) -> np.ndarray:
    """Return the radiance of a white surface (µW cm⁻² nm⁻¹ sr⁻¹): about that of the Sun."""
    metres = np.asarray(centres) * 1e-9
    planck = metres**-5 / np.expm1(0.014388 / (metres * 5800))
    peak = 5e-7**-5 / np.expm1(0.014388 / (5e-7 * 5800))
    return np.asarray(40 * planck / peak)


def _write_hdf(
    path: Path, arrays: Mapping[str, Any], attrs: Mapping[str, Mapping[str, Any]]
) -> None:
    """Write an HDF5 file: arrays by name with groups, attributes by the name of what has them."""
    import h5py

    with h5py.File(path, "w") as file:
        for name, values in arrays.items():
            file[name] = values
        for name, own in attrs.items():
            (file[name] if name else file).attrs.update(own)


def _give_scales(path: Path, name: str, dims: Mapping[str, np.ndarray]) -> None:
    """Give an array its dimensions: an array of its group where that is its wavelength."""
    import h5py

    with h5py.File(path, "a") as file:
        for axis, (dim, values) in enumerate(dims.items()):
            where = f"{name.rsplit('/', 1)[0]}/{dim}" if dim == "wavelength" else dim
            file[where] = values
            file[where].attrs.update({"units": "nm"} if dim == "wavelength" else {})
            file[where].make_scale(dim)
            file[name].dims[axis].attach_scale(file[where])


def _gdal(transform: Sequence[float]) -> list[float]:
    """Return a transform in the order of GDAL."""
    a, b, c, d, e, f = transform
    return [c, a, b, f, d, e]


def _joined(first: Part, second: Part) -> Part:
    """Return two detectors as one: in the overlap the second's bands stay."""
    stays = first[1] < second[1].min()
    values, valid = (np.concatenate([first[k][..., stays], second[k]], axis=2) for k in (0, 2))
    return values, np.concatenate([first[1][stays], second[1]]), valid


def _emit(folder: Path, setting: Setting, level: str) -> Sample:
    """Write an EMIT granule; L2A with its uncertainty and its mask beside it."""
    centres = np.linspace(381.0, 2492.0, 64)
    if level == "L1B":
        path = folder / "EMIT_L1B_RAD_001_20240618T102030_2417007_001.nc"
        values = setting.radiance(centres).astype("f4")
        values[0, 0] = _NODATA
        about = "At-sensor radiance"
        return _emit_file(path, setting, "radiance", values, centres, "uW/cm^2/SR/nm", about)
    path = folder / "EMIT_L2A_RFL_001_20240618T102030_2417007_001.nc"
    values = setting.reflectance(centres).astype("f4")
    values[0, 0] = _NODATA
    good = ((centres < 1320) | (centres > 1440)).astype("u1")
    made = _emit_file(
        path, setting, "reflectance", values, centres, "unitless", "Surface reflectance", good
    )
    beside = path.with_name(path.name.replace("_RFL_", "_RFLUNCERT_"))
    spread = np.full(values.shape, 0.01, dtype="f4")
    about = "Reflectance uncertainty"
    _emit_file(beside, setting, "reflectance_uncertainty", spread, centres, "unitless", about)
    bad = setting.bad(len(centres))
    flags = {"mask": np.zeros((*bad.shape[:2], 8), "f4"), "band_mask": np.packbits(bad, axis=2)}
    mask = path.with_name(path.name.replace("_RFL_", "_MASK_"))
    _write_hdf(mask, flags, {"": {"title": "EMIT L2A Masks 60 m V001"}})
    return replace(made, valid=made.valid & ~bad & (good == 1))


def _emit_file(
    path: Path,
    setting: Setting,
    name: str,
    values: np.ndarray,
    centres: np.ndarray,
    units: str,
    about: str,
    good: np.ndarray | None = None,
) -> Sample:
    lon, lat = setting.swath()
    glt_x, glt_y, transform = setting.lookup()
    bands, place = "sensor_band_parameters", "location"
    arrays: dict[str, Any] = {
        name: values, f"{bands}/wavelengths": centres.astype("f4"),
        f"{bands}/fwhm": np.full(len(centres), 8.5, "f4"),
        f"{place}/lat": lat, f"{place}/lon": lon, f"{place}/elev": np.zeros_like(lat),
        f"{place}/glt_x": glt_x, f"{place}/glt_y": glt_y,
    }  # fmt: skip
    arrays |= {} if good is None else {f"{bands}/good_wavelengths": good}
    fill = {"_FillValue": np.array([_NODATA], "f4")}
    attrs: dict[str, dict[str, Any]] = {
        "": {"instrument": "EMIT", "platform": "ISS", "title": f"EMIT {about} 60 m V001",
             "time_coverage_start": TIME, "geotransform": np.array(_gdal(transform)),
             "spatial_ref": epsg_wkt(4326)},
        name: {"units": units, "long_name": about} | fill,
        f"{bands}/wavelengths": {"units": "nm"}, f"{bands}/fwhm": {"units": "nm"},
    }  # fmt: skip
    _write_hdf(path, arrays, attrs)
    names = ("downtrack", "crosstrack", "bands")
    sizes = zip(names, values.shape, strict=True)
    _give_scales(path, name, {dim: np.arange(size, dtype="f4") for dim, size in sizes})
    stored = values.astype(float)
    return Sample(path, stored, centres, stored != _NODATA, lon, lat, 4326, TIME, name)


def _prisma(folder: Path, setting: Setting, level: str) -> Sample:
    """Write a PRISMA product of a level.

    Radiance (1: twice, before and after coregistration; 2B: at the surface), reflectance of a swath
    (2C) or on a map (2D).
    """
    # Both detectors' wavelengths fall; the last of each was not acquired.
    centres = {"Vnir": np.linspace(985.0, 405.0, 30), "Swir": np.linspace(2495.0, 940.0, 40)}
    path = folder / f"PRS_L{level}_STD_20240618102030_20240618102034_0001.he5"
    arrays: dict[str, Any] = {}
    about: dict[str, Any] = {"Processing_Level": np.bytes_(level)}
    about["Product_StartTime"] = np.bytes_(TIME)
    parts = [_prisma_detector(arrays, about, setting, level, *item) for item in centres.items()]
    fields = f"HDFEOS/SWATHS/PRS_L{level}_HCO/Geolocation Fields"
    if level == "2D":  # corners are those of the centres of the outermost pixels
        x, y = setting.grid(30.0)
        about["Epsg_Code"] = EPSG
        for corner, row, col in (("UL", 0, 0), ("LR", -1, -1)):
            about[f"Product_{corner}corner_easting"] = x[row, col]
            about[f"Product_{corner}corner_northing"] = y[row, col]
    else:
        x, y = setting.swath(30.0)
        ending = "_VNIR" if level == "1" else ""
        arrays |= {f"{fields}/Latitude{ending}": y, f"{fields}/Longitude{ending}": x}
    _write_hdf(path, arrays, {"": about})
    kind = "radiance" if level in ("1", "2B") else "reflectance"
    return Sample(path, *_joined(*parts), x, y, EPSG if level == "2D" else 4326, TIME, kind)


def _prisma_detector(
    arrays: dict[str, Any],
    about: dict[str, Any],
    setting: Setting,
    level: str,
    name: str,
    falling: np.ndarray,
) -> Part:
    """Add one detector; return its values, wavelengths and flags by rising wavelength."""
    fields, upper = f"HDFEOS/SWATHS/PRS_L{level}_HCO/Data Fields", name.upper()
    if level in ("1", "2B"):  # W m-2 sr-1 um-1
        values = setting.radiance(falling) * 10
    else:
        values = setting.reflectance(falling)
    bad = setting.bad(len(falling))
    valid = ~bad
    if level == "1":
        stored = np.rint((values + 1.0) * 100).astype("u2")
        about |= {f"ScaleFactor_{name}": 100.0, f"Offset_{name}": 1.0}
        decoded = stored / 100.0 - 1.0
    else:
        top = 500.0 if level == "2B" else 1.0
        stored = np.rint(values / top * 65535).astype("u2")
        stored[0, 0] = 0
        valid &= stored != 0
        about |= {f"L2Scale{name}Min": 0.0, f"L2Scale{name}Max": top}
        decoded = stored * (top / 65535)
    empty = np.zeros((setting.rows, setting.cols, 1), "u2")
    cube = np.concatenate([stored, empty], axis=2).transpose(0, 2, 1)
    flags = np.concatenate([bad, empty > 0], axis=2).transpose(0, 2, 1).astype("u1") * 2
    error = "SAT_ERR" if level == "1" else "L2_ERR"
    arrays |= {f"{fields}/{upper}_Cube": cube, f"{fields}/{upper}_PIXEL_{error}_MATRIX": flags}
    if level == "1":  # the same before coregistration
        arrays[f"{fields.replace('HCO', 'HRC')}/{upper}_Cube"] = cube[::-1]
    listed = np.append(falling, 0.0)
    about |= {f"List_Cw_{name}": listed, f"List_Cw_{name}_Flags": (listed > 0).astype("u1"),
              f"List_Fwhm_{name}": np.where(listed > 0, 11.0, 0.0)}  # fmt: skip
    return decoded[..., ::-1], falling[::-1], valid[..., ::-1]


def _write_tif(path: Path, stored: np.ndarray, nodata: float | None, mapped: bool) -> None:
    import warnings

    import rasterio
    from rasterio.errors import NotGeoreferencedWarning

    rows, cols, bands = stored.shape
    options = {"width": cols, "height": rows, "count": bands, "dtype": stored.dtype.name}
    if mapped:
        options |= {"crs": f"EPSG:{EPSG}", "transform": rasterio.Affine(30, 0, EAST, 0, -30, NORTH)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotGeoreferencedWarning)
        with rasterio.open(path, "w", driver="GTiff", nodata=nodata, **options) as file:
            file.write(stored.transpose(2, 0, 1))


def _stored(
    physical: np.ndarray, reflecting: bool, top: float, zero: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return scaled integers, with the gain and the offset of every band."""
    bands = physical.shape[2]
    gain = np.full(bands, 1e-4) if reflecting else physical.max(axis=(0, 1)) / top
    offset = np.zeros(bands) if reflecting else zero * gain
    return np.rint((physical - offset) / gain).astype("i2"), gain, offset


def _enmap(folder: Path, setting: Setting, level: str) -> Sample:
    """Write an EnMAP product: radiance, of two detectors (L1B) or on a map (L1C), or reflectance.

    The sample of L1B is its SWIR detector (``variable="swir"``).
    """
    stem = f"ENMAP01-____{level}-DT0000001867_20240618T102030Z_008_V010502_20240619T010203Z"
    home = folder / stem
    home.mkdir()
    centres = np.concatenate([np.linspace(418.0, 993.0, 24), np.linspace(902.0, 2445.0, 36)])
    reflecting, mapped = level == "L2A", level != "L1B"
    physical = setting.reflectance(centres) if reflecting else setting.radiance(centres) / 100
    stored, gain, offset = _stored(physical, reflecting, 25_000, -10)
    background = -32768 if reflecting else 0
    stored[0, 0] = background
    bad = setting.bad(len(centres))
    sides = {"_VNIR": slice(0, 24), "_SWIR": slice(24, None)}
    for ending, bands in ({"": slice(None)} if mapped else sides).items():
        image = home / f"{stem}-SPECTRAL_IMAGE{ending}.TIF"
        _write_tif(image, stored[..., bands], background, mapped)
        flags = bad[..., bands].astype("u1")
        _write_tif(home / f"{stem}-QL_PIXELMASK{ending}.TIF", flags, None, mapped)
    cloud = np.zeros((setting.rows, setting.cols, 1), "u1")
    _write_tif(home / f"{stem}-QL_QUALITY_CLOUD.TIF", cloud, None, mapped)
    columns = {"wavelengthCenterOfBand": centres, "FWHMOfBand": np.full(len(centres), 7.5),
               "GainOfBand": gain, "OffsetOfBand": offset}  # fmt: skip
    text = (
        f"<level_X><base><level>{level}</level><temporalCoverage><startTime>{TIME}</startTime>"
        f"</temporalCoverage></base><specific><backgroundValue>{background}</backgroundValue>"
        f"<numberOfVNIRBands>24</numberOfVNIRBands>{_bands('bandID', columns)}</specific></level_X>"
    )
    (home / f"{stem}-METADATA.XML").write_text(text)
    decoded, valid = stored * gain + offset, (stored != background) & ~bad
    vnir, swir = ((decoded[..., k], centres[k], valid[..., k]) for k in sides.values())
    kind = "reflectance" if reflecting else "radiance"
    part: Part = _joined(vnir, swir) if mapped else swir
    return Sample(home, *part, *setting.grid(), EPSG, TIME, kind)


def _bands(tag: str, columns: Mapping[str, np.ndarray]) -> str:
    """Return what an XML file says of bands."""
    rows = zip(*columns.values(), strict=True)
    listed = "".join(
        f'<{tag} number="{number}"><bandNumber>{number}</bandNumber>'
        + "".join(f"<{k}>{float(v)!r}</{k}>" for k, v in zip(columns, row, strict=True))
        + f"</{tag}>"
        for number, row in enumerate(rows, start=1)
    )
    return f"<bandCharacterisation>{listed}</bandCharacterisation>"


def _desis(folder: Path, setting: Setting, level: str) -> Sample:
    """Write a DESIS product on a map: radiance (L1C) or reflectance (L2A)."""
    stem = f"DESIS-HSI-{level}-DT0485529167_001-20240618T102030-V0215"
    home = folder / stem
    home.mkdir()
    centres = np.linspace(401.9, 999.5, 60)
    reflecting = level == "L2A"
    physical = setting.reflectance(centres) if reflecting else setting.radiance(centres)
    stored, gain, offset = _stored(physical, reflecting, 30_000, 5)
    stored[0, 0] = -32768
    _write_tif(home / f"{stem}-SPECTRAL_IMAGE.tif", stored, -32768, True)
    columns = {"wavelengthCenterOfBand": centres, "wavelengthWidthOfBand": np.full(60, 3.5),
               "gainOfBand": gain, "offsetOfBand": offset}  # fmt: skip
    text = (  # bands are listed a second time, with their geometry
        f"<hsi_doc><base><productType>{level}</productType><startTime>{TIME}</startTime></base>"
        "<specific><interiorOrientation><band><bandNumber>1</bandNumber></band>"
        f"</interiorOrientation>{_bands('band', columns)}</specific></hsi_doc>"
    )
    (home / f"{stem}-METADATA.xml").write_text(text)
    kind, valid = "reflectance" if reflecting else "radiance", stored != -32768
    decoded = stored * gain + offset
    return Sample(home, decoded, centres, valid, *setting.grid(), EPSG, TIME, kind)


def _aviris_ng(folder: Path, setting: Setting) -> Sample:
    """Write an AVIRIS-NG radiance flight line (ENVI), on a map that is turned."""
    centres = np.linspace(377.0, 2500.0, 60)
    path = folder / "ang20240618t102030_rdn_v2z1_img"
    values = setting.radiance(centres).astype("<f4")
    values[0, 0] = _NODATA
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
    return Sample(path, stored, centres, stored != _NODATA, x, y, EPSG, TIME, "radiance")


def _aviris_3(folder: Path, setting: Setting) -> Sample:
    """Write an AVIRIS-3 reflectance file that is orthocorrected."""
    centres = np.linspace(389.0, 2496.0, 60)
    path = folder / "AV320240618t102030_000_L2A_OE_main_RFL_ORT.nc"
    values = setting.reflectance(centres).astype("f4")
    values[:2, :3] = _NODATA
    x, y = setting.grid(10.0)
    name, fill = "reflectance/reflectance", np.array([_NODATA], "f4")
    place = {"crs_wkt": epsg_wkt(EPSG), "GeoTransform": f"{EAST} 10.0 0.0 {NORTH} 0.0 -10.0"}
    _write_hdf(
        path,
        {"transverse_mercator": np.int8(0), name: values.transpose(2, 0, 1),
         "reflectance/fwhm": np.full(60, 8.0)},
        {"": {"title": "AVIRIS-3 L2A orthocorrected reflectance", "time_coverage_start": TIME},
         "transverse_mercator": place,
         name: {"_FillValue": fill, "grid_mapping": "transverse_mercator"}},
    )  # fmt: skip
    _give_scales(path, name, {"wavelength": centres, "northing": y[:, 0], "easting": x[0]})
    stored = values.astype(float)
    return Sample(path, stored, centres, stored != _NODATA, x, y, EPSG)


def _aviris_5(folder: Path, setting: Setting) -> Sample:
    """Write an AVIRIS-5 radiance file in sensor geometry, with the lookup of its map."""
    centres = np.linspace(377.0, 2500.0, 60)
    path = folder / "AV520240618t102030_000_L1B_RDN_main_RDN.nc"
    values = setting.radiance(centres).astype("f4")
    glt_x, glt_y, transform = setting.lookup()
    told = " ".join(repr(float(v)) for v in _gdal(transform))
    name, lookup = "radiance/radiance", "geolocation_lookup_table"
    _write_hdf(
        path,
        {"transverse_mercator": np.int8(0), name: values.transpose(2, 0, 1),
         f"{lookup}/sample": -glt_x, f"{lookup}/line": glt_y},  # negative: from a neighbour
        {"": {"title": "AVIRIS-5 L1B radiance", "time_coverage_start": TIME},
         "transverse_mercator": {"crs_wkt": epsg_wkt(4326), "GeoTransform": told},
         name: {"units": "uW nm-1 cm-2 sr-1"}},
    )  # fmt: skip
    lines, samples = np.arange(setting.rows), np.arange(setting.cols)
    _give_scales(path, name, {"wavelength": centres, "line": lines, "sample": samples})
    stored, valid = values.astype(float), np.ones(values.shape, dtype=bool)
    return Sample(path, stored, centres, valid, *setting.swath(), 4326, TIME, "radiance")


def _neon(folder: Path, setting: Setting) -> Sample:
    """Write a NEON AOP reflectance file."""
    centres = np.linspace(384.0, 2512.0, 60)
    path = folder / "NEON_D01_BART_DP1_20240618_102030_reflectance.h5"
    stored = np.rint(setting.reflectance(centres) * 10_000).astype("i2")
    stored[:, 0] = -9999
    site = "BART/Reflectance"
    bands, system = f"{site}/Metadata/Spectral_Data", f"{site}/Metadata/Coordinate_System"
    info = f"UTM,1.000,1.000,{EAST},{NORTH},1.0,1.0,33,North,WGS-84,units=Meters,rotation=0"
    windows = ((1340.0, 1445.0), (1790.0, 1955.0))
    told = {f"Band_Window_{i}_Nanometers": np.array(w) for i, w in enumerate(windows, start=1)}
    _write_hdf(
        path,
        {f"{site}/Reflectance_Data": stored, f"{bands}/Wavelength": centres,
         f"{bands}/FWHM": np.full(60, 5.8), f"{system}/EPSG Code": np.bytes_(str(EPSG)),
         f"{system}/Map_Info": np.bytes_(info)},
        {f"{site}/Reflectance_Data": {"Scale_Factor": 10_000.0, "Data_Ignore_Value": -9999.0},
         site: told | {"Acquisition_Time": TIME}, f"{bands}/Wavelength": {"Units": "nanometers"}},
    )  # fmt: skip
    usable = np.all([(centres < low) | (centres > high) for low, high in windows], axis=0)
    valid = (stored != -9999) & usable
    return Sample(path, stored / 10_000, centres, valid, *setting.grid(1.0), EPSG)


def _pace(folder: Path, setting: Setting) -> Sample:
    """Write a PACE OCI L2 granule of remote-sensing reflectance."""
    centres = np.linspace(346.0, 719.0, 50).astype("f4")
    path = folder / "PACE_OCI.20240618T102030.L2.OC_AOP.V3_0.nc"
    stored = np.rint((setting.reflectance(centres) * 0.05 - 0.05) / 2e-6).astype("i2")
    stored[5, 5] = -32767
    lon, lat = setting.swath(1200.0)
    flags = np.zeros((setting.rows, setting.cols), "i4")
    flags[8, 9], flags[2, 2], flags[4, 4] = 1, 2, 1 << 30
    data, bands, place = "geophysical_data", "sensor_band_parameters", "navigation_data"
    scale, zero = np.array([2e-6], "f4"), np.array([0.05], "f4")
    _write_hdf(
        path,
        {f"{data}/Rrs": stored, f"{data}/l2_flags": flags,
         f"{bands}/wavelength": np.linspace(314.0, 2260.0, 286), f"{bands}/wavelength_3d": centres,
         f"{place}/latitude": lat.astype("f4"), f"{place}/longitude": lon.astype("f4")},
        {"": {"instrument": "OCI", "time_coverage_start": TIME},
         f"{data}/Rrs": {"scale_factor": scale, "add_offset": zero,
                         "_FillValue": np.array([-32767], "i2"), "units": "sr^-1",
                         "long_name": "Remote sensing reflectance"},
         f"{data}/l2_flags": {"flag_meanings": "ATMFAIL LAND PRODWARN HIGLINT HILT",
                              "flag_masks": np.array([1, 2, 4, 8, 16], "i4")},
         f"{bands}/wavelength_3d": {"units": "nm"}},
    )  # fmt: skip
    valid = (stored != -32767) & (flags & 17 == 0)[..., None]
    decoded = stored * np.float64(scale[0]) + np.float64(zero[0])
    return Sample(path, decoded, centres.astype(float), valid, lon, lat, 4326)


def _tanager(folder: Path, setting: Setting, kind: str) -> Sample:
    """Write a Tanager product: radiance in sensor geometry (SWATHS), reflectance on a map."""
    centres = np.linspace(376.0, 2499.0, 60)
    mapped = kind == "GRIDS"
    path = folder / f"20240618_102030_64_4001_{'ortho_sr' if mapped else 'basic_radiance'}_hdf5.h5"
    values = setting.reflectance(centres) if mapped else setting.radiance(centres) * 10
    values = values.astype("f4")
    outside = np.zeros((setting.rows, setting.cols), "u1")
    outside[:3, :2] = 1
    good = (centres < 1342) | (centres > 1450)
    home = f"HDFEOS/{kind}/HYP"
    name = f"{home}/Data Fields/{'surface_reflectance' if mapped else 'toa_radiance'}"
    arrays: dict[str, Any] = {name: values.transpose(2, 0, 1)}
    arrays[f"{home}/Data Fields/nodata_pixels"] = outside
    own: dict[str, Any] = {"wavelengths": centres, "fwhm": np.full(60, 5.5)}
    own |= {"_FillValue": np.float32(_NODATA), "Unit": "unitless" if mapped else "W/(m^2 sr um)"}
    about: dict[str, Any] = {"strip_id": "20240618_102030_64_4001"}
    valid = np.broadcast_to((outside == 0)[..., None], values.shape)
    x, y = setting.grid(30.0) if mapped else setting.swath(30.0)
    if mapped:
        own, about = own | {"good_wavelengths": good.astype("u1")}, about | {"epsg_code": EPSG}
        south, east = NORTH - 30 * setting.rows, EAST + 30 * setting.cols
        text = f"UpperLeftPointMtrs=({EAST},{NORTH})\n\t\tLowerRightMtrs=({east},{south})\n"
        arrays["HDFEOS INFORMATION/StructMetadata.0"] = np.bytes_(text)
        valid = valid & good
    else:
        fields = f"{home}/Geolocation Fields"
        arrays |= {f"{fields}/Latitude": y, f"{fields}/Longitude": x}
    _write_hdf(path, arrays, {name: own, home: about})
    epsg, quantity = (EPSG, "reflectance") if mapped else (4326, "radiance")
    return Sample(path, values.astype(float), centres, valid, x, y, epsg, TIME, quantity)


SAMPLES: dict[str, Callable[[Path, Setting], Sample]] = {
    **{f"emit-{level.lower()}": partial(_emit, level=level) for level in ("L1B", "L2A")},
    **{f"prisma-l{one.lower()}": partial(_prisma, level=one) for one in ("1", "2B", "2C", "2D")},
    **{f"enmap-{one.lower()}": partial(_enmap, level=one) for one in ("L1B", "L1C", "L2A")},
    **{f"desis-{level.lower()}": partial(_desis, level=level) for level in ("L1C", "L2A")},
    "aviris-3": _aviris_3,
    "aviris-5": _aviris_5,
    "aviris-ng": _aviris_ng,
    "neon": _neon,
    "pace": _pace,
    "tanager": partial(_tanager, kind="SWATHS"),
    "tanager-ortho": partial(_tanager, kind="GRIDS"),
}
"""Names of samples, and what makes them."""


def write_sample(name: str, folder: str | Path, setting: Setting | None = None) -> Sample:
    """Write a small product in the layout of a sensor.

    Parameters
    ----------
    name
        One of `SAMPLES`.
    folder
        Where to write it; it must exist.
    setting
        Its size and seed.

    Examples
    --------
    >>> import tempfile, sigmacube as sc
    >>> made = write_sample("emit-l1b", tempfile.mkdtemp())
    >>> sc.read(made.path).shape == made.values.shape
    True
    """
    if name not in SAMPLES:
        raise ValueError(f"Invalid sample {name!r}. It must be one of {', '.join(SAMPLES)}.")
    return SAMPLES[name](Path(folder), setting or Setting())
