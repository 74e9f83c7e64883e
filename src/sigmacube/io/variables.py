"""Files of several named arrays: which one is the cube, which axis is which, what describes it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from sigmacube.io import wavelengths as spectral
from sigmacube.io.crs import from_grid_mapping
from sigmacube.io.metadata import from_json, merged
from sigmacube.io.source import Source

#: Endings of variables that accompany a cube.
_COMPANIONS = ("uncertainty", "uncert", "_unc", "_std", "_sigma", "stderr", "standard_error",
               "rejected")  # fmt: skip


@dataclass(frozen=True, eq=False)
class Variable:
    """An array in a file, not read yet."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype
    load: Callable[[tuple[slice, ...]], np.ndarray]
    dims: tuple[str | None, ...] = ()
    attrs: Mapping[str, Any] = field(default_factory=dict)

    @property
    def base(self) -> str:
        """The name without its groups, in lower case."""
        return self.name.rsplit("/", 1)[-1].lower()

    def all(self) -> np.ndarray:
        """Read the whole array."""
        return self.load((slice(None),) * len(self.shape))


def open_variables(
    path: Path,
    variables: Sequence[Variable],
    *,
    attrs: Mapping[str, Any] | None = None,
    variable: str | None = None,
    axes: str | Sequence[str] | None = None,
) -> Source:
    """Return the source of the cube among ``variables``."""
    attrs = attrs or {}
    try:
        cube = choose(path, variables, variable)
        return _source(path, cube, variables, attrs, axes)
    except ValueError as error:
        if str(error).startswith(f"{path}:"):
            raise
        raise ValueError(f"{path}: {error}") from None


def _describe(variables: Sequence[Variable]) -> str:
    largest_first = sorted(
        variables, key=lambda v: (-len(v.shape), -np.prod(v.shape, dtype=object))
    )
    found = [f"{v.name} {'x'.join(map(str, v.shape)) or '-'} {v.dtype}" for v in largest_first]
    shown = ", ".join(found[:8])
    return (shown or "nothing") + (f" and {len(found) - 8} more" if len(found) > 8 else "")


def choose(path: Path, variables: Sequence[Variable], name: str | None = None) -> Variable:
    """Return the variable that holds the cube: the named one, or the largest that can be one."""
    if name is not None:
        wanted = name.strip("/")
        exact = [v for v in variables if v.name.strip("/") == wanted]
        found = exact or [v for v in variables if v.base == wanted.lower()]
        if len(found) != 1:
            rule = "It must be one of" if not found else "More than one matches it of"
            raise ValueError(f"{path}: no variable {name!r}. {rule} {_describe(variables)}.")
        _check_cube(path, found[0])
        return found[0]
    attached = {
        word.lower()
        for v in variables
        for word in str(v.attrs.get("ancillary_variables", "")).split()
    }
    candidates = [
        v
        for v in variables
        if len(v.shape) == 3
        and v.dtype.kind in "iuf"
        and v.base not in attached
        and not v.base.endswith(_COMPANIONS)
        and min(v.shape) > 0
    ]
    if not candidates:
        cubic = [v for v in variables if len(v.shape) == 3]
        if len(cubic) == 1:
            _check_cube(path, cubic[0])
        raise ValueError(
            f"{path}: no cube found. There must be a numeric array of three dimensions; "
            f"found {_describe(variables)}."
        )
    size = max(np.prod(v.shape, dtype=object) for v in candidates)
    largest = [v for v in candidates if np.prod(v.shape, dtype=object) == size]
    if len(largest) > 1:
        raise ValueError(
            f"{path}: {len(largest)} arrays could be the cube: {_describe(largest)}. "
            "One must be named with variable (--variable)."
        )
    return largest[0]


