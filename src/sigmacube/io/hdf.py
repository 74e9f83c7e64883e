"""netCDF and HDF5: plain CF cubes, and products of the sensors that are known."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sigmacube.io import sensors
from sigmacube.io.hdf_lengths import MAX_OBJECTS, check_lengths
from sigmacube.io.places import address_of, opened_hdf5
from sigmacube.io.sensors.content import as_text as _text
from sigmacube.io.source import Source
from sigmacube.io.untrusted import printable
from sigmacube.io.variables import Variable, open_variables

__all__ = ["attributes", "contents", "open_source"]

#: Nested groups of the deepest file that is looked through.
_MAX_DEPTH = 100


def open_source(
    path: Path,
    *,
    variable: str | None = None,
    axes: str | Sequence[str] | None = None,
    join: str | None = None,
    external: bool | None = None,
    address: str | None = None,
) -> Source:
    """Open the cube of a netCDF or HDF5 file, whose layout is found from its contents.

    ``address`` is where the file lies if not on a local disk, such as ``https://host/cube.nc``.
    """
    place = path if address is None else address
    attrs, variables = contents(place, external=bool(external))
    known = sensors.in_hdf(place, attrs, variables, variable=variable, axes=axes, join=join)
    if known is not None:
        return known
    if join is not None:
        raise ValueError(f"{place}: join (--join) is for products of two detectors; this is none.")
    return open_variables(path, variables, attrs=attrs, variable=variable, axes=axes)


def contents(
    path: Path | str, *, external: bool = False, skip: bytes | None = None
) -> tuple[dict[str, Any], list[Variable]]:
    """Return the global attributes and the arrays of a file, none of them read.

    Parameters
    ----------
    path
        The file, or its address.
    external
        Whether values may come from other files, as external and virtual storage names them.
    skip
        First character of groups that are passed over.
    """
    if address_of(path) is None:
        with Path(path).open("rb") as stream:
            magic = stream.read(4)
        if magic[:3] == b"CDF":
            return _classic_contents(Path(path))
    try:
        if address_of(path) is None:
            check_lengths(Path(path))
        with opened_hdf5(path) as file:
            attrs = attributes(file.attrs)
            found = [_variable(path, name, item, external) for name, item in _arrays(file, skip)]
    except FileNotFoundError:
        raise
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
            if seen > MAX_OBJECTS or path.count(b"/") > _MAX_DEPTH:
                raise ValueError(
                    f"{file.filename}: more than {MAX_OBJECTS} objects, or groups nested deeper "
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


def attributes(attrs: Any) -> dict[str, Any]:
    """Return the attributes of an object that can be read; texts as such."""
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


def _variable(path: Path | str, key: bytes, item: Any, external: bool) -> Variable:
    name = key.decode("utf-8", "replace")
    attrs = {
        printable(key): value
        for key, value in attributes(item.attrs).items()
        if key not in ("DIMENSION_LIST", "REFERENCE_LIST", "CLASS", "NAME")
    }
    load = None if external else _refusal(path, name, item)
    load = load or _loader(path, key)
    return Variable(name, item.shape, item.dtype, load, _dims(item), attrs)


def _refusal(path: Path | str, name: str, item: Any) -> Callable[..., np.ndarray] | None:
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


def _loader(path: Path | str, key: bytes) -> Callable[[tuple[slice, ...]], np.ndarray]:
    """Return a reader that opens the file anew, so that it works in any thread or process."""

    def load(part: tuple[slice, ...]) -> np.ndarray:
        try:
            with opened_hdf5(path) as file:
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
