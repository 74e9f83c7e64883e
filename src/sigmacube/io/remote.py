"""Sources at an address: what GDAL and fsspec call it, and how HDF5 is read from there.

Nothing is fetched unless the user names an address: files that point elsewhere are refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

__all__ = ["gdal_name", "is_address", "opened_hdf5", "suffix_of"]

#: Scheme of an address -> GDAL's name of the file system behind it.
_GDAL = {
    "http": "/vsicurl/http://",
    "https": "/vsicurl/https://",
    "s3": "/vsis3/",
    "gs": "/vsigs/",
}
#: Bytes that are fetched at a time: HDF5 keeps its own index in many small pieces.
_BLOCK = 2**18


def is_address(place: str | Path) -> bool:
    """Tell whether a place is an address such as ``https://host/cube.tif``.

    Examples
    --------
    >>> is_address("https://host/cube.tif"), is_address("data/cube.tif")
    (True, False)
    """
    return "://" in str(place)


def suffix_of(address: str) -> str:
    """Return the suffix of what an address names, in lower case.

    Examples
    --------
    >>> suffix_of("https://host/data/cube.TIF?token=a.b")
    '.tif'
    """
    return Path(address.split("?")[0].split("#")[0].rstrip("/")).suffix.lower()


def gdal_name(address: str) -> str:
    """Return GDAL's name of a file at an address.

    Examples
    --------
    >>> gdal_name("https://host/cube.tif"), gdal_name("s3://bucket/cube.tif")
    ('/vsicurl/https://host/cube.tif', '/vsis3/bucket/cube.tif')
    """
    scheme, _, rest = address.partition("://")
    if scheme.lower() not in _GDAL:
        allowed = ", ".join(f"{name}://" for name in _GDAL)
        raise ValueError(f"{address}: images are not read from {scheme}://, only from {allowed}.")
    return _GDAL[scheme.lower()] + rest


@contextmanager
def opened_hdf5(place: str | Path) -> Iterator[Any]:
    """Open an HDF5 file on a disk or at an address; only the parts that are read are fetched."""
    import h5py

    if not is_address(place):
        with h5py.File(place, "r") as file:
            yield file
        return
    with _fetching(str(place)) as stream, h5py.File(stream, "r") as file:
        yield file


@contextmanager
def _fetching(address: str) -> Iterator[Any]:
    """Yield the bytes of an address as a file that can be sought in."""
    try:
        import fsspec

        system, path = fsspec.core.url_to_fs(address)
    except ImportError as error:
        raise ValueError(
            f"{address}: files at an address need fsspec and what it needs for this one "
            f"({error}): pip install 'sigmacube[remote]'"
        ) from None
    except ValueError as error:
        raise ValueError(f"{address}: {error}.") from None
    try:
        stream = system.open(path, "rb", block_size=_BLOCK, cache_type="blockcache")
    except FileNotFoundError:
        raise FileNotFoundError(f"{address}: no such file.") from None
    except Exception as error:  # each file system raises its own kinds
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ValueError(f"{address}: cannot be read ({reason}).") from None
    with stream:
        yield stream
