"""NumPy files: .npy (mapped, not read) and .npz."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np

from sigmacube.io.places import check_plain, reason_of
from sigmacube.io.source import Source
from sigmacube.io.variables import Variable, open_variables


def read_array(path: Path) -> np.ndarray:
    """Read the numbers of a small .npy file: a mask, labels, noise."""
    check_plain(path)
    try:
        values = np.load(path, allow_pickle=False)
    except Exception as error:  # NumPy raises whatever the damaged bytes lead to
        raise ValueError(f"{path}: {_reason(error)}") from None
    if not isinstance(values, np.ndarray) or values.dtype.kind not in "biuf":
        raise ValueError(f"{path}: no array of numbers.")
    return values


def open_npy(path: Path, *, axes: str | Sequence[str] | None = None) -> Source:
    """Open a .npy file; axes (row, col, band) unless told otherwise."""
    try:
        stored = np.load(path, mmap_mode="r", allow_pickle=False)
    except Exception as error:  # NumPy raises whatever the damaged bytes lead to
        raise ValueError(f"{path}: {_reason(error)}") from None
    if not isinstance(stored, np.ndarray):
        raise ValueError(f"{path}: no .npy file but an archive. Its suffix must be .npz.")

    def load(key: tuple[slice, ...]) -> np.ndarray:
        # Mapped anew: what a map has touched counts as memory until it is closed.
        return np.asanyarray(np.load(path, mmap_mode="r", allow_pickle=False)[key])

    variable = Variable(path.name, stored.shape, stored.dtype, load)
    source = open_variables(path, [variable], variable=path.name, axes=axes)
    metadata = {key: value for key, value in source.metadata.items() if key != "name"}
    return replace(source, metadata=metadata, lazy=True)


def open_npz(
    path: Path, *, variable: str | None = None, axes: str | Sequence[str] | None = None
) -> Source:
    """Open the cube of a .npz archive, with a vector called ``wavelengths`` where there is one."""
    variables = []
    try:
        with zipfile.ZipFile(path) as archive:
            for member in archive.namelist():
                if member.endswith(".npy"):
                    variables.append(_member(path, archive, member))
    except Exception as error:  # as above
        raise ValueError(f"{path}: {_reason(error)}") from None
    return open_variables(path, variables, variable=variable, axes=axes)


def _member(path: Path, archive: zipfile.ZipFile, member: str) -> Variable:
    """Return one array of an archive from its header alone."""
    with archive.open(member) as file:
        version = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0
        if version != (1, 0):
            read = np.lib.format.read_array_header_2_0
        shape, _, dtype = read(file)
    name = member.removesuffix(".npy")

    @cache
    def whole() -> np.ndarray:
        try:
            with np.load(path, allow_pickle=False) as content:
                return np.asarray(content[name])
        except Exception as error:
            raise ValueError(f"{path}: {name}: {_reason(error)}") from None

    return Variable(name, shape, dtype, lambda key: whole()[key])


def _reason(error: Exception) -> str:
    if "pickle" in str(error).lower():
        return "it holds pickled Python objects, which are never loaded. It must hold numbers."
    return f"not readable as a NumPy file ({reason_of(error)})."
