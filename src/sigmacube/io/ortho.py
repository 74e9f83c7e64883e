"""From sensor geometry to a map: which pixel every cell of a map shows.

Nearest neighbour, after denoising: values and their σ are taken over as they are, nothing is
averaged, so every cell of a map keeps the error of the pixel that it shows. Cells between pixels
repeat a neighbour: their errors are the same error, not independent ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from sigmacube.result import DenoisedCube

#: A scene wider than this is put on a grid of degrees, narrower ones on one of metres.
_WIDEST = 6.0
#: A cell shows a pixel no farther away than this, in pixels: half a diagonal, and a bit.
_REACH = 0.75


@dataclass(frozen=True, eq=False)
class Lookup:
    """Which pixel every cell of a map shows.

    Examples
    --------
    >>> rows, cols = np.array([[0, 1, -1]]), np.array([[2, 0, -1]])
    >>> lookup = Lookup(rows, cols, [1.0, 0, 0, 0, -1.0, 0], "", "glt")
    >>> lookup.gather(np.arange(6.0).reshape(2, 3)).tolist()
    [[2.0, 3.0, nan]]
    """

    rows: np.ndarray
    """(map row, map col) row of the pixel; −1 for none."""
    cols: np.ndarray
    transform: list[float]
    """Of the map: a b c d e f, of cell corners."""
    crs_wkt: str
    source: str
    """``"glt"`` or ``"lat/lon"``."""

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, cols) of the map."""
        rows, cols = self.rows.shape
        return rows, cols

    def gather(self, values: np.ndarray) -> np.ndarray:
        """Return values (row, col, …) on the map; NaN, or False, where there is no pixel."""
        inside = self.rows >= 0
        kind = values.dtype if values.dtype.kind in "fb" else np.dtype(np.float32)
        empty = False if kind.kind == "b" else np.nan
        made = np.full((*self.shape, *values.shape[2:]), empty, dtype=kind)
        made[inside] = values[self.rows[inside], self.cols[inside]]
        return made

    def metadata(self, old: Mapping[str, Any]) -> dict[str, Any]:
        """Return the metadata of what lies on the map."""
        gone = ("location", "ortho_transform", "ortho_crs_wkt", "map_info", "xarray")
        kept = {key: value for key, value in old.items() if key not in gone}
        return kept | {"transform": list(self.transform), "crs_wkt": self.crs_wkt}


def lookup_of(metadata: Mapping[str, Any], size: tuple[int, int]) -> Lookup:
    """Return the lookup of a scene in sensor geometry: its own, else one by latitude and longitude.

    Parameters
    ----------
    metadata
        Of the scene, with ``location``.
    size
        (rows, cols) of the scene.
    """
    location = metadata.get("location") or {}
    if "glt_x" in location and metadata.get("ortho_transform") is not None:
        return _by_table(metadata, location, size)
    if "lat" in location and "lon" in location:
        lat, lon = (np.asarray(location[key], dtype=float) for key in ("lat", "lon"))
        if lat.shape != size or lon.shape != size:
            raise ValueError(
                f"Invalid ortho: latitudes of shape {lat.shape} for {size[0]} x {size[1]} pixels. "
                "Means over blocks have no place of their own."
            )
        return _by_position(lat, lon)
    if metadata.get("transform") is not None:
        raise ValueError("Invalid ortho: the scene lies on a map already. It needs none.")
    raise ValueError(
        "Invalid ortho: the scene has neither a lookup table (GLT) nor latitudes and longitudes "
        "of its pixels. It must have one of them, as EMIT and PRISMA have."
    )


def _by_table(
    metadata: Mapping[str, Any], location: Mapping[str, Any], size: tuple[int, int]
) -> Lookup:
    rows = np.asarray(location["glt_y"]).astype(np.int64) - 1
    cols = np.asarray(location["glt_x"]).astype(np.int64) - 1
    inside = (rows >= 0) & (cols >= 0)
    if np.any(rows[inside] >= size[0]) or np.any(cols[inside] >= size[1]):
        raise ValueError(
            f"Invalid lookup table: it names row {rows.max() + 1} and column {cols.max() + 1} of a "
            f"scene of {size[0]} x {size[1]} pixels."
        )
    rows, cols = np.where(inside, rows, -1), np.where(inside, cols, -1)
    wkt = str(metadata.get("ortho_crs_wkt") or "")
    return Lookup(rows, cols, [float(v) for v in metadata["ortho_transform"]], wkt, "glt")


