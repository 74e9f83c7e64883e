"""Texts of an HDF5 file: their lengths and places, looked at before the library believes them.

An attribute of variable length is stored as a length and a place. The library takes the memory for
the length first and looks at the place then, so four damaged bytes cost up to four gigabytes. The
lengths are therefore read from the object headers themselves (section IV.A.1 of the file format),
where nothing longer than the file can be right. The places are heaps (III.E) which the library
goes through part by part; it never gets beyond a part of no size. Attributes in dense storage, of
objects with very many of them, are not looked at.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

__all__ = ["MAX_OBJECTS", "check_lengths"]

#: Objects of the largest file that is looked through.
MAX_OBJECTS = 5000

_ATTRIBUTE, _CONTINUATION = 0x0C, 0x10
_VARIABLE_LENGTH = 9
#: Bytes of a length, with the place it belongs to, in files of 8-byte offsets.
_STRIDE = 16
#: Blocks of one header, and bytes of one of them: more is none that a library wrote.
_MAX_BLOCKS, _MAX_BYTES = 64, 1 << 20


def check_lengths(path: Path) -> None:
    """Refuse a local file in which the length of an attribute exceeds that of the file."""
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
