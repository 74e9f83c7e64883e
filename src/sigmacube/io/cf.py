"""Labelled results: a `DenoisedCube` as a CF-1.11 dataset that obsarray reads, and back.

A `DataArray` that came in goes out with its own dimensions, coordinates and attributes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import xarray as xr

from sigmacube._version import __version__
from sigmacube.core.windows import windows_of
from sigmacube.error_correlation import ErrorCorrelation
from sigmacube.io import crs
from sigmacube.io import wavelengths as spectral
from sigmacube.io.dataarray import labels_of
from sigmacube.io.metadata import from_json, to_json

if TYPE_CHECKING:
    from sigmacube.result import DenoisedCube

REFERENCES = (
    "Uncertainty Quantification of Hyperspectral Image Denoising Frameworks based on "
    "Sliding-Window Low-Rank Matrix Approximation"
)
#: What is said of band centres.
CENTRE = {
    "standard_name": "radiation_wavelength",
    "long_name": "band centre",
    "units": "nm",
}
#: Longest image axis whose correlation is stated as a matrix: beyond it the matrix outgrows use.
_MAX_MATRIX = 4096
_DIMENSIONLESS = ("", "unitless", "dimensionless", "none", "reflectance", "-")
_PACKING = ("scale_factor", "add_offset", "_FillValue", "missing_value")


class Dims(NamedTuple):
    """Names of the dimensions by role, and their order in the dataset."""

    row: str
    col: str
    band: str
    order: tuple[str, ...]


def from_result(result: DenoisedCube, correlation: ErrorCorrelation | None = None) -> xr.Dataset:
    """Return a result as the CF-1.11 dataset that `DenoisedCube.save` writes.

    The estimate and its standard deviation lie side by side (``<name>``, ``<name>_uncertainty``),
    with ``rank`` and ``residual_ratio`` per window, ``noise``, the good-band flags, the coordinate
    system, and the settings as JSON. Error correlation, where it is given, is stated by three
    matrices, see `sigmacube.error_correlation`: it is a scene mean and a product of axes, an
    approximation made for tools that propagate uncertainty from files.

    Examples
    --------
    >>> import numpy as np
    >>> from sigmacube.result import DenoisedCube
    >>> flat = np.zeros((6, 5, 3))
    >>> result = DenoisedCube(flat, flat + 0.1, np.ones((1, 1), int), 0.3, np.ones((1, 1)))
    >>> from_result(result)["estimate"].attrs["unc_comps"]
    ['estimate_uncertainty']
    """
    metadata, bands = result.metadata, result.estimate.shape[2]
    dims, name = _dims(metadata, result.wavelengths), _name(metadata)
    dataset = xr.Dataset(attrs=_global_attributes(result, dims, name))
    dataset = dataset.assign_coords(_coordinates(result, dims))
    dataset[name] = _cube(result.estimate, dims, _estimate_attributes(result, name))
    good = metadata.get("good_bands")
    good = np.ones(bands) if good is None or len(good) != bands else good
    about = flag_attributes("bands that the input calls good", "bad good")
    dataset["good_wavelengths"] = (dims.band, np.asarray(good, bool).astype(np.int8), about)
    if result.std is not None:
        _add_uncertainty(dataset, result, dims, name, correlation)
    if result.rejected is not None:
        about = flag_attributes("elements that the robust solver set aside", "kept rejected")
        dataset["rejected"] = _cube(result.rejected.astype(np.int8), dims, about)
    _add_windows(dataset, result)
    dataset["noise"] = _noise(result, dims)
    if result.noise_scale is not None:
        about = {"long_name": "factor of every pixel on the noise", "units": "1"}
        dataset["noise_scale"] = ((dims.row, dims.col), result.noise_scale, about)
    if result.noise_power is not None:
        about = {"long_name": "power of the noise by spatial frequency of a window", "units": "1"}
        dataset["noise_power"] = (("frequency_row", "frequency_col"), result.noise_power, about)
    if result.unexplained is not None:
        flags = np.zeros(result.estimate.shape[:2], dtype=np.int8)
        flags[tuple(np.asarray(result.unexplained).T)] = 1
        what = "pixels whose spectrum no window explains: kept, with a larger std"
        about = flag_attributes(what, "explained unexplained")
        dataset["unexplained"] = ((dims.row, dims.col), flags, about)
    if metadata.get("fwhm") is not None and len(metadata["fwhm"]) == bands:
        about = {"long_name": "full width at half maximum of the band", "units": "nm"}
        dataset["fwhm"] = (dims.band, np.asarray(metadata["fwhm"], dtype=float), about)
    if "xarray" not in metadata:
        add_place(dataset, metadata, dims, name)
    return dataset


def flag_attributes(what: str, meanings: str) -> dict[str, Any]:
    """Return the attributes of flags, counted from 0, that mean one word each."""
    return {
        "long_name": what,
        "standard_name": "quality_flag",
        "flag_values": np.arange(len(meanings.split()), dtype=np.int8),
        "flag_meanings": meanings,
    }


def layout(
    metadata: Mapping[str, Any], wavelengths: np.ndarray | None
) -> tuple[str, tuple[str, str, str]]:
    """Return the name of the estimate in a dataset, and its dimensions (row, col, band)."""
    dims = _dims(metadata, wavelengths)
    return _name(metadata), (dims.row, dims.col, dims.band)


def _name(metadata: Mapping[str, Any]) -> str:
    labels = metadata.get("xarray") or {}
    given = str(labels.get("name") or metadata.get("name") or "estimate")
    name = re.sub(r"\W", "_", given, flags=re.ASCII)
    return name if name[:1].isalpha() else f"cube_{name}"


def _dims(metadata: Mapping[str, Any], centres: np.ndarray | None) -> Dims:
    labels = metadata.get("xarray")
    if labels:
        row, col, band = labels["roles"]
        return Dims(row, col, band, tuple(labels["dims"]))
    band = band_dimension(centres)
    return Dims("y", "x", band, (band, "y", "x"))


def band_dimension(centres: np.ndarray | None) -> str:
    """Return the name of the band dimension: wavelengths, where these rise or fall throughout.

    Detectors that overlap make them go back, which a coordinate variable must not.
    """
    steps = np.diff(np.asarray([] if centres is None else centres, dtype=float))
    return "wavelength" if steps.size and abs(np.sign(steps).sum()) == steps.size else "band"


def encoding_of(made: xr.Dataset) -> dict[str, dict[str, Any]]:
    """Return the fill value of every variable: NaN for data that are floats, none for all else."""
    return {
        str(key): {
            "_FillValue": np.array(np.nan, variable.dtype)[()]
            if key in made.data_vars and variable.dtype.kind == "f"
            else None
        }
        for key, variable in made.variables.items()
    }


def _cube(values: np.ndarray, dims: Dims, attrs: Mapping[str, Any]) -> xr.Variable:
    return xr.Variable((dims.row, dims.col, dims.band), values, dict(attrs)).transpose(*dims.order)


def units_of(metadata: Mapping[str, Any]) -> str | None:
    """Return the units as CF has them; None where they are not known."""
    units = metadata.get("units")
    if units is None:
        return None
    return "1" if str(units).strip().lower() in _DIMENSIONLESS else str(units)


def file_attributes(
    metadata: Mapping[str, Any], title: str, made: str, version: str = __version__
) -> dict[str, Any]:
    """Return what CF asks of every file: its title, what it was made from, and how."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    source = metadata.get("source")
    return {
        "Conventions": "CF-1.11",
        "title": title,
        "institution": str(metadata.get("institution", "not stated")),
        "source": f"sigmacube {version}" + (f", from {source}" if source else ""),
        "history": f"{now} sigmacube {version} {made}",
        "references": REFERENCES,
        "sigmacube_version": version,
    }