def _by_position(lat: np.ndarray, lon: np.ndarray) -> Lookup:
    """Return the lookup of the pixels nearest to the cells of a north-up grid."""
    from scipy.spatial import cKDTree

    known = (np.abs(lat) <= 90) & (np.abs(lon) <= 360) & np.isfinite(lat) & np.isfinite(lon)
    if np.count_nonzero(known) < 4:
        raise ValueError("Invalid ortho: fewer than four pixels have a latitude and longitude.")
    x, y, wkt, unit = _projected(lat, lon, known)
    pixel = _spacing(x, y, known)
    west, north = np.floor(x[known].min() / pixel) * pixel, np.ceil(y[known].max() / pixel) * pixel
    width = int(np.ceil((x[known].max() - west) / pixel)) + 1
    height = int(np.ceil((north - y[known].min()) / pixel)) + 1
    places = np.argwhere(known)
    tree = cKDTree(np.column_stack([x[known], y[known]]) * unit)
    rows, cols = (np.full((height, width), -1, dtype=np.int64) for _ in range(2))
    across = west + pixel * (np.arange(width) + 0.5)
    for number in range(height):
        down = north - pixel * (number + 0.5)
        cells = np.column_stack([across, np.full(width, down)]) * unit
        near, which = tree.query(cells, distance_upper_bound=_REACH * pixel * unit.max())
        inside = np.flatnonzero(np.isfinite(near))
        row, col = places[which[inside]].T
        within = _in_footprint(x, y, known, row, col, cells[inside] / unit)
        rows[number, inside[within]], cols[number, inside[within]] = row[within], col[within]
    return Lookup(rows, cols, [pixel, 0.0, west, 0.0, -pixel, north], wkt, "lat/lon")


def _in_footprint(
    x: np.ndarray,
    y: np.ndarray,
    known: np.ndarray,
    row: np.ndarray,
    col: np.ndarray,
    cells: np.ndarray,
) -> np.ndarray:
    """Tell which cells lie within half a pixel of theirs; those inside the scene always do."""
    rows, cols = known.shape
    up, down = np.maximum(row - 1, 0), np.minimum(row + 1, rows - 1)
    left, right = np.maximum(col - 1, 0), np.minimum(col + 1, cols - 1)
    inner = (up < row) & (down > row) & (left < col) & (right > col)
    inner &= known[up, col] & known[down, col] & known[row, left] & known[row, right]
    ends = ((up, col, down, col, down - up), (row, left, row, right, right - left))
    steps = [
        np.stack([(p[c, d] - p[a, b]) / np.maximum(n, 1) for p in (x, y)]) for a, b, c, d, n in ends
    ]
    (ax, ay), (bx, by) = steps
    dx, dy = cells[:, 0] - x[row, col], cells[:, 1] - y[row, col]
    with np.errstate(divide="ignore", invalid="ignore"):
        area = ax * by - ay * bx
        offsets = np.stack([dx * by - dy * bx, ax * dy - ay * dx]) / area
    near: np.ndarray = np.all(np.abs(offsets) <= 0.5 + 1e-6, axis=0)
    return inner | near


def _projected(
    lat: np.ndarray, lon: np.ndarray, known: np.ndarray
) -> tuple[np.ndarray, np.ndarray, str, np.ndarray]:
    """Return x, y and the system of a map for these places, and what makes both axes alike."""
    from rasterio.crs import CRS
    from rasterio.warp import transform

    geographic = CRS.from_epsg(4326)
    middle_lat = float(np.median(lat[known]))
    middle_lon = float(np.degrees(np.angle(np.exp(1j * np.radians(lon[known])).mean())))
    # Places on both sides of the date line: those in the west count on.
    lon = np.where(lon - middle_lon < -180, lon + 360, np.where(lon - middle_lon > 180, lon - 360,
                                                                 lon))  # fmt: skip
    if np.ptp(lon[known]) > _WIDEST or abs(middle_lat) > 80:
        narrow = np.array([np.cos(np.radians(middle_lat)), 1.0])
        return lon, lat, str(geographic.to_wkt()), narrow
    zone = int((middle_lon + 180) // 6) % 60 + 1
    system = CRS.from_epsg((32700 if middle_lat < 0 else 32600) + zone)
    x, y = np.full(lat.shape, np.nan), np.full(lat.shape, np.nan)
    found = transform(geographic, system, lon[known].tolist(), lat[known].tolist())
    x[known], y[known] = found[0], found[1]
    return x, y, str(system.to_wkt()), np.ones(2)


def _spacing(x: np.ndarray, y: np.ndarray, known: np.ndarray) -> float:
    """Return the side of a cell: the median distance of neighbours, two digits long."""
    steps = []
    for axis in (0, 1):
        pair = np.diff(known.astype(int), axis=axis) == 0
        length = np.hypot(np.diff(x, axis=axis), np.diff(y, axis=axis))
        length = length[pair & np.isfinite(length)]
        steps += [float(np.median(length))] if length.size else []
    side = min(steps) if steps else 1.0
    digits = 1 - int(np.floor(np.log10(side)))
    return round(side, digits) or side


def on_map(result: DenoisedCube) -> DenoisedCube:
    """Return a result on a map, nearest neighbour, σ taken along; nothing is averaged.

    The maps of windows stay in sensor geometry, and the error model is left out: it is about the
    pixels of the scene.
    """
    plain = result.unlabelled()
    lookup = lookup_of(plain.metadata, plain.estimate.shape[:2])
    cubes: dict[str, Any] = {
        name: None if (cube := getattr(plain, name)) is None else lookup.gather(cube)
        for name in ("estimate", "std", "rejected", "noise_scale")
    }
    return replace(
        plain,
        **cubes,
        metadata=lookup.metadata(plain.metadata),
        settings={**plain.settings, "ortho": lookup.source},
        error_model=None,
        unexplained=None,
    )
