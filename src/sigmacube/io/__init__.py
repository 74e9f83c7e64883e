"""Files: `read` any cube, `write` a result, `read_result` it again.

One table maps suffixes to formats; each format lives in its own module, loaded on first use.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sigmacube.cube import Cube
    from sigmacube.io.source import Source
    from sigmacube.result import DenoisedCube

__all__ = ["read", "write", "read_result", "open_source", "output_files"]


@dataclass(frozen=True)
class _Format:
    """Where a format is read and written, as ``module:function``, and the options of its reader."""

    name: str
    reader: str
    options: tuple[str, ...] = ()
    writer: str | None = None


_ENVI = _Format("ENVI", "envi:open_source", ("data",), "rasters:ENVI")
_TIFF = _Format("GeoTIFF", "geotiff:open_source", (), "rasters:GEOTIFF")
_NETCDF = _Format("netCDF", "hdf:open_source", ("variable", "axes"), "labelled:NETCDF")
_HDF = _Format("HDF5", "hdf:open_source", ("variable", "axes"))

FORMATS: dict[str, _Format] = {
    ".hdr": _ENVI,
    ".img": _ENVI,
    ".dat": _Format("ENVI", "envi:open_source", ("data",)),
    ".raw": _Format("ENVI", "envi:open_source", ("data",)),
    ".bin": _Format("ENVI", "envi:open_source", ("data",)),
    ".bsq": _Format("ENVI", "envi:open_source", ("data",)),
    ".bil": _Format("ENVI", "envi:open_source", ("data",)),
    ".bip": _Format("ENVI", "envi:open_source", ("data",)),
    ".tif": _TIFF,
    ".tiff": _TIFF,
    ".nc": _NETCDF,
    ".nc4": _NETCDF,
    ".cdf": _HDF,
    ".h5": _HDF,
    ".hdf5": _HDF,
    ".hdf": _HDF,
    ".he5": _HDF,
    ".mat": _Format("MATLAB", "matlab:open_source", ("variable", "axes")),
    ".zarr": _Format("Zarr", "zarr:open_source", ("variable", "axes"), "labelled:ZARR"),
    ".npy": _Format("NumPy", "npy:open_npy", ("axes",)),
    ".npz": _Format("NumPy", "npy:open_npz", ("variable", "axes")),
}


def _load(where: str) -> Any:
    module, name = where.split(":")
    return getattr(import_module(f"sigmacube.io.{module}"), name)


def _suffixes(writable: bool = False) -> str:
    return ", ".join(s for s, f in FORMATS.items() if f.writer or not writable)


def _reader(path: Path) -> _Format:
    found = FORMATS.get(path.suffix.lower())
    if found is not None:
        return found
    # ENVI binaries may have any suffix, or none: the header beside them tells.
    if any(p.is_file() for p in (path.with_name(f"{path.name}.hdr"), path.with_suffix(".hdr"))):
        return _ENVI
    raise ValueError(
        f"{path}: unknown suffix {path.suffix!r}. It must be one of {_suffixes()}, "
        "or an ENVI file with its .hdr."
    )


def open_source(
    path: str | Path,
    *,
    variable: str | None = None,
    axes: str | Sequence[str] | None = None,
    bands: Any = None,
    scale: float | None = None,
    nodata: float | None = None,
    data: str | Path | None = None,
) -> Source:
    """Open a cube without reading it; the options are those of `read`.

    Returns
    -------
    Source
        Shape, type and metadata of the cube, and ``read_block(rows, cols)`` for a part of it.
    """
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file.")
    if path.is_dir() and path.suffix.lower() != ".zarr":
        raise IsADirectoryError(f"{path} is a folder. It must be a file or a .zarr store.")
    if path.is_file() and path.stat().st_size == 0:
        raise ValueError(f"{path}: empty file.")
    found = _reader(path)
    given = {"variable": variable, "axes": axes, "data": None if data is None else Path(data)}
    for option, value in given.items():
        if value is not None and option not in found.options:
            raise ValueError(f"Invalid option {option} for {path.name}: {found.name} has none.")
    source: Source = _load(found.reader)(path, **{key: given[key] for key in found.options})
    if scale is not None:
        source = source.with_scale(scale)
    if nodata is not None:
        source = source.with_nodata(nodata)
    return source if bands is None else source.select_bands(bands)


def read(
    path: str | Path,
    *,
    variable: str | None = None,
    axes: str | Sequence[str] | None = None,
    bands: Any = None,
    scale: float | None = None,
    nodata: float | None = None,
    data: str | Path | None = None,
) -> Cube:
    """Read a cube; the suffix decides the format.

    Values come in physical units. No-data values and bad bands are False in the mask. ENVI and
    .npy files without a scale factor are mapped, not read.

    Parameters
    ----------
    path
        ENVI (header or binary), GeoTIFF, netCDF, HDF5 (EMIT, PRISMA, plain), MATLAB, Zarr, .npy
        or .npz.
    variable
        Name of the array that holds the cube, where a file has several.
    axes
        Order of the stored axes, such as ``"band,row,col"`` or ``"brc"``, where it is not
        recognised.
    bands
        Bands to keep: indices from 0, a boolean per band, a slice, or text such as ``"0:50,60"``
        or ``"450nm:900nm"``.
    scale
        Factor that makes stored values physical, instead of the file's own; 1 for none.
    nodata
        Stored value that means no data, instead of the file's own.
    data
        Binary file of an ENVI header, where its name does not follow from the header's.

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> folder = Path(tempfile.mkdtemp())
    >>> np.save(folder / "cube.npy", np.zeros((4, 5, 3), dtype="i2"))
    >>> read(folder / "cube.npy", scale=0.0001).values.dtype
    dtype('float32')
    """
    source = open_source(
        path, variable=variable, axes=axes, bands=bands, scale=scale, nodata=nodata, data=data
    )
    return source.read()


def _writer(path: Path) -> Any:
    found = FORMATS.get(path.suffix.lower())
    if found is None or found.writer is None:
        raise ValueError(
            f"{path}: results cannot be written with suffix {path.suffix!r}. "
            f"It must be one of {_suffixes(writable=True)}."
        )
    return _load(found.writer)


def output_files(
    path: str | Path, *, uncertainty: bool = True, rejected: bool = False, overwrite: bool = False
) -> list[Path]:
    """Return the files that `write` will make, having checked that they can be made.

    Parameters
    ----------
    path
        Output as given to `write`.
    uncertainty, rejected
        Whether the result has a standard deviation and a map of rejected elements.
    overwrite
        Whether existing files may be replaced.
    """
    from sigmacube.io.atomic import check_output

    path = Path(path)
    finals: list[Path] = _writer(path).files(path, uncertainty=uncertainty, rejected=rejected)
    check_output(finals, overwrite=overwrite)
    return finals


def write(
    result: DenoisedCube,
    path: str | Path,
    *,
    overwrite: bool = False,
    dtype: str = "float32",
) -> Path:
    """Write a result; the suffix decides the format.

    Everything is written under temporary names and renamed when it is whole.

    Parameters
    ----------
    result
        What `sigmacube.denoise` returned.
    path
        ``.nc`` or ``.zarr`` (CF-1.11 with uncertainty), ``.hdr`` or ``.img`` (ENVI: ``name`` and
        ``name_uncert``), ``.tif`` (``name.tif`` and ``name_uncert.tif``).
    overwrite
        Whether an existing output may be replaced.
    dtype
        ``"float32"`` or ``"float64"``.

    Returns
    -------
    Path
        ``path``.
    """
    from sigmacube.io.atomic import staged

    path = Path(path)
    if dtype not in ("float32", "float64"):
        raise ValueError(f"Invalid dtype {dtype!r}. It must be 'float32' or 'float64'.")
    writer = _writer(path)
    finals = writer.files(
        path, uncertainty=result.std is not None, rejected=result.rejected is not None
    )
    every = writer.files(path, uncertainty=True, rejected=True)
    stale = [file for file in every if file not in finals]
    with staged(finals, overwrite=overwrite, stale=stale) as temporary:
        writer.write(result, dict(zip(finals, temporary, strict=True)), path, dtype)
    return path


def read_result(path: str | Path) -> DenoisedCube:
    """Read a result that `write` made.

    Parameters
    ----------
    path
        As it was given to `write`.
    """
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file.")
    reader: Callable[[Path], DenoisedCube] = _writer(path).read
    try:
        return reader(path)
    except ValueError as error:
        text = str(error)
        raise ValueError(text if text.startswith(str(path.parent)) else f"{path}: {text}") from None