def _global_attributes(result: DenoisedCube, dims: Dims, name: str) -> dict[str, Any]:
    metadata = result.metadata
    title = str(metadata.get("title", "Denoised hyperspectral cube with standard deviation"))
    version = str(result.settings.get("version", __version__))
    attrs = file_attributes(metadata, title, "denoise", version) | {
        "sigmacube_settings": to_json(result.settings),
        "sigmacube_metadata": to_json(metadata),
        "sigmacube_variable": name,
        "sigmacube_axes": f"{dims.row} {dims.col} {dims.band}",
    }
    if result.caveats:
        attrs["comment"] = "What sigma does not hold: " + " ".join(result.caveats)
    if "xarray" in metadata:
        attrs["sigmacube_labels"] = "of the input"
    if metadata.get("acquisition_time"):
        attrs["time_coverage_start"] = str(metadata["acquisition_time"])
    return attrs


def _estimate_attributes(result: DenoisedCube, name: str) -> dict[str, Any]:
    metadata = result.metadata
    labels = metadata.get("xarray") or {}
    attrs = {k: v for k, v in (labels.get("attrs") or {}).items() if k not in _PACKING}
    attrs.setdefault("long_name", str(metadata.get("long_name", f"denoised {name}")))
    if metadata.get("standard_name"):
        attrs.setdefault("standard_name", str(metadata["standard_name"]))
    units = units_of(metadata)
    if units is not None:
        attrs["units"] = units
    attached = ["good_wavelengths"]
    if result.std is not None:
        attached.insert(0, f"{name}_uncertainty")
        attrs["unc_comps"] = [f"{name}_uncertainty"]
    if result.rejected is not None:
        attached.append("rejected")
    if result.unexplained is not None:
        attached.append("unexplained")
    attrs["ancillary_variables"] = " ".join(attached)
    return attrs