def _check_cube(path: Path, cube: Variable) -> None:
    if len(cube.shape) != 3:
        named = "it" if cube.name == path.name else cube.name
        raise ValueError(
            f"{path}: {named} has {len(cube.shape)} dimensions, shape {cube.shape}. "
            "A cube must have three."
        )
    if cube.dtype.kind not in "iuf":
        raise ValueError(
            f"{path}: {cube.name} holds values of type {cube.dtype}. "
            "They must be real integers or floats."
        )


def _find(
    variables: Sequence[Variable], names: Sequence[str], sizes: Sequence[int]
) -> Variable | None:
    """Return the vector called one of ``names`` whose length is one of ``sizes``."""
    for name in names:
        for v in variables:
            squeezed = [size for size in v.shape if size != 1]
            if v.base == name and len(squeezed) == 1 and squeezed[0] in sizes:
                return v
    return None


def _vector(v: Variable) -> np.ndarray:
    return np.asarray(v.all()).reshape(-1)


def _axes(
    cube: Variable, centres: Variable | None, axes: str | Sequence[str] | None
) -> tuple[tuple[int, int, int], str | None]:
    if axes is not None:
        return parse_axes(axes), None
    named = axes_from_names(cube.dims) if len(cube.dims) == 3 else None
    if named is not None:
        return named, None
    count = None if centres is None else max(centres.shape)
    order, note, doubtful = axes_from_shape(cube.shape, count)
    if doubtful:
        warnings.warn(f"{cube.name}: {note}.", stacklevel=5)
    return order, note


def _source(
    path: Path,
    cube: Variable,
    variables: Sequence[Variable],
    attrs: Mapping[str, Any],
    axes: str | Sequence[str] | None,
) -> Source:
    centres = _find(variables, spectral.NAMES, cube.shape)
    order, note = _axes(cube, centres, axes)
    bands = cube.shape[order[2]]
    notes = [note] if note else []
    metadata: dict[str, Any] = {"source": path.name, "name": cube.name.rsplit("/", 1)[-1]}
    for key in ("units", "long_name", "standard_name"):
        if isinstance(cube.attrs.get(key), str):
            metadata[key] = cube.attrs[key]
    extra = _per_band(variables, bands, metadata, notes)
    extra |= _scaling(cube, metadata)
    _place(cube, variables, attrs, order, metadata)
    for key in ("time_coverage_start", "acquisition_time", "start_time", "Product_StartTime"):
        if isinstance(attrs.get(key), str):
            metadata.setdefault("acquisition_time", attrs[key])
    if notes:
        metadata["notes"] = notes
    if isinstance(attrs.get("sigmacube_metadata"), str):
        metadata = merged(metadata, from_json(attrs["sigmacube_metadata"]), bands)
        metadata["denoised"] = from_json(str(attrs.get("sigmacube_settings", "{}")))
    return Source(
        path=path,
        shape=(cube.shape[order[0]], cube.shape[order[1]], bands),
        stored_dtype=cube.dtype,
        load=cube_loader(cube, order),
        metadata=metadata,
        **extra,
    )


def cube_loader(
    cube: Variable, order: tuple[int, int, int]
) -> Callable[[slice, slice], np.ndarray]:
    """Return what reads blocks of rows and columns; ``order`` are the axes row, col and band."""

    def load(rows: slice, cols: slice) -> np.ndarray:
        key = [slice(None)] * 3
        key[order[0]], key[order[1]] = rows, cols
        return np.asanyarray(cube.load(tuple(key))).transpose(order)

    return load


def _per_band(
    variables: Sequence[Variable], bands: int, metadata: dict[str, Any], notes: list[str]
) -> dict[str, Any]:
    extra: dict[str, Any] = {}
    centres = _find(variables, spectral.NAMES, [bands])
    widths = _find(variables, spectral.FWHM_NAMES, [bands])
    good = _find(variables, spectral.GOOD_NAMES, [bands])
    if centres is not None and centres.dtype.kind in "iuf":
        units = centres.attrs.get("units")
        units = units if isinstance(units, str) else None
        if units:
            metadata["wavelength_units"] = units
        found, fwhm, note = spectral.to_nanometres(
            list(_vector(centres)), units, None if widths is None else list(_vector(widths))
        )
        extra["wavelengths"] = found
        if fwhm is not None:
            metadata["fwhm"] = fwhm
        notes += [note] if note else []
    if good is not None:
        flags = _vector(good) != 0
        metadata["good_bands"] = flags.tolist()
        extra["good_bands"] = flags
    return extra


