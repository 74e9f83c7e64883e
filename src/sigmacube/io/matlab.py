"""MATLAB files: v4 to v7 through SciPy, v7.3 (HDF5) through h5py."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np

from sigmacube.io.source import Source
from sigmacube.io.variables import Variable, open_variables

__all__ = ["open_source"]

_TYPES = {
    "double": "f8",
    "single": "f4",
    "int8": "i1",
    "int16": "i2",
    "int32": "i4",
    "int64": "i8",
    "uint8": "u1",
    "uint16": "u2",
    "uint32": "u4",
    "uint64": "u8",
    "logical": "?",
}


def open_source(
    path: Path, *, variable: str | None = None, axes: str | Sequence[str] | None = None
) -> Source:
    """Open the cube of a MATLAB file; its axes as MATLAB shows them are (row, col, band)."""
    import h5py

    variables = _hdf_variables(path) if h5py.is_hdf5(path) else _classic_variables(path)
    return open_variables(path, variables, variable=variable, axes=axes)


def _hdf_variables(path: Path) -> list[Variable]:
    """Return the arrays of a v7.3 file, with MATLAB's axes: HDF5 stores them reversed."""
    from sigmacube.io import hdf

    _, variables = hdf.contents(path)
    return [_reversed(v) for v in variables if not v.name.startswith("#")]


def _reversed(v: Variable) -> Variable:
    load = v.load
    return Variable(
        v.name, v.shape[::-1], v.dtype, lambda key: np.asarray(load(key[::-1])).transpose()
    )


def _classic_variables(path: Path) -> list[Variable]:
    from scipy.io import loadmat, whosmat
    from scipy.io.matlab import MatReadError

    # SciPy raises whatever the damaged bytes lead to.
    try:
        listed = whosmat(path)
    except (MatReadError, ValueError, TypeError, KeyError, OSError, OverflowError) as error:
        raise ValueError(f"{path}: not readable as a MATLAB file ({_short(error)}).") from None

    @cache
    def whole(name: str) -> np.ndarray:
        try:
            return np.asarray(loadmat(path, variable_names=[name])[name])
        except Exception as error:
            raise ValueError(f"{path}: {name} cannot be read ({_short(error)}).") from None

    def variable(name: str, shape: tuple[int, ...], kind: str) -> Variable:
        dtype = np.dtype(_TYPES.get(kind, "O"))
        # MATLAB marks complex numbers per array, not by class: only the values tell.
        if len(shape) == 3 and dtype.kind == "f":
            dtype = whole(name).dtype
        return Variable(name, tuple(shape), dtype, lambda key: whole(name)[key])

    return [variable(*entry) for entry in listed]


def _short(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
