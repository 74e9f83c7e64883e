"""Where files lie: on this machine, or at an address; what GDAL, fsspec and HDF5 make of one.

Nothing is fetched unless the user names an address: files that point elsewhere are refused.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

#: Scheme of an address -> GDAL's name of the file system behind it.
_GDAL = {
    "http": "/vsicurl/http://",
    "https": "/vsicurl/https://",
    "s3": "/vsis3/",
    "gs": "/vsigs/",
}
#: Bytes that are fetched at a time: HDF5 keeps its own index in many small pieces.
_BLOCK = 2**18


def address_of(place: str | Path) -> str | None:
    """Return a place that is the address of a store elsewhere; None for one on this machine.

    Examples
    --------
    >>> address_of("s3://bucket/cube.zarr"), address_of("file:///data/cube.nc")
    ('s3://bucket/cube.zarr', None)
    """
    text = str(place)
    return text if "://" in text and not text.startswith("file://") else None


def local_path(place: str | Path) -> Path:
    """Return the path of a file on this machine, which may be given as ``file:///…``.

    Examples
    --------
    >>> local_path("file:///data/my%20cube.nc").as_posix(), local_path("cube.nc").as_posix()
    ('/data/my cube.nc', 'cube.nc')
    """
    text = str(place)
    if not text.startswith("file://"):
        return Path(place)
    from urllib.parse import unquote, urlsplit

    parts = urlsplit(text)
    if parts.netloc not in ("", "localhost"):
        raise ValueError(f"{text}: a file of another machine. It must be such as file:///folder.")
    return Path(unquote(parts.path))


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

    if address_of(place) is not None:
        yield _fetched(str(place), os.getpid())
        return
    with h5py.File(place, "r") as file:
        yield file


@lru_cache(maxsize=4)
def _fetched(address: str, process: int) -> Any:
    """Return the HDF5 file at an address, which stays open so that nothing is fetched twice.

    ``process`` keeps what one process has opened from being used in another.
    """
    import h5py

    try:
        import fsspec

        system, path = fsspec.core.url_to_fs(address)
    except ImportError as error:
        raise ValueError(
            f"{address}: files at an address need fsspec and what it needs for this one "
            f"({error}): pip install 'sigmacube[{'s3' if address[:5] == 's3://' else 'remote'}]'"
        ) from None
    except ValueError as error:
        raise ValueError(f"{address}: {error}.") from None
    try:
        stream = system.open(path, "rb", block_size=_BLOCK, cache_type="blockcache")
    except Exception as error:  # each file system raises its own kinds
        cause = error.__cause__ or error
        reason = " ".join(str(cause).split()) or type(cause).__name__
        raise ValueError(f"{address}: cannot be read ({reason}).") from None
    return h5py.File(stream, "r")
