"""Names of files: on this machine, or the address of a store elsewhere."""

from __future__ import annotations

from pathlib import Path

__all__ = ["address_of", "local_path"]


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
