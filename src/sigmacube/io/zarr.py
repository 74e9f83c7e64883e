"""Zarr stores, formats 2 and 3; needs the ``scale`` extra."""

from __future__ import annotations

import base64
import struct
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from sigmacube.io.places import reason_of
from sigmacube.io.source import Source
from sigmacube.io.variables import Variable, open_variables


def library() -> ModuleType:
    """Return the zarr package, or say how to install it."""
    try:
        import zarr
    except ImportError:
        raise ValueError(
            "Zarr needs the zarr package, version 3 or later. "
            "It is installed with: pip install 'sigmacube[scale]'"
        ) from None
    if int(zarr.__version__.split(".")[0]) < 3:
        raise ValueError(
            f"Invalid zarr version {zarr.__version__}. It must be 3 or later: "
            "pip install 'sigmacube[scale]'"
        )
    return zarr


def local_store(path: Path) -> Any:
    """Return a store on this machine, to be read; its pipes and devices are refused."""
    library()
    from sigmacube.io.plain_store import PlainStore

    return PlainStore(path, read_only=True)


def open_source(
    path: Path,
    *,
    variable: str | None = None,
    axes: str | Sequence[str] | None = None,
    address: str | None = None,
) -> Source:
    """Open the cube of a Zarr group or array; blocks are read from the chunks they touch.

    ``address`` is where the store lies if not on a local disk, such as ``s3://bucket/cube.zarr``.
    """
    zarr = library()
    try:
        root = zarr.open(address or local_store(path), mode="r")
        attrs = dict(root.attrs)
        if isinstance(root, zarr.Array):
            arrays: list[tuple[str, Any]] = [(path.stem, root)]
            attrs = {}
        else:
            arrays = [item for item in root.members(max_depth=None) if hasattr(item[1], "shape")]
    except Exception as error:  # each damaged part of a store raises its own kind
        raise ValueError(
            f"{address or path}: not readable as a Zarr store ({reason_of(error)})."
        ) from None
    variables = [_variable(path, name, array) for name, array in arrays]
    return open_variables(path, variables, attrs=attrs, variable=variable, axes=axes)


def _variable(path: Path, name: str, array: Any) -> Variable:
    attrs = dict(array.attrs)
    dims = attrs.pop("_ARRAY_DIMENSIONS", None) or getattr(array.metadata, "dimension_names", None)
    dtype = np.dtype(array.dtype)
    # Format 2 keeps the fill value outside the attributes; 0 is what arrays have by default.
    fill = array.fill_value if array.metadata.zarr_format == 2 else None
    if fill is not None and "_FillValue" not in attrs and fill != 0:
        attrs["_FillValue"] = fill
    if isinstance(attrs.get("_FillValue"), str):
        attrs["_FillValue"] = _decoded(attrs["_FillValue"])

    def load(key: tuple[slice, ...]) -> np.ndarray:
        try:
            return np.asarray(array[key])
        except Exception as error:  # codecs raise their own kinds
            raise ValueError(f"{path}: {name} cannot be read ({reason_of(error)}).") from None

    named = tuple(dims) if isinstance(dims, list | tuple) else ()
    known = tuple(dim if isinstance(dim, str) else None for dim in named)
    return Variable(name, tuple(array.shape), dtype, load, known, attrs)


def _decoded(text: str) -> float | str:
    """Return a fill value that xarray stored as the eight bytes of a double; others as they are."""
    try:
        return float(text)
    except ValueError:
        pass
    try:
        return float(struct.unpack("<d", base64.standard_b64decode(text))[0])
    except (ValueError, struct.error):
        return text
