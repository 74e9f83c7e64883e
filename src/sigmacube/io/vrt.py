"""VRT files: which other files they take their values from, before any of these is opened.

A VRT is a short text that names other files, of any kind, and parts of them as bare bytes. From
strangers it could have any file of the machine read and shown. Without being asked for more, only
GeoTIFFs in its own folder are read through it.
"""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path

__all__ = ["check_sources"]

_ELSEWHERE = re.compile(r"/vsi(?!zip/|gzip/|tar/)\w+|://", re.I)
_NAMED = re.compile(r"source(?:filename|dataset)", re.I)
_SOURCE = re.compile(r"<source(filename|dataset)(\s[^<>]*)?>([^<>]*)</source\1\s*>", re.I)
_RELATIVE = re.compile(r"""relativetovrt\s*=\s*["']1["']""", re.I)
_TIFF = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")


def check_sources(path: Path, *, external: bool) -> None:
    """Refuse a VRT that names files of other hosts, or others than GeoTIFFs beside it.

    Parameters
    ----------
    path
        The VRT.
    external
        Whether it may name any file of this machine.
    """
    text = unescape(path.read_text(encoding="utf-8", errors="replace"))
    found = _ELSEWHERE.search(text)
    if found:
        raise ValueError(
            f"{path}: it names files elsewhere ({found[0]}). They are only read from an address "
            "that is given itself."
        )
    if external:
        return
    sources = list(_SOURCE.finditer(text))
    # Each is named when its element begins and ends; names in other places are hidden ones.
    hidden = len(_NAMED.findall(text)) != 2 * len(sources)
    outside = [source[3] for source in sources if not _is_beside(path, source)]
    if hidden or outside:
        other = outside[0].strip() if outside else "something else"
        raise ValueError(
            f"{path}: its values lie in {other}. Other files than GeoTIFFs in its own folder are "
            "only read with external=True (--external)."
        )


def _is_beside(path: Path, source: re.Match[str]) -> bool:
    """Tell whether a source is a GeoTIFF in the folder of the VRT, or below."""
    name = Path(source[3].strip())
    folder = path.parent.resolve()
    file = ((folder / name) if _RELATIVE.search(source[2] or "") else name).resolve()
    if not file.is_file() or not file.is_relative_to(folder):
        return False
    with file.open("rb") as stream:
        return stream.read(4) in _TIFF
