"""Samples of EMIT and PRISMA."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from sigmacube.io.sensors.content import epsg_wkt
from sigmacube.io.sensors.samples import EAST, EPSG, NORTH, TIME, Sample, Setting

__all__ = ["emit_l1b", "emit_l2a", "prisma_l1", "prisma_l2b", "prisma_l2c", "prisma_l2d"]

_NODATA = -9999.0


def emit_l1b(folder: Path, setting: Setting) -> Sample:
    """Write an EMIT L1B radiance granule."""
    centres = np.linspace(381.0, 2492.0, 64)
    path = folder / "EMIT_L1B_RAD_001_20240618T102030_2417007_001.nc"
    values = setting.radiance(centres).astype("f4")
    values[0, 0] = _NODATA
    return _emit(path, setting, "radiance", values, centres, "uW/cm^2/SR/nm", "At-sensor radiance")


def emit_l2a(folder: Path, setting: Setting) -> Sample:
    """Write an EMIT L2A reflectance granule, with its uncertainty and its mask beside it."""
    centres = np.linspace(381.0, 2492.0, 64)
    path = folder / "EMIT_L2A_RFL_001_20240618T102030_2417007_001.nc"
    values = setting.reflectance(centres).astype("f4")
    values[0, 0] = _NODATA
    good = ((centres < 1320) | (centres > 1440)).astype("u1")
    made = _emit(path, setting, "reflectance", values, centres, "unitless", "Surface reflectance",
                 good)  # fmt: skip
    spread = np.full(values.shape, 0.01, dtype="f4")
    name, beside = "reflectance_uncertainty", path.name.replace("_RFL_", "_RFLUNCERT_")
    about = "Reflectance uncertainty"
    _emit(path.with_name(beside), setting, name, spread, centres, "unitless", about)
    bad = setting.bad(len(centres))
    _emit_mask(path.with_name(path.name.replace("_RFL_", "_MASK_")), bad)
    valid = made.valid & ~bad & (good == 1)
    return Sample(path, made.values, centres, valid, made.x, made.y, 4326)


def _emit(
    path: Path,
    setting: Setting,
    name: str,
    values: np.ndarray,
    centres: np.ndarray,
    units: str,
    about: str,
    good: np.ndarray | None = None,
) -> Sample:
    import h5py

    lon, lat = setting.swath()
    glt_x, glt_y, transform = setting.lookup()
    a, b, c, d, e, f = transform
    with h5py.File(path, "w") as file:
        file.attrs["instrument"], file.attrs["platform"] = "EMIT", "ISS"
        file.attrs["title"] = f"EMIT {about} 60 m V001"
        file.attrs["time_coverage_start"] = TIME
        file.attrs["geotransform"] = np.array([c, a, b, f, d, e])
        file.attrs["spatial_ref"] = epsg_wkt(4326)
        file[name] = values
        file[name].attrs["units"], file[name].attrs["long_name"] = units, about
        file[name].attrs["_FillValue"] = np.array([_NODATA], "f4")
        dims = {"downtrack": setting.rows, "crosstrack": setting.cols, "bands": len(centres)}
        for axis, (dim, size) in enumerate(dims.items()):
            file[dim] = np.arange(size, dtype="f4")
            file[dim].make_scale(dim)
            file[name].dims[axis].attach_scale(file[dim])
        bands = file.create_group("sensor_band_parameters")
        bands["wavelengths"], bands["fwhm"] = centres.astype("f4"), np.full(len(centres), 8.5, "f4")
        for key in ("wavelengths", "fwhm"):
            bands[key].attrs["units"] = "nm"
        if good is not None:
            bands["good_wavelengths"] = good
        place = file.create_group("location")
        place["lat"], place["lon"], place["elev"] = lat, lon, np.zeros_like(lat)
        place["glt_x"], place["glt_y"] = glt_x, glt_y
    stored = values.astype(float)
    return Sample(path, stored, centres, stored != _NODATA, lon, lat, 4326, TIME, name)


def _emit_mask(path: Path, bad: np.ndarray) -> None:
    import h5py

    with h5py.File(path, "w") as file:
        file.attrs["title"] = "EMIT L2A Masks 60 m V001"
        file["mask"] = np.zeros((*bad.shape[:2], 8), "f4")
        file["band_mask"] = np.packbits(bad, axis=2)


def prisma_l1(folder: Path, setting: Setting) -> Sample:
    """Write a PRISMA L1 product: radiance, twice (before and after coregistration)."""
    return _prisma(folder, setting, "1")


def prisma_l2b(folder: Path, setting: Setting) -> Sample:
    """Write a PRISMA L2B product: radiance at the surface."""
    return _prisma(folder, setting, "2B")


def prisma_l2c(folder: Path, setting: Setting) -> Sample:
    """Write a PRISMA L2C product: reflectance of a swath."""
    return _prisma(folder, setting, "2C")


def prisma_l2d(folder: Path, setting: Setting) -> Sample:
    """Write a PRISMA L2D product: reflectance on a map."""
    return _prisma(folder, setting, "2D")


def _prisma(folder: Path, setting: Setting, level: str) -> Sample:
    import h5py

    # Both detectors' wavelengths fall; the last of each was not acquired.
    vnir, swir = np.linspace(985.0, 405.0, 30), np.linspace(2495.0, 940.0, 40)
    path = folder / f"PRS_L{level}_STD_20240618102030_20240618102034_0001.he5"
    parts = []
    with h5py.File(path, "w") as file:
        file.attrs["Processing_Level"] = np.bytes_(level)
        file.attrs["Product_StartTime"] = np.bytes_(TIME)
        for name, centres in (("Vnir", vnir), ("Swir", swir)):
            parts.append(_prisma_detector(file, setting, level, name, centres))
        x, y = _prisma_place(file, setting, level)
    first, second = parts
    stays = first[1] < second[1].min()
    values = np.concatenate([first[0][..., stays], second[0]], axis=2)
    valid = np.concatenate([first[2][..., stays], second[2]], axis=2)
    centres = np.concatenate([first[1][stays], second[1]])
    kind = "radiance" if level in ("1", "2B") else "reflectance"
    epsg = EPSG if level == "2D" else 4326
    return Sample(path, values, centres, valid, x, y, epsg, TIME, kind)


def _prisma_detector(
    file: object, setting: Setting, level: str, name: str, falling: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Write one detector; return its values, wavelengths and flags by rising wavelength."""
    import h5py

    assert isinstance(file, h5py.File)
    fields = f"HDFEOS/SWATHS/PRS_L{level}_HCO/Data Fields"
    listed = np.append(falling, 0.0)
    if level in ("1", "2B"):  # W m-2 sr-1 um-1
        values = setting.radiance(falling) * 10
    else:
        values = setting.reflectance(falling)
    bad = setting.bad(len(falling))
    if level == "1":
        stored = np.rint((values + 1.0) * 100).astype("u2")
        file.attrs[f"ScaleFactor_{name}"], file.attrs[f"Offset_{name}"] = 100.0, 1.0
        decoded = stored / 100.0 - 1.0
    else:
        top = 500.0 if level == "2B" else 1.0
        stored = np.rint(values / top * 65535).astype("u2")
        stored[0, 0] = 0
        file.attrs[f"L2Scale{name}Min"], file.attrs[f"L2Scale{name}Max"] = 0.0, top
        decoded = stored * (top / 65535)
    empty = np.zeros((setting.rows, setting.cols, 1), "u2")
    cube = np.concatenate([stored, empty], axis=2).transpose(0, 2, 1)
    flags = np.concatenate([bad, empty > 0], axis=2).transpose(0, 2, 1).astype("u1") * 2
    upper = name.upper()
    error = "SAT_ERR" if level == "1" else "L2_ERR"
    file[f"{fields}/{upper}_Cube"], file[f"{fields}/{upper}_PIXEL_{error}_MATRIX"] = cube, flags
    if level == "1":  # the same before coregistration
        file[f"{fields.replace('HCO', 'HRC')}/{upper}_Cube"] = cube[::-1]
    file.attrs[f"List_Cw_{name}"] = listed
    file.attrs[f"List_Cw_{name}_Flags"] = (listed > 0).astype("u1")
    file.attrs[f"List_Fwhm_{name}"] = np.where(listed > 0, 11.0, 0.0)
    valid = ~bad & (stored != 0) if level != "1" else ~bad
    return decoded[..., ::-1], falling[::-1], valid[..., ::-1]


def _prisma_place(file: object, setting: Setting, level: str) -> tuple[np.ndarray, np.ndarray]:
    import h5py

    assert isinstance(file, h5py.File)
    fields = f"HDFEOS/SWATHS/PRS_L{level}_HCO/Geolocation Fields"
    if level != "2D":
        lon, lat = setting.swath(30.0)
        ending = "_VNIR" if level == "1" else ""
        file[f"{fields}/Latitude{ending}"], file[f"{fields}/Longitude{ending}"] = lat, lon
        return lon, lat
    # Corners are those of the centres of the outermost pixels.
    file.attrs["Epsg_Code"] = EPSG
    file.attrs["Product_ULcorner_easting"] = EAST + 15
    file.attrs["Product_ULcorner_northing"] = NORTH - 15
    file.attrs["Product_LRcorner_easting"] = EAST + 30 * setting.cols - 15
    file.attrs["Product_LRcorner_northing"] = NORTH - 30 * setting.rows + 15
    return setting.grid(30.0)
