"""NEON AOP reflectance: one group per site, scaled integers on a map, water windows named."""

from __future__ import annotations

from typing import Any

import numpy as np

from sigmacube.io import crs
from sigmacube.io.sensors.content import HdfContent, as_text, epsg_wkt, reflectance
from sigmacube.io.source import Source
from sigmacube.io.variables import Variable, cube_loader, number_in
from sigmacube.io.wavelengths import to_nanometres


def _cube(content: HdfContent) -> Variable | None:
    named = [v for v in content.variables if v.base in ("reflectance_data", "radiance_data")]
    return next((v for v in named if "/" in v.name), None)


def finds(content: HdfContent) -> bool:
    """Tell whether a file has ``SITE/Reflectance/Reflectance_Data`` and that is asked for."""
    cube = _cube(content)
    return cube is not None and content.variable in (None, cube.name, cube.name.rsplit("/")[-1])


def opened(content: HdfContent) -> Source:
    """Open the reflectance of a flight line or a tile."""
    cube = _cube(content)
    assert cube is not None
    group = cube.name.rsplit("/", 1)[0]
    centres, fwhm = _spectral(content, cube, f"{group}/Metadata/Spectral_Data")
    scale = 1 / number_in(cube.attrs, "Scale_Factor", 1.0)
    nodata = number_in(cube.attrs, "Data_Ignore_Value", -9999.0)
    about = content.group_attrs(group)
    good = np.ones(len(centres), dtype=bool)
    for key, value in about.items():  # outside of the windows that the product calls unusable
        if key.startswith("Band_Window_"):
            low, high = np.asarray(value, dtype=float).reshape(-1)[:2]
            good &= (centres < low) | (centres > high)
    metadata: dict[str, Any] = {"source": content.path.name, "instrument": "NEON NIS"}
    metadata |= reflectance() | {"wavelength_units": "nm", "scale_factor": scale, "nodata": nodata}
    metadata |= {} if fwhm is None else {"fwhm": fwhm}
    metadata |= {"good_bands": good.tolist()} | _place(content, f"{group}/Metadata")
    time = about.get("Acquisition_Time") or content.attrs.get("Acquisition_Time")
    metadata |= {"acquisition_time": str(time)} if time else {}
    return Source(
        path=content.path,
        shape=(cube.shape[0], cube.shape[1], cube.shape[2]),
        stored_dtype=cube.dtype,
        load=cube_loader(cube, (0, 1, 2)),
        wavelengths=centres,
        good_bands=good,
        nodata=nodata,
        scale=scale,
        metadata=metadata,
    )


def _spectral(
    content: HdfContent, cube: Variable, group: str
) -> tuple[np.ndarray, list[float] | None]:
    """Return the centres and widths of the bands, in nm."""
    if len(cube.shape) != 3:
        raise ValueError(f"{content.place}: {cube.name} of shape {cube.shape}. It must be a cube.")
    centres = content.need(f"{group}/Wavelength", "NEON product")
    if centres.shape != (cube.shape[2],):
        raise ValueError(
            f"{content.place}: {centres.shape[0]} wavelengths for {cube.name} of shape "
            f"{cube.shape}. There must be one per band, bands in the last axis."
        )
    widths = content.get(f"{group}/FWHM")
    found, fwhm, note = to_nanometres(
        list(centres.all()),
        str(centres.attrs.get("Units", "nanometers")),
        None if widths is None else list(widths.all()),
    )
    if found is None:
        raise ValueError(f"{content.place}: {note}. They must be lengths.")
    return found, fwhm


def _place(content: HdfContent, meta: str) -> dict[str, Any]:
    info = content.get(f"{meta}/Coordinate_System/Map_Info")
    code = content.get(f"{meta}/Coordinate_System/EPSG Code")
    if info is None:
        return {}
    text = str(as_text(info.all()[()]))
    wkt, transform = crs.from_map_info(text, None)
    if code is not None:
        wkt = epsg_wkt(as_text(code.all()[()]))
    found: dict[str, Any] = {"map_info": text}
    found |= {} if wkt is None else {"crs_wkt": wkt}
    return found | ({} if transform is None else {"transform": transform})
