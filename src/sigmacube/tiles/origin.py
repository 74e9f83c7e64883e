"""The input of a run: read block by block, and watched for changes."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from sigmacube import io
from sigmacube.io.source import Source
from sigmacube.survey import Source as Blocks
from sigmacube.tiles.folder import is_address

__all__ = ["Hashed", "Origin"]


@dataclass(frozen=True, eq=False)
class Origin:
    """A cube in a file or a store, with the user's mask."""

    place: str
    reading: Mapping[str, Any]
    """Options of `sigmacube.read`."""
    mask: np.ndarray | None = None
    """(row, col) or (row, col, band) True where values are valid."""

    @cached_property
    def shape(self) -> tuple[int, int, int]:
        """(rows, cols, bands)."""
        return self.open().shape

    def open(self) -> Source:
        """Open the input; nothing is read."""
        return io.open_source(self.place, **self.reading)

    def block(self, rows: slice, cols: slice) -> tuple[np.ndarray, np.ndarray | None]:
        """Return values and mask of a block.

        The file is opened for every block, and values are copied: what a memory map has touched
        counts as this process's memory until it is closed.
        """
        cube = self.open().read_block(rows, cols)
        values, mask = np.array(cube.values), cube.mask
        if self.mask is None:
            return values, mask
        own = self.mask[rows, cols]
        own = own[..., None] if own.ndim == 2 else own
        return values, own if mask is None else mask & own

    def stamp(self) -> str | None:
        """Return what changes when the input is written to: sizes and times of its files.

        None where the input is at an address.
        """
        if is_address(self.place):
            return None
        text = hashlib.blake2b(digest_size=16)
        for path in _files(Path(self.place), self.reading.get("data")):
            found = os.stat(path)
            text.update(f"{path.name} {found.st_size} {found.st_mtime_ns}\n".encode())
        return text.hexdigest()

    def check(self, stamp: str | None) -> None:
        """Raise an error where the input is gone or has changed since ``stamp``."""
        if stamp is None:
            return
        try:
            now = self.stamp()
        except (FileNotFoundError, ValueError):  # the latter where half of an ENVI pair is gone
            raise FileNotFoundError(
                f"{self.place}: removed during the run. With the same file back in place the run "
                "goes on with --resume."
            ) from None
        if now != stamp:
            raise ValueError(
                f"{self.place}: changed during the run. Tiles of two different inputs must not be "
                "mixed; start anew with --overwrite, or --resume with the former file."
            )


def _files(path: Path, data: str | Path | None) -> Iterator[Path]:
    """Yield the files of an input: itself, an ENVI pair, or all files of a store."""
    if path.is_dir():
        for folder, folders, names in os.walk(path):
            folders.sort()
            yield from (Path(folder, name) for name in sorted(names))
        return
    yield path
    known = io.FORMATS.get(path.suffix.lower())
    if known is None or known.name == "ENVI":
        from sigmacube.io.envi import pair

        yield from pair(path, None if data is None else Path(data))


class Hashed:
    """A source that digests all that is read of it, in order."""

    def __init__(self, source: Blocks) -> None:
        self._source, self.shape = source, source.shape
        self._digest = hashlib.blake2b(digest_size=20)

    def block(self, rows: slice, cols: slice) -> tuple[np.ndarray, np.ndarray | None]:
        """Read a block."""
        values, mask = self._source.block(rows, cols)
        self._digest.update(np.ascontiguousarray(values).view(np.uint8).data)
        if mask is not None:
            self._digest.update(np.ascontiguousarray(mask).view(np.uint8).data)
        return values, mask

    def hexdigest(self) -> str:
        """Return the digest of what has been read so far."""
        return self._digest.hexdigest()