def number_in(attrs: Mapping[str, Any], key: str, default: float | None = None) -> float:
    """Return an attribute as a number; without a default it must be there.

    Examples
    --------
    >>> number_in({"scale_factor": np.array([0.5])}, "scale_factor")
    0.5
    """
    if key not in attrs:
        if default is not None:
            return default
        raise ValueError(f"the attribute {key} is missing. It must be a number.")
    try:
        values = np.unique([float(value) for value in np.asarray(attrs[key]).reshape(-1)])
    except (TypeError, ValueError, OverflowError):
        values = np.zeros(0)
    if len(values) != 1:
        raise ValueError(f"the attribute {key} is {attrs[key]!r:.60}. It must be a number.")
    return float(values[0])


def _scaling(cube: Variable, metadata: dict[str, Any]) -> dict[str, Any]:
    extra: dict[str, Any] = {}
    for key in ("_FillValue", "missing_value"):
        if key in cube.attrs:
            metadata["nodata"] = extra["nodata"] = number_in(cube.attrs, key)
            break
    for key, name, neutral in (("scale_factor", "scale", 1.0), ("add_offset", "offset", 0.0)):
        if key in cube.attrs:
            metadata[key] = number_in(cube.attrs, key)
            if metadata[key] != neutral:
                extra[name] = metadata[key]
    return extra


def _place(
    cube: Variable,
    variables: Sequence[Variable],
    attrs: Mapping[str, Any],
    order: tuple[int, int, int],
    metadata: dict[str, Any],
) -> None:
    """Add the coordinate system and the transform: from the grid mapping, else from x and y."""
    by_name = {v.base: v for v in variables}
    mapping = by_name.get(str(cube.attrs.get("grid_mapping", "")).lower())
    if mapping is not None:
        metadata |= from_grid_mapping(mapping.attrs)
    if "transform" in metadata or len(cube.dims) != 3:
        return
    row, col = (by_name.get((cube.dims[axis] or "").lower()) for axis in order[:2])
    if row is None or col is None or row.base not in ROW_NAMES or col.base not in COL_NAMES:
        return
    y, x = _even(row), _even(col)
    if y is not None and x is not None and not _pixel_index(row, y) and not _pixel_index(col, x):
        metadata["transform"] = [x[1], 0.0, x[0] - x[1] / 2, 0.0, y[1], y[0] - y[1] / 2]


def _even(v: Variable) -> tuple[float, float] | None:
    """Return (first, step) of evenly spaced coordinates, else None."""
    if len(v.shape) != 1 or v.shape[0] < 2 or v.dtype.kind not in "iuf":
        return None
    values = np.asarray(v.all(), dtype=float)
    steps = np.diff(values)
    # Coordinates are often float32: their spacing is even to that precision.
    if not np.isfinite(steps).all() or steps[0] == 0:
        return None
    tolerance = 4 * np.finfo(np.float32).eps * np.abs(values).max() + 1e-6 * abs(steps[0])
    mean = (values[-1] - values[0]) / (len(values) - 1)
    if np.abs(steps - mean).max() > tolerance:
        return None
    return float(values[0]), float(mean)


def _pixel_index(v: Variable, first_step: tuple[float, float]) -> bool:
    return first_step == (0.0, 1.0) and "standard_name" not in v.attrs


