"""Samples of AVIRIS-3 and -5 (netCDF), NEON, PACE OCI and Tanager."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from sigmacube.io.sensors.content import epsg_wkt
from sigmacube.io.sensors.samples import EAST, EPSG, NORTH, TIME, Sample, Setting

__all__ = ["aviris_3", "aviris_5", "neon", "pace", "tanager", "tanager_ortho"]

_NODATA = -9999.0


def _scaled(file: Any, group: str, name: str, dims: dict[str, np.ndarray]) -> None:
    """Give an array its dimensions."""
    for axis, (dim, values) in enumerate(dims.items()):
        where = f"{group}/{dim}" if dim == "wavelength" else dim
        file[where] = values
        file[where].make_scale(dim)
        file[f"{group}/{name}"].dims[axis].attach_scale(file[where])


def aviris_3(folder: Path, setting: Setting) -> Sample:
    """Write an AVIRIS-3 reflectance file that is orthocorrected."""
    import h5py

    centres = np.linspace(389.0, 2496.0, 60)
    path = folder / "AV320240618t102030_000_L2A_OE_main_RFL_ORT.nc"
    values = setting.reflectance(centres).astype("f4")
    values[:2, :3] = _NODATA
    x, y = setting.grid(10.0)
    with h5py.File(path, "w") as file:
        file.attrs["title"] = "AVIRIS-3 L2A orthocorrected reflectance"
        file.attrs["time_coverage_start"] = TIME
        file["transverse_mercator"] = np.int8(0)
        file["transverse_mercator"].attrs["crs_wkt"] = epsg_wkt(EPSG)
        file["transverse_mercator"].attrs["GeoTransform"] = f"{EAST} 10.0 0.0 {NORTH} 0.0 -10.0"
        file["reflectance/reflectance"] = values.transpose(2, 0, 1)
        file["reflectance/reflectance"].attrs["_FillValue"] = np.array([_NODATA], "f4")
        file["reflectance/reflectance"].attrs["grid_mapping"] = "transverse_mercator"
        _scaled(file, "reflectance", "reflectance",
                {"wavelength": centres, "northing": y[:, 0], "easting": x[0]})  # fmt: skip
        file["reflectance/wavelength"].attrs["units"] = "nm"
        file["reflectance/fwhm"] = np.full(60, 8.0)
    stored = values.astype(float)
    return Sample(path, stored, centres, stored != _NODATA, x, y, EPSG)


def aviris_5(folder: Path, setting: Setting) -> Sample:
    """Write an AVIRIS-5 radiance file in sensor geometry, with the lookup of its map."""
    import h5py

    centres = np.linspace(377.0, 2500.0, 60)
    path = folder / "AV520240618t102030_000_L1B_RDN_main_RDN.nc"
    values = setting.radiance(centres).astype("f4")
    glt_x, glt_y, transform = setting.lookup()
    a, b, c, d, e, f = transform
    lon, lat = setting.swath()
    with h5py.File(path, "w") as file:
        file.attrs["title"] = "AVIRIS-5 L1B radiance"
        file.attrs["time_coverage_start"] = TIME
        file["transverse_mercator"] = np.int8(0)
        file["transverse_mercator"].attrs["crs_wkt"] = epsg_wkt(4326)
        told = " ".join(repr(float(v)) for v in (c, a, b, f, d, e))
        file["transverse_mercator"].attrs["GeoTransform"] = told
        file["radiance/radiance"] = values.transpose(2, 0, 1)
        file["radiance/radiance"].attrs["units"] = "uW nm-1 cm-2 sr-1"
        lines, samples = np.arange(setting.rows), np.arange(setting.cols)
        _scaled(file, "radiance", "radiance",
                {"wavelength": centres, "line": lines, "sample": samples})  # fmt: skip
        file["radiance/wavelength"].attrs["units"] = "nm"
        # Negative: filled in from a neighbour.
        file["geolocation_lookup_table/sample"] = -glt_x
        file["geolocation_lookup_table/line"] = glt_y
    stored = values.astype(float)
    valid = np.ones(stored.shape, dtype=bool)
    return Sample(path, stored, centres, valid, lon, lat, 4326, TIME, "radiance")


def neon(folder: Path, setting: Setting) -> Sample:
    """Write a NEON AOP reflectance file."""
    import h5py

    centres = np.linspace(384.0, 2512.0, 60)
    path = folder / "NEON_D01_BART_DP1_20240618_102030_reflectance.h5"
    stored = np.rint(setting.reflectance(centres) * 10_000).astype("i2")
    stored[:, 0] = -9999
    with h5py.File(path, "w") as file:
        site = "BART/Reflectance"
        file[f"{site}/Reflectance_Data"] = stored
        cube = file[f"{site}/Reflectance_Data"].attrs
        cube["Scale_Factor"], cube["Data_Ignore_Value"] = 10_000.0, -9999.0
        about = file[site].attrs
        about["Band_Window_1_Nanometers"] = np.array([1340.0, 1445.0])
        about["Band_Window_2_Nanometers"] = np.array([1790.0, 1955.0])
        about["Acquisition_Time"] = TIME
        meta = f"{site}/Metadata"
        file[f"{meta}/Spectral_Data/Wavelength"] = centres
        file[f"{meta}/Spectral_Data/Wavelength"].attrs["Units"] = "nanometers"
        file[f"{meta}/Spectral_Data/FWHM"] = np.full(60, 5.8)
        file[f"{meta}/Coordinate_System/EPSG Code"] = np.bytes_(str(EPSG))
        info = f"UTM,1.000,1.000,{EAST},{NORTH},1.0,1.0,33,North,WGS-84,units=Meters,rotation=0"
        file[f"{meta}/Coordinate_System/Map_Info"] = np.bytes_(info)
    usable = ((centres < 1340) | (centres > 1445)) & ((centres < 1790) | (centres > 1955))
    valid = (stored != -9999) & usable
    return Sample(path, stored / 10_000, centres, valid, *setting.grid(1.0), EPSG)


def pace(folder: Path, setting: Setting) -> Sample:
    """Write a PACE OCI L2 granule of remote-sensing reflectance."""
    import h5py

    centres = np.linspace(346.0, 719.0, 50).astype("f4")
    path = folder / "PACE_OCI.20240618T102030.L2.OC_AOP.V3_0.nc"
    stored = np.rint((setting.reflectance(centres) * 0.05 - 0.05) / 2e-6).astype("i2")
    stored[5, 5] = -32767
    lon, lat = setting.swath(1200.0)
    flags = np.zeros((setting.rows, setting.cols), "i4")
    flags[8, 9], flags[2, 2], flags[4, 4] = 1, 2, 1 << 30
    names = "ATMFAIL LAND PRODWARN HIGLINT HILT"
    with h5py.File(path, "w") as file:
        file.attrs["instrument"], file.attrs["time_coverage_start"] = "OCI", TIME
        data = file.create_group("geophysical_data")
        data["Rrs"] = stored
        for key, value in (("scale_factor", 2e-6), ("add_offset", 0.05)):
            data["Rrs"].attrs[key] = np.array([value], "f4")
        data["Rrs"].attrs["_FillValue"] = np.array([-32767], "i2")
        data["Rrs"].attrs["units"] = "sr^-1"
        data["Rrs"].attrs["long_name"] = "Remote sensing reflectance"
        data["l2_flags"] = flags
        data["l2_flags"].attrs["flag_meanings"] = names
        data["l2_flags"].attrs["flag_masks"] = np.array([1, 2, 4, 8, 16], "i4")
        bands = file.create_group("sensor_band_parameters")
        bands["wavelength"] = np.linspace(314.0, 2260.0, 286)
        bands["wavelength_3d"] = centres
        bands["wavelength_3d"].attrs["units"] = "nm"
        place = file.create_group("navigation_data")
        place["latitude"], place["longitude"] = lat.astype("f4"), lon.astype("f4")
    valid = (stored != -32767) & (flags & 17 == 0)[..., None]
    decoded = stored * np.float64(np.float32(2e-6)) + np.float64(np.float32(0.05))
    return Sample(path, decoded, centres.astype(float), valid, lon, lat, 4326)


def tanager(folder: Path, setting: Setting) -> Sample:
    """Write a Tanager radiance product in sensor geometry."""
    return _tanager(folder, setting, "toa_radiance", "SWATHS")


def tanager_ortho(folder: Path, setting: Setting) -> Sample:
    """Write a Tanager surface reflectance product on a map."""
    return _tanager(folder, setting, "surface_reflectance", "GRIDS")


def _tanager(folder: Path, setting: Setting, name: str, kind: str) -> Sample:
    import h5py

    centres = np.linspace(376.0, 2499.0, 60)
    ending = "basic_radiance" if kind == "SWATHS" else "ortho_sr"
    path = folder / f"20240618_102030_64_4001_{ending}_hdf5.h5"
    reflecting = name == "surface_reflectance"
    values = setting.reflectance(centres) if reflecting else setting.radiance(centres) * 10
    values = values.astype("f4")
    outside = np.zeros((setting.rows, setting.cols), "u1")
    outside[:3, :2] = 1
    good = (centres < 1342) | (centres > 1450)
    x, y = setting.swath(30.0) if kind == "SWATHS" else setting.grid(30.0)
    home = f"HDFEOS/{kind}/HYP"
    with h5py.File(path, "w") as file:
        cube = f"{home}/Data Fields/{name}"
        file[cube] = values.transpose(2, 0, 1)
        file[cube].attrs["wavelengths"], file[cube].attrs["fwhm"] = centres, np.full(60, 5.5)
        file[cube].attrs["_FillValue"] = np.float32(_NODATA)
        file[cube].attrs["Unit"] = "unitless" if reflecting else "W/(m^2 sr um)"
        if reflecting:
            file[cube].attrs["good_wavelengths"] = good.astype("u1")
        file[f"{home}/Data Fields/nodata_pixels"] = outside
        file[home].attrs["strip_id"] = "20240618_102030_64_4001"
        if kind == "SWATHS":
            file[f"{home}/Geolocation Fields/Latitude"] = y
            file[f"{home}/Geolocation Fields/Longitude"] = x
        else:
            file[home].attrs["epsg_code"] = EPSG
            south, east = NORTH - 30 * setting.rows, EAST + 30 * setting.cols
            text = f"UpperLeftPointMtrs=({EAST},{NORTH})\n\t\tLowerRightMtrs=({east},{south})\n"
            file["HDFEOS INFORMATION/StructMetadata.0"] = np.bytes_(text)
    valid = np.broadcast_to((outside == 0)[..., None], values.shape)
    valid = valid & good if reflecting else valid
    epsg = 4326 if kind == "SWATHS" else EPSG
    quantity = "reflectance" if reflecting else "radiance"
    return Sample(path, values.astype(float), centres, valid, x, y, epsg, TIME, quantity)
