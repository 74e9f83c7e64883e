"""Files: `read` any cube, `write` a result, `read_result` it again.

One table maps suffixes to formats; each format lives in its own module, loaded on first use.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sigmacube.core.tables import load
from sigmacube.io.places import address_of, local_path, suffix_of

if TYPE_CHECKING:
    import numpy as np

    from sigmacube.cube import Cube
    from sigmacube.error_correlation import ErrorCorrelation
    from sigmacube.io.source import Source
    from sigmacube.result import DenoisedCube

__all__ = ["FORMATS", "Format", "read", "write", "read_result", "open_source", "output_files"]


@dataclass(frozen=True)
class Format:
    """Where a format is read and written, see `load`, and the options of its reader."""

    name: str
    reader: Any
    options: tuple[str, ...] = ()
    writer: Any = None
    remote: bool = False
    """Whether it is read from an address too."""


_ENVI = Format("ENVI", ".envi:open_source", ("data",), ".rasters:ENVI")
_TIFF = Format("GeoTIFF", ".geotiff:open_source", (), ".rasters:GEOTIFF", remote=True)
_ARRAYS = ("variable", "axes", "join", "external")
_NETCDF = Format("netCDF", ".hdf:open_source", _ARRAYS, ".cf_files:NETCDF", remote=True)
_ZARR = Format("Zarr", ".zarr:open_source", ("variable", "axes"), ".cf_files:ZARR", remote=True)
_HDF = Format("HDF5", ".hdf:open_source", _ARRAYS, remote=True)
_PRODUCT = Format("a product", ".sensors:open_product", ("variable", "join"))
_BESIDE = Format("a product", ".sensors:open_beside", ("variable", "join"))

FORMATS: dict[str, Format] = {
    ".hdr": _ENVI,
    ".img": _ENVI,
    **dict.fromkeys((".dat", ".raw", ".bin", ".bsq", ".bil", ".bip"), replace(_ENVI, writer=None)),
    ".tif": _TIFF,
    ".tiff": _TIFF,
    ".vrt": Format("VRT", ".geotiff:open_source", ("external",)),
    ".xml": _PRODUCT,
    ".zip": _PRODUCT,
    ".nc": _NETCDF,
    ".nc4": _NETCDF,
    ".cdf": _HDF,
    ".h5": _HDF,
    ".hdf5": _HDF,
    ".hdf": _HDF,
    ".he5": _HDF,
    ".mat": Format("MATLAB", ".matlab:open_source", ("variable", "axes")),
    ".zarr": _ZARR,
    ".npy": Format("NumPy", ".npy:open_npy", ("axes",)),
    ".npz": Format("NumPy", ".npy:open_npz", ("variable", "axes")),
}


def _suffixes(writable: bool = False) -> str:
    return ", ".join(s for s, f in FORMATS.items() if f.writer or not writable)


def _reader(path: Path) -> Format:
    if path.is_dir() and path.suffix.lower() != ".zarr":
        return _PRODUCT
    found = FORMATS.get(path.suffix.lower())
    if found is _TIFF and path.is_file():
        from sigmacube.io.sensors import product_beside

        return _BESIDE if product_beside(path) is not None else _TIFF
    if found is not None:
        return found
    # ENVI binaries may have any suffix, or none: the header beside them tells.
    if any(p.is_file() for p in (path.with_name(f"{path.name}.hdr"), path.with_suffix(".hdr"))):
        return _ENVI
    raise ValueError(
        f"{path}: unknown suffix {path.suffix!r}. It must be one of {_suffixes()}, "
        "or an ENVI file with its .hdr."
    )


def _remote_reader(address: str) -> Format:
    """Return the format of what an address names, if it is read from there."""
    found = FORMATS.get(suffix_of(address))
    if found is None or not found.remote:
        known = ", ".join(suffix for suffix, one in FORMATS.items() if one.remote)
        raise ValueError(
            f"{address}: {suffix_of(address) or 'no suffix'} is not read from an address. It must "
            f"be one of {known}."
        )
    return found


def open_source(
    path: str | Path,
    *,
    variable: str | None = None,
    axes: str | Sequence[str] | None = None,
    bands: Any = None,
    scale: float | None = None,
    nodata: float | None = None,
    data: str | Path | None = None,
    wavelengths: str | Path | Sequence[float] | None = None,
    join: str | None = None,
    quality: bool = True,
    dark: str | Path | None = None,
    white: str | Path | None = None,
    mask: np.ndarray | None = None,
    external: bool | None = None,
) -> Source:
    """Open a cube without reading it; the options are those of `read`.

    ``mask`` (row, col) or (row, col, band) is False where values are not to be used, whatever the
    file says.

    Returns
    -------
    Source
        Shape, type and metadata of the cube, and ``block(rows, cols)`` for a part of it.
    """
    from sigmacube.io.places import check_plain, guarded, reading

    address = address_of(path)
    path = local_path(path)
    if address is None:
        check_plain(path)
        if not path.exists():
            raise FileNotFoundError(f"{path}: no such file.")
    if path.is_file() and path.stat().st_size == 0:
        raise ValueError(f"{path}: empty file.")
    found = _reader(path) if address is None else _remote_reader(address)
    given: dict[str, Any] = {"variable": variable, "axes": axes, "join": join}
    given |= {"data": None if data is None else Path(data), "external": external}
    for option, value in given.items():
        if value is not None and option not in found.options:
            raise ValueError(f"Invalid option {option} for {path.name}: {found.name} has none.")
    chosen: dict[str, Any] = {key: given[key] for key in found.options}
    if address is not None:
        chosen["address"] = address
    with reading(address or path):
        source: Source = load(found.reader, __name__)(path, **chosen)
    source = replace(source, address=address, load=guarded(address or path, source.load))
    if not quality:
        source = replace(source, quality=None)
    elif source.quality is not None:
        source = replace(source, quality=guarded(address or path, source.quality))
    if scale is not None:
        source = source.with_scale(scale)
    if nodata is not None:
        source = source.with_nodata(nodata)
    if wavelengths is not None or dark is not None or white is not None:
        from sigmacube.io.overrides import with_references, with_wavelengths
    if wavelengths is not None:
        source = with_wavelengths(source, wavelengths)
    if dark is not None or white is not None:
        source = with_references(source, dark, white)
    source = source if bands is None else source.select_bands(bands)
    return source if mask is None else source.with_mask(mask)


def read(path: str | Path, **options: Any) -> Cube:
    """Read a cube; the suffix decides the format, the contents the sensor.

    Values come in physical units. No-data values, bad bands, and what a product's own quality layer
    calls not measured, are False in the mask. ENVI and .npy files without a scale factor are
    mapped, not read.

    Parameters
    ----------
    path
        ENVI (header or binary), GeoTIFF, VRT, netCDF, HDF5, MATLAB, Zarr, .npy or .npz; the folder,
        zip file or METADATA.XML of an EnMAP or DESIS product; or the address (https, s3) of a
        GeoTIFF, netCDF, HDF5 file or Zarr store.
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
        virtual storage), a VRT from others than GeoTIFFs in its folder. A file of a stranger could
        name any file of this machine.
    wavelengths
        Band centres (nm), where the file states none: a list, or a text or ENVI header file.
    join
        Whose bands stay where two detectors overlap: ``"swir"`` (default), ``"vnir"``, ``"both"``.
    quality
        False keeps the values that the product's quality layer calls not measured.
    dark, white
        Reference frames of a laboratory camera: the dark one is taken off, and with the white one
        values become reflectance.

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> folder = Path(tempfile.mkdtemp())
    >>> np.save(folder / "cube.npy", np.zeros((4, 5, 3), dtype="i2"))
    >>> read(folder / "cube.npy", scale=0.0001).values.dtype
    dtype('float32')
    """
    return open_source(path, **options).read()


def _signature_of_read() -> inspect.Signature:
    """Return the signature of `read`: the options of `open_source`, but for the mask."""
    whole = inspect.signature(open_source)
    kept = [p for name, p in whole.parameters.items() if name != "mask"]
    return whole.replace(parameters=kept, return_annotation="Cube")


read.__signature__ = _signature_of_read()  # type: ignore[attr-defined]


def writer_of(path: Path, refusal: str = "results cannot be written with suffix {suffix}") -> Any:
    """Return what writes and opens results with the suffix of a path."""
    found = FORMATS.get(path.suffix.lower())
    if found is None or found.writer is None:
        raise ValueError(
            f"{path}: {refusal.format(suffix=repr(path.suffix))}. "
            f"It must be one of {_suffixes(writable=True)}."
        )
    return load(found.writer, __name__)


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


def check_keeps_factors(path: str | Path, *, uncertainty: bool = True) -> None:
    """Refuse to keep window factors where there is no use or no place for them."""
    if not uncertainty:
        raise ValueError("--keep-factors keeps what sigma rests on; not with --no-uncertainty.")
    if not writer_of(Path(path)).holds_errors:
        raise ValueError(f"{path}: only .nc and .zarr can keep the window factors.")


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
    if keep_factors:
        check_keeps_factors(path)
    extra: dict[str, Any] = {}
    if writer.holds_errors:
        extra = {"keep_factors": keep_factors, "correlation": correlation}
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