def _add_uncertainty(
    dataset: xr.Dataset,
    result: DenoisedCube,
    dims: Dims,
    name: str,
    correlation: ErrorCorrelation | None,
) -> None:
    assert result.std is not None
    attrs: dict[str, Any] = {
        "long_name": f"standard deviation of {name}",
        "standard_error_multiplier": 1,
        "pdf_shape": "gaussian",
    }
    units = units_of(result.metadata)
    if units is not None:
        attrs["units"] = units
    estimate = dataset[name].attrs
    if "standard_name" in estimate:
        attrs["standard_name"] = f"{estimate['standard_name']} standard_error"
    if correlation is not None:
        attrs |= _add_correlation(dataset, correlation, dims)
    dataset[f"{name}_uncertainty"] = _cube(result.std, dims, attrs)


def _add_correlation(
    dataset: xr.Dataset, correlation: ErrorCorrelation, dims: Dims
) -> dict[str, Any]:
    """Add one correlation matrix per axis; return the attributes that point at them."""
    matrices = {dims.band: correlation.bands}
    for axis, dim in enumerate((dims.row, dims.col)):
        if dataset.sizes[dim] <= _MAX_MATRIX:
            matrices[dim] = correlation.along(axis, dataset.sizes[dim])
    attrs: dict[str, Any] = {}
    for number, (dim, matrix) in enumerate(matrices.items(), start=1):
        variable = f"err_corr_{dim}"
        about = {"long_name": f"mean error correlation along {dim}", "units": "1"}
        dataset[variable] = ((f"{dim}_2", dim), matrix.astype(np.float32, copy=False), about)
        attrs[f"err_corr_{number}_dim"] = dim
        attrs[f"err_corr_{number}_form"] = "err_corr_matrix"
        attrs[f"err_corr_{number}_params"] = [variable]
        attrs[f"err_corr_{number}_units"] = ["1"]
    window = correlation.window
    attrs["comment"] = (
        "Errors are correlated between the bands of a pixel, and between pixels less than two "
        f"windows of {window[0]} x {window[1]} pixels apart. The matrices are means over the scene "
        "and their product is an approximation: good for means over pixels of one band, too large "
        "for means over bands and pixels."
    )
    missing = [dim for dim in (dims.row, dims.col) if dim not in matrices]
    if missing:
        attrs["comment"] += f" Not stated along {' and '.join(missing)}, for size."
    return attrs


def _add_windows(dataset: xr.Dataset, result: DenoisedCube) -> None:
    dims: tuple[str, ...] = ("window_row", "window_col", "window_band")[: result.ranks.ndim]
    about = {"long_name": "rank of the window", "units": "1"}
    dataset["rank"] = (dims, result.ranks.astype(np.int32), about)
    about = {
        "long_name": "residual variance over what the noise predicts",
        "comment": "1 where the model fits",
        "units": "1",
    }
    dataset["residual_ratio"] = (dims, result.residual_ratio, about)
    axes = windows_of(result.settings, result.estimate.shape) or ()
    for axis, what, count in zip(axes, ("row", "col"), result.ranks.shape, strict=False):
        if len(axis) == count:
            about = {"long_name": f"first {what} of the window, from 0", "units": "1"}
            dataset[f"window_{what}"] = (f"window_{what}", axis.starts.astype(np.int32), about)


