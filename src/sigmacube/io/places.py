"""Where files lie, on this machine or at an address, and how those of strangers are opened.

Nothing is fetched unless the user names an address: files that point elsewhere are refused, and so
is what is neither a file nor a folder. Damaged bytes make every library raise its own kinds of
errors, from any depth. What opens or reads a file does so inside `reading`, so that a user sees one
`ValueError` that names the file.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

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
        reason = reason_of(error.__cause__ or error)
        raise ValueError(f"{address}: cannot be read ({reason}).") from None
    return h5py.File(stream, "r")


_Result = TypeVar("_Result")
#: Characters of an error: a damaged file can make a library repeat all of it.
_LONGEST = 600
_KINDS = (
    (stat.S_ISFIFO, "pipe"),
    (stat.S_ISSOCK, "socket"),
    (stat.S_ISCHR, "device"),
    (stat.S_ISBLK, "device"),
)


def check_plain(path: Path) -> None:
    """Refuse what is neither a file nor a folder: reading a pipe or a device may never end.

    Examples
    --------
    >>> check_plain(Path("/dev/null"))
    Traceback (most recent call last):
    ...
    ValueError: /dev/null is a device. It must be a file or a folder.
    """
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:  # a loop of links, a name that is too long
        raise ValueError(f"{path}: {error.strerror}.") from None
    except ValueError:
        raise ValueError(f"Invalid name {str(path)!r}. It must hold no null character.") from None
    for matches, kind in _KINDS:
        if matches(mode):
            raise ValueError(f"{path} is a {kind}. It must be a file or a folder.")


def check_beside(path: Path) -> None:
    """Refuse pipes and devices beside a raster that begin with its name: GDAL looks into them."""
    with suppress(PermissionError):  # a folder that cannot be listed
        for name in os.listdir(path.parent):
            if name.startswith(path.stem):
                check_plain(path.with_name(name))


@contextmanager
def reading(path: Path | str) -> Iterator[None]:
    """Turn whatever a file's content leads to into one `ValueError` that names the file.

    What the system says of a file (missing, not permitted) stays as it is.
    """
    name = Path(path).name
    try:
        yield
    except Warning:
        raise
    except ValueError as error:
        if name in str(error) and not isinstance(error, UnicodeError):
            if len(str(error)) <= _LONGEST:
                raise
            raise ValueError(reason_of(error)) from error
        raise ValueError(f"{path}: {reason_of(error)}") from error
    except MemoryError as error:
        raise MemoryError(f"{path}: {reason_of(error)}") from error
    except OSError as error:
        if error.errno is not None and not type(error).__module__.startswith("h5"):
            raise
        raise ValueError(f"{path}: cannot be read ({reason_of(error)}).") from error
    except Exception as error:  # libraries raise whatever damaged bytes lead to
        told = f"{type(error).__name__}: {reason_of(error)}"
        raise ValueError(f"{path}: damaged ({told}).") from error


def guarded(path: Path | str, function: Callable[..., _Result]) -> Callable[..., _Result]:
    """Return a function that reads a file inside `reading`."""

    def safely(*args: Any, **kwargs: Any) -> _Result:
        with reading(path):
            return function(*args, **kwargs)

    return safely


def reason_of(error: BaseException) -> str:
    r"""Return what an error says, on one line that is not too long.

    Examples
    --------
    >>> reason_of(ValueError("bad\n header")), reason_of(EOFError())
    ('bad header', 'EOFError')
    """
    text = printable(" ".join(str(error).split())) or type(error).__name__
    return f"{text[:_LONGEST]}…" if len(text) > _LONGEST else text


def printable(text: str) -> str:
    r"""Return a text that any encoding of Unicode can hold: half characters become marks.

    Examples
    --------
    >>> printable("reflectance \udcff")
    'reflectance ?'
    """
    return text.encode("utf-8", "replace").decode("utf-8")
