"""netCDF and HDF5: plain CF cubes, and products of the sensors that are known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sigmacube.io import sensors
from sigmacube.io.remote import is_address, opened_hdf5
from sigmacube.io.sensors.content import as_text as _text
from sigmacube.io.source import Source
from sigmacube.io.variables import Variable, open_variables

__all__ = ["open_source", "contents"]


def open_source(
    path: Path,
    *,
    variable: str | None = None,
    axes: str | Sequence[str] | None = None,
    join: str | None = None,
    address: str | None = None,
) -> Source:
    """Open the cube of a netCDF or HDF5 file, whose layout is found from its contents.

    ``address`` is where the file lies if not on a local disk, such as ``https://host/cube.nc``.
    """
    place = path if address is None else address
    attrs, variables = contents(place)
    known = sensors.in_hdf(place, attrs, variables, variable=variable, axes=axes, join=join)
    if known is not None:
        return known
    if join is not None:
        raise ValueError(f"{place}: join (--join) is for products of two detectors; this is none.")
    return open_variables(path, variables, attrs=attrs, variable=variable, axes=axes)


def contents(path: Path | str) -> tuple[dict[str, Any], list[Variable]]:
    """Return the global attributes and the arrays of a file, none of them read."""
    import h5py

    if not is_address(path):
        with Path(path).open("rb") as stream:
            magic = stream.read(4)
        if magic[:3] == b"CDF":
            return _classic_contents(Path(path))
    try:
        with opened_hdf5(path) as file:
            attrs = _attributes(file.attrs)
            variables: list[Variable] = []

            def visit(name: str, item: Any) -> None:
                if isinstance(item, h5py.Dataset) and item.shape is not None:
                    variables.append(_variable(path, name, item))

            file.visititems(visit)
    except (OSError, RuntimeError, KeyError) as error:
        raise ValueError(f"{path}: not readable as HDF5 ({_short(error)}).") from None
    return attrs, variables


def _short(error: Exception) -> str:
    return " ".join(str(error).split())


def _attributes(attrs: Any) -> dict[str, Any]:
    import h5py

    found = {}
    for key in attrs:
        try:
            value = _text(attrs[key])
        except (OSError, TypeError):  # a type that h5py cannot give
            continue
        if not isinstance(value, (h5py.Reference, h5py.Empty)):
            found[key] = value
    return found


def _variable(path: Path | str, name: str, item: Any) -> Variable:
    attrs = {
        key: value
        for key, value in _attributes(item.attrs).items()
        if key not in ("DIMENSION_LIST", "REFERENCE_LIST", "CLASS", "NAME")
    }
    return Variable(name, item.shape, item.dtype, _loader(path, name), _dims(item), attrs)


def _dims(item: Any) -> tuple[str | None, ...]:
    names: list[str | None] = []
    for dim in item.dims:
        scales = list(dim.values())
        # A scale that was deleted is still pointed at, and has no name.
        known = scales[0].name if scales else None
        names.append(known.rsplit("/", 1)[-1] if known else (dim.label or None))
    return tuple(names)


def _loader(path: Path | str, name: str) -> Callable[[tuple[slice, ...]], np.ndarray]:
    """Return a reader that opens the file anew, so that it works in any thread or process."""

    def load(key: tuple[slice, ...]) -> np.ndarray:
        try:
            with opened_hdf5(path) as file:
                return np.asarray(file[name][key])
        except (OSError, RuntimeError) as error:
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
