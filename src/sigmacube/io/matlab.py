"""MATLAB files: v5 to v7 by their published layout, v7.3 (HDF5) through h5py.

SciPy's reader is not used: on a damaged file it can end the process, and it cannot tell complex
arrays from real ones, or map an array, without reading it. Numeric arrays are all a cube needs.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from sigmacube.io.source import Source
from sigmacube.io.variables import Variable, open_variables

#: Array classes that hold real numbers, and how values of each storage type are kept.
_CLASSES = {
    6: "f8", 7: "f4", 8: "i1", 9: "u1", 10: "i2", 11: "u2", 12: "i4", 13: "u4", 14: "i8", 15: "u8",
}  # fmt: skip
_STORED = {
    1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8",
}  # fmt: skip
_MATRIX, _COMPRESSED = 14, 15
_IS_COMPLEX, _IS_LOGICAL = 0x0800, 0x0200
#: Bytes of an array that surely hold its flags, dimensions and name.
_HEAD = 4096
_HEADER = 128


def open_source(
    path: Path, *, variable: str | None = None, axes: str | Sequence[str] | None = None
) -> Source:
    """Open the cube of a MATLAB file; its axes as MATLAB shows them are (row, col, band)."""
    import h5py

    if h5py.is_hdf5(path):
        from sigmacube.io import hdf

        found = [_reversed(v) for v in hdf.contents(path, skip=b"#")[1]]
        return open_variables(path, found, variable=variable, axes=axes)
    try:
        with path.open("rb") as file:
            variables = [_variable(path, array) for array in _arrays(file)]
    except (ValueError, struct.error, zlib.error) as error:
        raise ValueError(f"{path}: not readable as a MATLAB file ({error}).") from None
    return open_variables(path, variables, variable=variable, axes=axes)


def _reversed(v: Variable) -> Variable:
    """Return an array of a v7.3 file with MATLAB's axes: HDF5 stores them reversed."""
    load = v.load
    return Variable(
        v.name, v.shape[::-1], v.dtype, lambda key: np.asarray(load(key[::-1])).transpose()
    )


class _Array(NamedTuple):
    """An array of a file, not read yet."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype
    stored: np.dtype
    """Type of the bytes: whole doubles may be kept as small integers."""
    start: int
    """Where the values begin: in the file, or in the decompressed element."""
    packed: tuple[int, int] | None
    """(offset, bytes) of the compressed element in the file."""


def _arrays(file: BinaryIO) -> Iterator[_Array]:
    header = file.read(_HEADER)
    mark = header[126:128]
    if len(header) < _HEADER or mark not in (b"IM", b"MI"):
        raise ValueError("no header of MATLAB v5 or later; v4 files hold no cubes")
    order = "<" if mark == b"IM" else ">"
    size = file.seek(0, 2)
    position = _HEADER
    while position + 8 <= size:
        file.seek(position)
        kind, length = struct.unpack(f"{order}II", file.read(8))
        if position + 8 + length > size:
            raise ValueError(f"an array of {length} bytes is truncated")
        head = file.read(min(length, _HEAD))
        if kind == _COMPRESSED:
            inner = zlib.decompressobj().decompress(head, _HEAD)
            if struct.unpack_from(f"{order}I", inner)[0] == _MATRIX:
                yield _parsed(inner[8:], order, 8, (position + 8, length))
        elif kind == _MATRIX:
            yield _parsed(head, order, position + 8, None)
        position += 8 + length


def _parsed(head: bytes, order: str, start: int, packed: tuple[int, int] | None) -> _Array:
    """Return an array from the first bytes of its element."""
    parts = _elements(head, order)
    _, flags, _ = next(parts)
    bits = struct.unpack_from(f"{order}I", flags)[0]
    _, dims, _ = next(parts)
    shape = struct.unpack(f"{order}{len(dims) // 4}i", dims)
    if min(shape, default=0) < 0:
        raise ValueError(f"an array has the shape {shape}")
    _, name, end = next(parts)
    text = name.decode("utf-8", "replace")
    code = _CLASSES.get(bits & 0xFF)
    if code is None or end + 8 > len(head):
        return _Array(text, shape, np.dtype(object), np.dtype(object), 0, packed)
    kind, length, offset = _tag(head, order, end)
    dtype = np.dtype(code)
    if bits & _IS_LOGICAL:
        dtype = np.dtype(bool)
    if bits & _IS_COMPLEX:
        dtype = np.dtype(complex)
    if kind not in _STORED:
        raise ValueError(f"{text} has values of the unknown type {kind}")
    stored = np.dtype(order + _STORED[kind])
    needed = int(np.prod(shape, dtype=object)) * stored.itemsize
    if length != needed:
        raise ValueError(f"{text} has {length} bytes of values, its shape {shape} needs {needed}")
    return _Array(text, shape, dtype, stored, start + offset, packed)


def _tag(content: bytes, order: str, position: int) -> tuple[int, int, int]:
    """Return (type, length, offset) of the element at ``position``; short ones share the tag."""
    kind, length = struct.unpack_from(f"{order}II", content, position)
    if kind >> 16:
        return kind & 0xFFFF, kind >> 16, position + 4
    return kind, length, position + 8


def _elements(content: bytes, order: str) -> Iterator[tuple[int, bytes, int]]:
    """Yield (type, bytes, end) of the elements, each padded to eight bytes."""
    position = 0
    while True:
        kind, length, start = _tag(content, order, position)
        if start + length > len(content):
            raise ValueError("an array's description is damaged")
        position = -(-(start + length) // 8) * 8
        yield kind, content[start : start + length], position


def _variable(path: Path, array: _Array) -> Variable:
    # A map costs nothing to make anew, and is closed with what was read from it.
    whole = _mapped if array.packed is None else cache(_unpacked)

    def load(key: tuple[slice, ...]) -> Any:
        return whole(path, array)[key].astype(array.dtype, copy=False)

    loader: Callable[[tuple[slice, ...]], np.ndarray] = load
    return Variable(array.name, array.shape, array.dtype, loader)


def _mapped(path: Path, array: _Array) -> np.ndarray:
    try:
        return np.memmap(
            path, array.stored, mode="r", offset=array.start, shape=array.shape, order="F"
        )
    except ValueError:
        raise ValueError(f"{path}: {array.name} is truncated.") from None


def _unpacked(path: Path, array: _Array) -> np.ndarray:
    offset, length = array.packed or (0, 0)
    needed = array.start + int(np.prod(array.shape, dtype=object)) * array.stored.itemsize
    with path.open("rb") as file:
        file.seek(offset)
        try:
            # No more is unpacked than the shape asks for, whatever the bytes say.
            content = zlib.decompressobj().decompress(file.read(length), needed)
        except zlib.error as error:
            raise ValueError(f"{path}: {array.name} cannot be unpacked ({error}).") from None
    if len(content) < needed:
        raise ValueError(f"{path}: {array.name} is truncated.")
    flat = np.frombuffer(content, array.stored, offset=array.start)
    return flat.reshape(array.shape, order="F")