def _noise(result: DenoisedCube, dims: Dims) -> xr.Variable:
    level = np.asarray(result.noise, dtype=float)
    units = units_of(result.metadata)
    if level.ndim == 2:
        attrs = {"long_name": "noise covariance between bands"}
        if units is not None:
            attrs["units"] = units if units == "1" else f"({units})2"
        return xr.Variable((dims.band, f"{dims.band}_2"), level, attrs)
    attrs = {"long_name": "noise standard deviation"}
    if units is not None:
        attrs["units"] = units
    return xr.Variable((dims.band,) if level.ndim else (), level, attrs)


def _coordinates(result: DenoisedCube, dims: Dims) -> dict[str, Any]:
    labels = result.metadata.get("xarray")
    if labels:
        return dict(labels["coords"].coords)
    attrs: dict[str, Any] = dict(CENTRE)
    bands = result.estimate.shape[2]
    names = result.metadata.get("band_names")
    named = {"band_names": list(names)} if names is not None and len(names) == bands else {}
    coords: dict[str, Any] = {}
    if dims.band == "band":
        about = {"long_name": "band number, from 0", "units": "1"} | named
        coords["band"] = ("band", np.arange(bands, dtype=np.int32), about)
    else:
        attrs |= named
    if result.wavelengths is not None:
        coords["wavelength"] = (dims.band, np.asarray(result.wavelengths, dtype=float), attrs)
    return coords


def add_place(dataset: xr.Dataset, metadata: Mapping[str, Any], dims: Dims, name: str) -> None:
    """Add x and y, the grid mapping, and the location of pixels that lie on no map."""
    wkt, transform = metadata.get("crs_wkt"), metadata.get("transform")
    rows, cols = (dataset.sizes[dim] for dim in (dims.row, dims.col))
    if transform is not None and transform[1] == 0 and transform[3] == 0:
        geographic = bool(wkt) and crs.is_geographic(str(wkt))
        a, _, c, _, e, f = (float(value) for value in transform)
        for dim, first, step, size in ((dims.col, c, a, cols), (dims.row, f, e, rows)):
            about = _axis_attributes(dim == dims.col, geographic, bool(wkt))
            dataset.coords[dim] = (dim, first + step * (np.arange(size) + 0.5), about)
    elif transform is not None and wkt:
        _add_turned(dataset, [float(value) for value in transform], dims, str(wkt))
    if wkt or transform is not None:
        mapping = crs.cf_grid_mapping(wkt, transform)
        dataset["spatial_ref"] = ((), np.int32(0), mapping)
        if wkt:
            for variable in (name, f"{name}_uncertainty", "rejected", "unexplained"):
                if variable in dataset:
                    dataset[variable].attrs["grid_mapping"] = "spatial_ref"
    _add_location(dataset, metadata.get("location") or {}, dims)


def _add_turned(dataset: xr.Dataset, transform: Sequence[float], dims: Dims, wkt: str) -> None:
    """Add where pixels lie on a map whose rows do not run east."""
    a, b, c, d, e, f = transform
    row, col = np.mgrid[: dataset.sizes[dims.row], : dataset.sizes[dims.col]] + 0.5
    places = {"easting": a * col + b * row + c, "northing": d * col + e * row + f}
    for name, values in places.items():
        about = _axis_attributes(name == "easting", crs.is_geographic(wkt), True)
        about.pop("axis")
        dataset.coords[name] = ((dims.row, dims.col), values, about)


def _axis_attributes(is_x: bool, geographic: bool, known: bool) -> dict[str, str]:
    if not known:
        return {"long_name": f"{'x' if is_x else 'y'} of the pixel centre"}
    if geographic:
        name, unit = ("longitude", "degrees_east") if is_x else ("latitude", "degrees_north")
    else:
        name, unit = f"projection_{'x' if is_x else 'y'}_coordinate", "m"
    return {"standard_name": name, "units": unit, "axis": "X" if is_x else "Y"}


