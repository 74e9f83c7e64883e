"""Inputs watched for changes: a run over tiles must not mix two of them."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from sigmacube.io.source import Source


def stamp(source: Source) -> str | None:
    """Return what changes when a source is written to: sizes and times of its files.

    None where it lies at an address.
    """
    if source.address is not None:
        return None
    text = hashlib.blake2b(digest_size=16)
    for path in _every_file(source.files or (source.path,)):
        found = os.stat(path)
        text.update(f"{path.name} {found.st_size} {found.st_mtime_ns}\n".encode())
    return text.hexdigest()


def check_unchanged(source: Source, former: str | None) -> None:
    """Raise an error where a source is gone or has changed since its stamp was ``former``."""
    if former is None:
        return
    try:
        now = stamp(source)
    except FileNotFoundError:
        raise removed(source.path) from None
    if now != former:
        raise ValueError(
            f"{source.path}: changed during the run. Tiles of two different inputs must not be "
            "mixed; start anew with --overwrite, or --resume with the former file."
        )


def removed(place: str | Path) -> FileNotFoundError:
    """Return the error of an input that is gone."""
    return FileNotFoundError(
        f"{place}: removed during the run. With the same file back in place the run goes on with "
        "--resume."
    )


def digesting(source: Source, digest: Any) -> Any:
    """Return a cube that updates a digest of `hashlib` with all that is read of it, in order."""

    def digested(rows: slice, cols: slice) -> tuple[np.ndarray, np.ndarray | None]:
        values, mask = source.block(rows, cols)
        for array in (values, mask):
            if array is not None:
                digest.update(np.ascontiguousarray(array).view(np.uint8).data)
        return values, mask

    return SimpleNamespace(shape=source.shape, block=digested)


def _every_file(paths: tuple[Path, ...]) -> Iterator[Path]:
    """Yield files, and all files of folders."""
    for path in paths:
        if not path.is_dir():
            yield path
            continue
        for folder, folders, names in os.walk(path):
            folders.sort()
            yield from (Path(folder, name) for name in sorted(names))
