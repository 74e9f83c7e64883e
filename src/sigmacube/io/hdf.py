"""netCDF and HDF5: plain CF cubes, and products of the sensors that are known."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from sigmacube.io import sensors
from sigmacube.io.places import address_of, opened_hdf5, printable, reason_of
from sigmacube.io.sensors.content import as_text as _text
from sigmacube.io.source import Source
from sigmacube.io.variables import Variable, open_variables

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
        raise ValueError(f"{path}: not readable as HDF5 ({reason_of(error)}).") from None
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
            raise ValueError(f"{path}: {name} cannot be read ({reason_of(error)}).") from None

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
        raise ValueError(f"{path}: not readable as netCDF ({reason_of(error)}).") from None
    return attrs, variables


#: Objects of the largest file that is looked through.
MAX_OBJECTS = 5000

_ATTRIBUTE, _CONTINUATION = 0x0C, 0x10
_VARIABLE_LENGTH = 9
#: Bytes of a length, with the place it belongs to, in files of 8-byte offsets.
_STRIDE = 16
#: Blocks of one header, and bytes of one of them: more is none that a library wrote.
_MAX_BLOCKS, _MAX_BYTES = 64, 1 << 20


def check_lengths(path: Path) -> None:
    """Refuse a local file in which the length of an attribute exceeds that of the file.

    An attribute of variable length is stored as a length and a place. The library takes the memory
    for the length first and looks at the place then, so four damaged bytes cost up to four
    gigabytes. Lengths are therefore read from the object headers themselves (section IV.A.1 of the
    file format), where nothing longer than the file can be right. The places are heaps (III.E)
    which the library goes through part by part; it never gets beyond a part of no size. Attributes
    in dense storage, of objects with very many of them, are not looked at.
    """
    import h5py

    size = os.path.getsize(path)
    with h5py.File(path, "r") as opened:
        base, places = opened.userblock_size, _places(opened)
    heaps: set[int] = set()
    with path.open("rb") as file:
        for place in places:
            for message in _attributes(file, base, place):
                texts = _texts(message)
                longest = max((length for length, _ in texts), default=0)
                if longest > size:
                    raise ValueError(
                        f"{path}: damaged: an attribute claims {longest} values in a file of "
                        f"{size} bytes."
                    )
                heaps |= {heap for length, heap in texts if length}
        if any(_never_ends(file, base + heap) for heap in heaps):
            raise ValueError(f"{path}: damaged: texts of attributes lie in a part of no size.")


def _places(file: Any) -> list[int]:
    """Return the addresses of the objects of a file, up to the bounds within which it is read."""
    import h5py

    found = dict.fromkeys([h5py.h5o.get_info(file.id).addr])
    waiting = [file]
    while waiting and len(found) < MAX_OBJECTS:
        group = waiting.pop()
        for name in islice(group.id, MAX_OBJECTS):
            try:
                if group.id.links.get_info(name).type != h5py.h5l.TYPE_HARD:
                    continue
                place = h5py.h5o.get_info(group.id, name).addr
                if place not in found:
                    found[place] = None
                    item = group[name]
                    waiting += [item] if isinstance(item, h5py.Group) else []
            except (KeyError, OSError, RuntimeError, ValueError):  # refused when it is read
                continue
    return list(found)


def _attributes(file: BinaryIO, base: int, place: int) -> Iterator[bytes]:
    """Yield the attribute messages of an object header, of either version."""
    head = _read(file, base + place, 48)
    if head[:4] == b"OHDR":
        flags, start = head[5], 6 + 16 * bool(head[5] & 0x20) + 4 * bool(head[5] & 0x10)
        width = 1 << (flags & 3)
        waiting = [(place + start + width, int.from_bytes(head[start : start + width], "little"))]
        step = 4 + 2 * bool(flags & 4)
    else:
        waiting, step = [(place + 16, int.from_bytes(head[8:12], "little"))], 8
    for _ in range(_MAX_BLOCKS):
        if not waiting:
            return
        at, length = waiting.pop()
        block = _read(file, base + at, min(length, _MAX_BYTES))
        if block[:4] == b"OCHK":
            block = block[4:-4]
        for kind, body in _messages(block, step):
            if kind == _ATTRIBUTE:
                yield body
            elif kind == _CONTINUATION:
                waiting.append((_number(body, 0, 8), _number(body, 8, 8)))


def _messages(block: bytes, step: int) -> Iterator[tuple[int, bytes]]:
    """Yield kind and body of the messages of a block, whose heads have ``step`` bytes."""
    kind_bytes = 2 if step == 8 else 1
    at = 0
    while at + step <= len(block):
        size = _number(block, at + kind_bytes, 2)
        yield _number(block, at, kind_bytes), block[at + step : at + step + size]
        at += step + size


def _texts(message: bytes) -> list[tuple[int, int]]:
    """Return lengths and heaps in an attribute message; none where its type is of fixed length."""
    if len(message) < 9 or message[0] not in (1, 2, 3):
        return []
    sizes = [_number(message, at, 2) for at in (2, 4, 6)]
    if message[0] == 1:  # parts are padded
        sizes = [-(-size // 8) * 8 for size in sizes]
    start = 9 if message[0] == 3 else 8
    kind = start + sizes[0]
    if kind >= len(message) or message[kind] & 0x0F != _VARIABLE_LENGTH:
        return []
    values = message[start + sum(sizes) :]
    whole = range(0, len(values) - _STRIDE + 1, _STRIDE)
    return [(_number(values, at, 4), _number(values, at + 4, 8)) for at in whole]


def _never_ends(file: BinaryIO, place: int) -> bool:
    """Tell whether free space of no size stands in a heap."""
    head = _read(file, place, 16)
    if head[:4] != b"GCOL":
        return False
    heap, at = _read(file, place, min(_number(head, 8, 8), _MAX_BYTES)), 16
    while at + 16 <= len(heap):
        number, size = _number(heap, at, 2), _number(heap, at + 8, 8)
        if number == 0 and size == 0:
            return True
        at += size if number == 0 else 16 + -(-size // 8) * 8
    return False


def _number(content: bytes, at: int, width: int) -> int:
    return int.from_bytes(content[at : at + width], "little")


def _read(file: BinaryIO, at: int, size: int) -> bytes:
    try:
        file.seek(at)
    except (OSError, OverflowError, ValueError):  # an address that no file reaches
        return bytes(size)
    return file.read(size).ljust(min(size, 64), b"\0")
