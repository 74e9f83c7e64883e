"""Which axis is which: names, shapes and the user's word, in one place."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = [
    "parse_axes",
    "axes_from_names",
    "axes_from_shape",
    "BAND_NAMES",
    "ROW_NAMES",
    "COL_NAMES",
]

BAND_NAMES = frozenset(
    {
        "band",
        "bands",
        "wavelength",
        "wavelengths",
        "channel",
        "channels",
        "spectral",
        "spectrum",
        "lambda",
        "wl",
        "wvl",
        "nbands",
        "n_bands",
        "wave",
        "spectral_band",
        "spectral_bands",
        "b",
    }
)
ROW_NAMES = frozenset(
    {
        "y",
        "row",
        "rows",
        "line",
        "lines",
        "lat",
        "latitude",
        "downtrack",
        "down_track",
        "along_track",
        "northing",
        "nrows",
        "height",
        "r",
    }
)
COL_NAMES = frozenset(
    {
        "x",
        "col",
        "cols",
        "column",
        "columns",
        "sample",
        "samples",
        "lon",
        "longitude",
        "crosstrack",
        "cross_track",
        "across_track",
        "easting",
        "ncols",
        "width",
        "c",
    }
)
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
