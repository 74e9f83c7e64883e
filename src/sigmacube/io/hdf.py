"""netCDF and HDF5: plain CF cubes, EMIT granules, PRISMA products."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from sigmacube.io.source import Source
from sigmacube.io.untrusted import printable
from sigmacube.io.variables import Variable, open_variables

__all__ = ["open_source", "contents"]

#: Names of the CF table for what EMIT and PRISMA products hold.
SURFACE_REFLECTANCE = "surface_bidirectional_reflectance"
RADIANCE = "toa_outgoing_radiance_per_unit_wavelength"
_PRISMA_MAX = 65535
#: Objects and nested groups of the largest file that is looked through.
_MAX_OBJECTS, _MAX_DEPTH = 5000, 100


def open_source(
    path: Path,
    *,
    variable: str | None = None,
    axes: str | Sequence[str] | None = None,
    external: bool | None = None,
) -> Source:
    """Open the cube of a netCDF or HDF5 file, whose layout is found from its contents."""
    attrs, variables = contents(path, external=bool(external))
    cubes = {v.base: v for v in variables if v.base in ("vnir_cube", "swir_cube")}
    if cubes and (variable is None or variable.rsplit("/", 1)[-1].lower() in cubes):
        return _prisma(path, cubes, attrs, variable)
    source = open_variables(path, variables, attrs=attrs, variable=variable, axes=axes)
    if any(v.name.startswith("location/") for v in variables):
        return _emit(source, variables, attrs)
    return source


def contents(
    path: Path, *, external: bool = False, skip: bytes | None = None
) -> tuple[dict[str, Any], list[Variable]]:
    """Return the global attributes and the arrays of a file, none of them read.

    Parameters
    ----------
    path
        The file.
    external
        Whether values may come from other files, as external and virtual storage names them.
    skip
        First character of groups that are passed over.
    """
    import h5py

    with path.open("rb") as file:
        magic = file.read(4)
    if magic[:3] == b"CDF":
        return _classic_contents(path)
    try:
        with h5py.File(path, "r") as file:
            attrs = _attributes(file.attrs)
            found = [_variable(path, name, item, external) for name, item in _arrays(file, skip)]
    except (OSError, RuntimeError, KeyError) as error:
        raise ValueError(f"{path}: not readable as HDF5 ({_short(error)}).") from None
    return attrs, found


def _arrays(file: Any, skip: bytes | None) -> Iterator[tuple[bytes, Any]]:
    """Yield names and datasets, each object once; links out of the file are not followed.

    The library's own walk has no bound, and a small file can describe a very large tree. Names are
    bytes: they need be no text.
    """
    import h5py

    seen, waiting = 0, [(b"", file)]
    known = {h5py.h5o.get_info(file.id).addr}
    while waiting:
        prefix, group = waiting.pop()
        for name in group.id:
            seen += 1
            path = prefix + name
            if seen > _MAX_OBJECTS or path.count(b"/") > _MAX_DEPTH:
                raise ValueError(
                    f"{file.filename}: more than {_MAX_OBJECTS} objects, or groups nested deeper "
                    f"than {_MAX_DEPTH}. No such file is read."
                )
            if skip and name.startswith(skip):
                continue
            if group.id.links.get_info(name).type != h5py.h5l.TYPE_HARD:
                continue
            item = group[name]
            place = h5py.h5o.get_info(item.id).addr
            if place in known:
                continue
            known.add(place)
            if isinstance(item, h5py.Group):
                waiting.append((path + b"/", item))
            elif isinstance(item, h5py.Dataset) and item.shape is not None:
                yield path, item


def _short(error: Exception) -> str:
    return printable(" ".join(str(error).split()))


def _text(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, np.ndarray) and value.dtype.kind in "SO" and value.size == 1:
        return _text(value.reshape(-1)[0])
    return value


def _attributes(attrs: Any) -> dict[str, Any]:
    import h5py

    found = {}
    for key in attrs:
        try:
            value = _text(attrs[key])
        except (OSError, TypeError, RuntimeError, KeyError, ValueError):  # no type h5py can give
            continue
        if not isinstance(value, (h5py.Reference, h5py.Empty)):
            found[printable(key)] = value
    return found


def _variable(path: Path, key: bytes, item: Any, external: bool) -> Variable:
    name = key.decode("utf-8", "replace")
    attrs = {
        printable(key): value
        for key, value in _attributes(item.attrs).items()
        if key not in ("DIMENSION_LIST", "REFERENCE_LIST", "CLASS", "NAME")
    }
    load = None if external else _refusal(path, name, item)
    load = load or _loader(path, key)
    return Variable(name, item.shape, item.dtype, load, _dims(item), attrs)


def _refusal(path: Path, name: str, item: Any) -> Callable[..., np.ndarray] | None:
    """Return a reader that refuses values which lie in other files; None where all lie here.

    Such a file could have any other one of the machine read, and shown.
    """
    others = {name for name, *_ in item.external or ()}
    if item.is_virtual:
        others |= {source.file_name for source in item.virtual_sources()} - {"."}
    if not others:
        return None

    def refuse(key: tuple[slice, ...]) -> np.ndarray:
        raise ValueError(
            f"{path}: the values of {name} lie in {printable(min(others))}. Other files "
            "are only read with external=True (--external)."
        )

    return refuse


def _dims(item: Any) -> tuple[str | None, ...]:
    """Return the names of the dimensions: of their scales, else their labels.

    The attributes are read as such: the library's own functions end the process where they are of
    another kind than it expects.
    """
    labels = _attribute(item, "DIMENSION_LABELS")
    known: list[str | None] = [None] * len(item.shape)
    if isinstance(labels, np.ndarray) and labels.shape == (len(known),):
        texts = [_text(label) for label in labels]
        known = [text if isinstance(text, str) and text else None for text in texts]
    scales = _attribute(item, "DIMENSION_LIST")
    if isinstance(scales, np.ndarray) and scales.shape == (len(known),):
        known = [_scale_name(item, s) or text for s, text in zip(scales, known, strict=True)]
    return tuple(known)


def _attribute(item: Any, name: str) -> Any:
    try:
        return item.attrs.get(name)
    except (OSError, TypeError, RuntimeError, KeyError, ValueError):  # no type that h5py knows
        return None


def _scale_name(item: Any, references: Any) -> str | None:
    """Return the name of the first scale of a dimension; None where it has none that exists."""
    import h5py

    if not isinstance(references, np.ndarray) or not references.size:
        return None
    first = references.flat[0]
    if not isinstance(first, h5py.Reference) or not first:
        return None
    try:
        name = item.file[first].name
    except (ValueError, KeyError, OSError, RuntimeError):  # the scale has been removed
        return None
    return None if name is None else str(_text(name)).rsplit("/", 1)[-1]


def _loader(path: Path, key: bytes) -> Callable[[tuple[slice, ...]], np.ndarray]:
    """Return a reader that opens the file anew, so that it works in any thread or process."""

    def load(part: tuple[slice, ...]) -> np.ndarray:
        import h5py

        try:
            with h5py.File(path, "r") as file:
                return np.asarray(file[key][part])
        except (OSError, RuntimeError) as error:
            name = key.decode("utf-8", "replace")
            raise ValueError(f"{path}: {name} cannot be read ({_short(error)}).") from None

    return load


def _classic_contents(path: Path) -> tuple[dict[str, Any], list[Variable]]:
    """Return the contents of a netCDF-3 file."""
    from scipy.io import netcdf_file

    def load(name: str) -> Callable[[tuple[slice, ...]], np.ndarray]:
        def loader(key: tuple[slice, ...]) -> np.ndarray:
            with netcdf_file(path, mmap=False) as file:
                return np.array(file.variables[name][key])

        return loader

    try:
        with netcdf_file(path, mmap=False) as file:
            attrs = {key: _text(value) for key, value in file._attributes.items()}
            variables = [
                Variable(
                    name,
                    tuple(item.shape),
                    np.dtype(item.data.dtype),
                    load(name),
                    tuple(item.dimensions),
                    {key: _text(value) for key, value in item._attributes.items()},
                )
                for name, item in file.variables.items()
            ]
    except Exception as error:  # SciPy raises whatever the damaged bytes lead to
        raise ValueError(f"{path}: not readable as netCDF ({_short(error)}).") from None
    return attrs, variables


def _emit(source: Source, variables: Sequence[Variable], attrs: Mapping[str, Any]) -> Source:
    """Keep what places an EMIT granule: its pixels lie in sensor geometry, not on a map."""
    metadata = dict(source.metadata)
    location = {v.base: v.all() for v in variables if v.name.startswith("location/")}
    if location:
        metadata["location"] = location
    numbers = np.asarray(attrs.get("geotransform", []), dtype=float).reshape(-1)
    if len(numbers) == 6:
        c, a, b, f, d, e = (float(number) for number in numbers)
        metadata["ortho_transform"] = [a, b, c, d, e, f]
    if isinstance(attrs.get("spatial_ref"), str):
        metadata["ortho_crs_wkt"] = attrs["spatial_ref"]
    if "surface reflectance" in str(metadata.get("long_name", "")).lower():
        metadata.setdefault("standard_name", SURFACE_REFLECTANCE)
    for key in ("instrument", "platform"):
        if isinstance(attrs.get(key), str):
            metadata[key] = attrs[key]
    return replace(source, metadata=metadata)


def _prisma(
    path: Path, cubes: Mapping[str, Variable], attrs: Mapping[str, Any], variable: str | None
) -> Source:
    """Open a PRISMA product: its VNIR and SWIR cubes as one, each by rising wavelength."""
    wanted = [variable.rsplit("/", 1)[-1].lower()] if variable else ["vnir_cube", "swir_cube"]
    parts = [_detector(path, cubes[name], attrs) for name in wanted if name in cubes]
    shapes = {part["cube"].shape[::2] for part in parts}
    if len(shapes) > 1:
        raise ValueError(f"{path}: VNIR and SWIR differ in size: {sorted(shapes)}.")
    rows, cols = shapes.pop()

    def load(r: slice, c: slice) -> np.ndarray:
        blocks = [part["cube"].load((r, slice(None), c))[:, part["index"]] for part in parts]
        return np.concatenate(blocks, axis=1).transpose(0, 2, 1)

    def joined(key: str) -> np.ndarray:
        return np.concatenate([part[key] for part in parts])

    level = str(attrs.get("Processing_Level", ""))
    metadata = _prisma_metadata(path, attrs, level, (rows, cols))
    metadata["fwhm"] = joined("fwhm").tolist()
    metadata["scale_factor"] = joined("scale").tolist()
    metadata["add_offset"] = joined("offset").tolist()
    # The map-projected product is filled with zeros around the swath.
    nodata = 0.0 if level == "2D" else None
    metadata |= {"nodata": nodata} if nodata is not None else {}
    return Source(
        path=path,
        shape=(rows, cols, sum(len(part["index"]) for part in parts)),
        stored_dtype=parts[0]["cube"].dtype,
        load=load,
        wavelengths=joined("wavelengths"),
        nodata=nodata,
        scale=joined("scale"),
        offset=joined("offset"),
        metadata=metadata,
    )


def _detector(path: Path, cube: Variable, attrs: Mapping[str, Any]) -> dict[str, Any]:
    name = "Vnir" if cube.base == "vnir_cube" else "Swir"
    try:
        centres = np.asarray(attrs[f"List_Cw_{name}"], dtype=float)
        widths = np.asarray(attrs.get(f"List_Fwhm_{name}", np.zeros_like(centres)), dtype=float)
        if f"L2Scale{name}Max" in attrs:
            low, high = (float(attrs[f"L2Scale{name}{end}"]) for end in ("Min", "Max"))
            scale, offset = (high - low) / _PRISMA_MAX, low
        else:
            scale = 1 / float(attrs[f"ScaleFactor_{name}"])
            offset = -float(attrs.get(f"Offset_{name}", 0.0))
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: the PRISMA attribute {error} is missing or no number.") from None
    if len(cube.shape) != 3 or len(centres) != cube.shape[1]:
        raise ValueError(
            f"{path}: {len(centres)} wavelengths for {cube.name} of shape {cube.shape}. "
            "There must be one per band, bands in the middle axis."
        )
    index = np.flatnonzero(centres > 0)  # zero marks a band that is absent
    index = index[np.argsort(centres[index], kind="stable")]
    count = len(index)
    return {
        "cube": cube,
        "index": index,
        "wavelengths": centres[index],
        "fwhm": widths[index],
        "scale": np.full(count, scale),
        "offset": np.full(count, offset),
    }


def _prisma_metadata(
    path: Path, attrs: Mapping[str, Any], level: str, size: tuple[int, int]
) -> dict[str, Any]:
    metadata: dict[str, Any] = {
        "source": path.name,
        "instrument": "PRISMA",
        "wavelength_units": "nm",
        "interleave": "bil",
        "name": "radiance" if level == "1" else "reflectance",
    }
    metadata["units"] = "W m-2 sr-1 um-1" if level == "1" else "1"
    metadata["standard_name"] = RADIANCE if level == "1" else SURFACE_REFLECTANCE
    if isinstance(attrs.get("Product_StartTime"), str):
        metadata["acquisition_time"] = attrs["Product_StartTime"]
    corners = ("ULcorner_easting", "ULcorner_northing", "LRcorner_easting", "LRcorner_northing")
    keys = [f"Product_{corner}" for corner in corners]
    if level == "2D" and all(key in attrs for key in keys):
        west, north, east, south = (float(attrs[key]) for key in keys)
        metadata["transform"] = [
            (east - west) / size[1],
            0.0,
            west,
            0.0,
            (south - north) / size[0],
            north,
        ]
        code = int(np.asarray(attrs.get("Epsg_Code", 0)).reshape(-1)[0])
        if code:
            from rasterio.crs import CRS

            metadata["crs_wkt"] = str(CRS.from_epsg(code).to_wkt())
    return metadata