def _add_location(dataset: xr.Dataset, location: Mapping[str, Any], dims: Dims) -> None:
    size = (dataset.sizes[dims.row], dataset.sizes[dims.col])
    names = {"lat": ("latitude", "degrees_north"), "lon": ("longitude", "degrees_east")}
    for key, values in location.items():
        values = np.asarray(values)
        if values.ndim != 2:
            continue
        if values.shape == size and key in names:
            name, unit = names[key]
            about = {"standard_name": name, "units": unit}
            dataset.coords[key] = ((dims.row, dims.col), values, about)
        elif values.shape == size and not key.startswith("glt"):
            dataset[key] = ((dims.row, dims.col), values, {"long_name": key})
        else:
            about = {"long_name": "lookup of the sensor pixel on the map grid, from 1"}
            dataset[key] = (("ortho_y", "ortho_x"), values, about)


def axes_of(dataset: xr.Dataset) -> tuple[str, str, str]:
    """Return the dimensions (row, col, band) of a dataset of `from_result`."""
    row, col, band = str(dataset.attrs["sigmacube_axes"]).split()
    return row, col, band


def read_cube(
    dataset: xr.Dataset, key: str, rows: slice, cols: slice, bands: slice = slice(None)
) -> np.ndarray:
    """Return a block of a cube of a dataset as (row, col, band)."""
    found, axes = dataset[key], axes_of(dataset)
    # Values first: a transposed array that is not read yet is read element by element.
    values = found[dict(zip(axes, (rows, cols, bands), strict=True))].values
    return np.ascontiguousarray(values.transpose([found.dims.index(dim) for dim in axes]))


def to_result(dataset: xr.Dataset) -> DenoisedCube:
    """Return the result that a dataset of `from_result` holds, with one pixel of its cubes."""
    from sigmacube.result import DenoisedCube

    name = dataset.attrs.get("sigmacube_variable")
    if name not in dataset or "sigmacube_axes" not in dataset.attrs:
        raise ValueError(
            "no result of sigmacube: the attributes sigmacube_variable and sigmacube_axes are "
            "missing. It must have been written by 'sigmacube denoise' or DenoisedCube.save."
        )
    one = slice(0, 1)
    cubes = {key: read_cube(dataset, name, one, one) for key, name in cubes_in(dataset).items()}
    level, odd = dataset["noise"].values, _optional(dataset, "unexplained")
    return DenoisedCube(
        estimate=cubes["estimate"],
        std=cubes.get("std"),
        ranks=dataset["rank"].values,
        noise=float(level) if level.ndim == 0 else level,
        residual_ratio=dataset["residual_ratio"].values,
        noise_power=_optional(dataset, "noise_power"),
        noise_scale=_optional(dataset, "noise_scale"),
        rejected=cubes["rejected"].astype(bool) if "rejected" in cubes else None,
        unexplained=None if odd is None else np.argwhere(odd),
        wavelengths=_stored_wavelengths(dataset, axes_of(dataset)[2]),
        metadata=_stored_metadata(dataset, str(name)),
        settings=from_json(str(dataset.attrs["sigmacube_settings"])),
    )


def _stored_metadata(dataset: xr.Dataset, name: str) -> dict[str, Any]:
    metadata = from_json(str(dataset.attrs["sigmacube_metadata"]))
    if "sigmacube_labels" in dataset.attrs:
        return metadata | {"xarray": labels_of(dataset[name], axes_of(dataset))}
    location = {
        key: dataset[key].values
        for key in ("lat", "lon", "elev", "glt_x", "glt_y")
        if key in dataset.variables
    }
    return metadata | ({"location": location} if location else {})


def _optional(dataset: xr.Dataset, name: str) -> np.ndarray | None:
    return dataset[name].values if name in dataset else None


def cubes_in(dataset: xr.Dataset) -> dict[str, str]:
    """Return the names of the cubes in a dataset of `from_result`, by what they hold."""
    name = str(dataset.attrs["sigmacube_variable"])
    known = {"estimate": name, "std": f"{name}_uncertainty", "rejected": "rejected"}
    return {what: found for what, found in known.items() if found in dataset}


def _stored_wavelengths(dataset: xr.Dataset, band: str) -> np.ndarray | None:
    for key in ("wavelength", *spectral.NAMES):
        if key in dataset.variables and dataset[key].dims == (band,):
            centres, _, _ = spectral.to_nanometres(
                list(dataset[key].values), dataset[key].attrs.get("units")
            )
            return centres
    return None