BAND_NAMES = frozenset((
    "band", "bands", "wavelength", "wavelengths", "channel", "channels", "spectral", "spectrum",
    "lambda", "wl", "wvl", "nbands", "n_bands", "wave", "spectral_band", "spectral_bands", "b",
))  # fmt: skip
ROW_NAMES = frozenset((
    "y", "row", "rows", "line", "lines", "lat", "latitude", "downtrack", "down_track",
    "along_track", "northing", "nrows", "height", "r",
))  # fmt: skip
COL_NAMES = frozenset((
    "x", "col", "cols", "column", "columns", "sample", "samples", "lon", "longitude", "crosstrack",
    "cross_track", "across_track", "easting", "ncols", "width", "c",
))  # fmt: skip
_LETTERS = {"r": "row", "c": "col", "b": "band"}


def parse_axes(axes: str | Sequence[str]) -> tuple[int, int, int]:
    """Return the positions of (row, col, band) in an array whose axes are named in ``axes``.

    Parameters
    ----------
    axes
        Three names in the order of the array: ``"band,row,col"``, ``("band", "row", "col")``, or
        the letters ``"brc"``.

    Examples
    --------
    >>> parse_axes("brc")
    (1, 2, 0)
    >>> parse_axes(("row", "col", "band"))
    (0, 1, 2)
    """
    if isinstance(axes, str):
        names = axes.replace(" ", "").lower().split(",")
        names = list(names[0]) if len(names) == 1 else names
    else:
        names = [str(name).strip().lower() for name in axes]
    names = [_LETTERS.get(name, name) for name in names]
    if sorted(names) != ["band", "col", "row"]:
        raise ValueError(
            f"Invalid axes {axes!r}. They must name row, col and band once each, in the order of "
            "the array, such as 'band,row,col' or 'brc'."
        )
    return names.index("row"), names.index("col"), names.index("band")


def axes_from_names(names: Sequence[str | None]) -> tuple[int, int, int] | None:
    """Return the positions of (row, col, band) by dimension name, or None without a band name.

    Examples
    --------
    >>> axes_from_names(["downtrack", "crosstrack", "bands"])
    (0, 1, 2)
    >>> axes_from_names(["wavelength", "y", "x"])
    (1, 2, 0)
    >>> axes_from_names(["dim_0", "dim_1", "dim_2"]) is None
    True
    """
    lower = [(name or "").lower() for name in names]
    bands = [i for i, name in enumerate(lower) if name in BAND_NAMES]
    if len(lower) != 3 or len(bands) != 1:
        return None
    first, second = (i for i in range(3) if i != bands[0])
    if lower[first] in COL_NAMES and lower[second] in ROW_NAMES:
        first, second = second, first
    return first, second, bands[0]


def axes_from_shape(
    shape: Sequence[int], n_wavelengths: int | None = None
) -> tuple[tuple[int, int, int], str | None, bool]:
    """Return the positions of (row, col, band) for unnamed axes, with what was assumed.

    A wavelength list as long as exactly one axis settles it. Otherwise the last axis is taken for
    the bands, which is doubtful when the other two differ and one of them equals the last.

    Returns
    -------
    axes, note, doubtful
        The note is None where nothing had to be assumed.

    Examples
    --------
    >>> axes_from_shape((224, 145, 140), n_wavelengths=224)
    ((1, 2, 0), None, False)
    >>> axes_from_shape((145, 140, 224))[0]
    (0, 1, 2)
    >>> axes_from_shape((224, 145, 145))[2]
    True
    """
    matches = [i for i, size in enumerate(shape) if size == n_wavelengths]
    if len(matches) == 1:
        first, second = (i for i in range(3) if i != matches[0])
        return (first, second, matches[0]), None, False
    note = (
        f"axes {' x '.join(map(str, shape))} taken as (row, col, band); "
        "another order is set with axes (--axes), such as 'band,row,col'"
    )
    doubtful = (shape[0] == shape[2]) != (shape[1] == shape[2])
    return (0, 1, 2), note, doubtful
