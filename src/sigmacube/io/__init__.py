"""Files: `read` any cube, `write` a result, `read_result` it again.

One table maps suffixes to formats; each format lives in its own module, loaded on first use.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sigmacube.io.places import address_of, local_path

if TYPE_CHECKING:
    import numpy as np

    from sigmacube.cube import Cube
    from sigmacube.error_correlation import ErrorCorrelation
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
_NETCDF = _Format("netCDF", "hdf:open_source", ("variable", "axes", "external"), "cf_files:NETCDF")
_HDF = _Format("HDF5", "hdf:open_source", ("variable", "axes", "external"))

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
    ".zarr": _Format("Zarr", "zarr:open_source", ("variable", "axes"), "cf_files:ZARR"),
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
    mask: np.ndarray | None = None,
    external: bool | None = None,
) -> Source:
    """Open a cube without reading it; the options are those of `read`.

    ``path`` may also be the address of a Zarr store that fsspec knows. ``mask`` (row, col) or
    (row, col, band) is False where values are not to be used, whatever the file says.

    Returns
    -------
    Source
        Shape, type and metadata of the cube, and ``block(rows, cols)`` for a part of it.
    """
    from sigmacube.io.untrusted import check_plain, guarded, reading

    address = address_of(path)
    path = local_path(path)
    if address is not None and path.suffix.lower() != ".zarr":
        raise ValueError(f"{address}: only Zarr stores (.zarr) are read from an address.")
    if address is None:
        check_plain(path)
        if not path.exists():
            raise FileNotFoundError(f"{path}: no such file.")
    if path.is_dir() and path.suffix.lower() != ".zarr":
        raise IsADirectoryError(f"{path} is a folder. It must be a file or a .zarr store.")
    if path.is_file() and path.stat().st_size == 0:
        raise ValueError(f"{path}: empty file.")
    found = _reader(path)
    given = {
        "variable": variable,
        "axes": axes,
        "data": None if data is None else Path(data),
        "external": external,
    }
    for option, value in given.items():
        if value is not None and option not in found.options:
            raise ValueError(f"Invalid option {option} for {path.name}: {found.name} has none.")
    chosen = {key: given[key] for key in found.options}
    if address is not None:
        chosen["address"] = address
    with reading(path):
        source: Source = _load(found.reader)(path, **chosen)
    source = replace(source, address=address, load=guarded(path, source.load))
    if scale is not None:
        source = source.with_scale(scale)
    if nodata is not None:
        source = source.with_nodata(nodata)
    source = source if bands is None else source.select_bands(bands)
    return source if mask is None else source.with_mask(mask)


def read(
    path: str | Path,
    *,
    variable: str | None = None,
    axes: str | Sequence[str] | None = None,
    bands: Any = None,
    scale: float | None = None,
    nodata: float | None = None,
    data: str | Path | None = None,
    external: bool | None = None,
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
    external
        Whether an HDF5 file may have its values read from other files that it names (external and
        virtual storage). A file of a stranger could name any file of this machine.

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> folder = Path(tempfile.mkdtemp())
    >>> np.save(folder / "cube.npy", np.zeros((4, 5, 3), dtype="i2"))
    >>> read(folder / "cube.npy", scale=0.0001).values.dtype
    dtype('float32')
    """
    source = open_source(
        path,
        variable=variable,
        axes=axes,
        bands=bands,
        scale=scale,
        nodata=nodata,
        data=data,
        external=external,
    )
    return source.read()


def writer_of(path: Path, refusal: str = "results cannot be written with suffix {suffix}") -> Any:
    """Return what writes and opens results with the suffix of a path."""
    found = FORMATS.get(path.suffix.lower())
    if found is None or found.writer is None:
        raise ValueError(
            f"{path}: {refusal.format(suffix=repr(path.suffix))}. "
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

    path = local_path(path)
    finals: list[Path] = writer_of(path).files(path, uncertainty=uncertainty, rejected=rejected)
    check_output(finals, overwrite=overwrite)
    return finals


def check_keeps_factors(path: str | Path) -> None:
    """Refuse an output whose format cannot hold window factors."""
    if not writer_of(Path(path)).keeps_factors:
        raise ValueError(f"{path}: only .nc and .zarr can keep the window factors.")


def states_correlation(path: str | Path) -> bool:
    """Tell whether the format of an output has a place for the error correlation."""
    return bool(writer_of(Path(path)).states_correlation)


def write(
    result: DenoisedCube,
    path: str | Path,
    *,
    overwrite: bool = False,
    dtype: str = "float32",
    keep_factors: bool = False,
    correlation: ErrorCorrelation | None = None,
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
    keep_factors
        Whether to add what products need (.nc and .zarr only);
        `sigmacube.io.error_models.factor_bytes` tells the size.
    correlation
        What to state about the correlation of errors (.nc and .zarr only), from
        `DenoisedCube.error_correlation`; `DenoisedCube.save` does that.

    Returns
    -------
    Path
        ``path``.
    """
    from sigmacube.io.atomic import staged

    path = local_path(path)
    if dtype not in ("float32", "float64"):
        raise ValueError(f"Invalid dtype {dtype!r}. It must be 'float32' or 'float64'.")
    writer = writer_of(path)
    extra: dict[str, Any] = {}
    if keep_factors:
        check_keeps_factors(path)
        extra["keep_factors"] = True
    if writer.states_correlation:
        extra["correlation"] = correlation
    finals = writer.files(
        path, uncertainty=result.std is not None, rejected=result.rejected is not None
    )
    every = writer.files(path, uncertainty=True, rejected=True)
    stale = [file for file in every if file not in finals]
    with staged(finals, overwrite=overwrite, stale=stale) as temporary:
        writer.write(result, dict(zip(finals, temporary, strict=True)), path, dtype, **extra)
    return path


def read_result(path: str | Path) -> DenoisedCube:
    """Read a result that `write` made.

    Parameters
    ----------
    path
        As it was given to `write`.
    """
    from sigmacube.io.result_file import open_result

    with open_result(path) as opened:
        return opened.load()
