"""Where a pixel lies on the map."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Place:
    """The grid of a scene on a map.

    Examples
    --------
    >>> utm = Place((30.0, 0.0, 600_000.0, 0.0, -30.0, 5_800_000.0), False, "EPSG:32633")
    >>> utm.text(2, 10)
    'E 600315, N 5799925 (EPSG:32633)'
    """

    transform: tuple[float, float, float, float, float, float]
    """x = a col + b row + c, y = d col + e row + f, of the corners of pixels."""
    geographic: bool
    """Whether x and y are longitude and latitude in degrees."""
    name: str = ""
    """Of the coordinate system, where it is known."""
    positions: tuple[np.ndarray, np.ndarray] | None = None
    """(row, col) longitude and latitude of a scene in sensor geometry; ``transform`` is then the
    map that comes nearest to them."""

    @classmethod
    def of(cls, metadata: Mapping[str, Any]) -> Place | None:
        """Return the place of a scene by what its file says; None where it says none.

        Examples
        --------
        >>> wkt = 'GEOGCS["WGS 84",AUTHORITY["EPSG","4326"]]'
        >>> Place.of({"transform": [0.1, 0, 9, 0, -0.1, 50], "crs_wkt": wkt}).text(0, 0)
        'lat 49.95000°, lon 9.05000° (EPSG:4326)'
        >>> Place.of({}) is None
        True
        >>> lat, lon = 50 - 0.1 * np.mgrid[:3, :4]
        >>> Place.of({"location": {"lat": lat, "lon": lon}}).text(1, 2)
        'lat 49.90000°, lon 49.80000°'
        """
        location = metadata.get("location") or {}
        if "lat" in location and "lon" in location:
            return cls._swath(np.asarray(location["lat"]), np.asarray(location["lon"]))
        numbers = metadata.get("transform")
        if numbers is None or len(numbers) != 6:
            return None
        wkt = str(metadata.get("crs_wkt") or "")
        codes = re.findall(r'\[\s*"EPSG"\s*,\s*"?(\d+)"?\s*\]', wkt)
        a, b, c, d, e, f = (float(number) for number in numbers)
        geographic = wkt.lstrip().upper().startswith(("GEOGCS", "GEOGCRS", "GEODCRS"))
        return cls((a, b, c, d, e, f), geographic, f"EPSG:{codes[-1]}" if codes else "")

    @classmethod
    def _swath(cls, lat: np.ndarray, lon: np.ndarray) -> Place | None:
        """Return the place of a scene in sensor geometry."""
        known = (np.abs(lat) <= 90) & (np.abs(lon) <= 360)
        if np.count_nonzero(known) < 3:
            return None
        grid = np.indices(lat.shape) + 0.5
        down, across = grid[0][known], grid[1][known]
        table = np.column_stack([across, down, np.ones(len(down))])
        (a, b, c), (d, e, f) = (
            np.linalg.lstsq(table, values[known], rcond=None)[0].tolist() for values in (lon, lat)
        )
        return cls((a, b, c, d, e, f), True, "", (lon, lat))

    def at(self, row: float, col: float) -> tuple[float, float]:
        """Return x and y of the centre of a pixel."""
        if self.positions is not None:
            here = round(row), round(col)
            return float(self.positions[0][here]), float(self.positions[1][here])
        a, b, c, d, e, f = self.transform
        across, down = col + 0.5, row + 0.5
        return a * across + b * down + c, d * across + e * down + f

    def text(self, row: float, col: float) -> str:
        """Return the place of a pixel as people write it."""
        x, y = self.at(row, col)
        system = f" ({self.name})" if self.name else ""
        if self.geographic:
            return f"lat {y:.5f}°, lon {x:.5f}°{system}"
        digits = 0 if min(abs(self.transform[0]), abs(self.transform[4])) >= 2 else 2
        return f"E {x:.{digits}f}, N {y:.{digits}f}{system}"

    def script(self) -> str:
        """Return JavaScript that makes the same text of ``special_vars`` of a hover tool."""
        a, b, c, d, e, f = self.transform
        digits = 5 if self.geographic else 0 if min(abs(a), abs(e)) >= 2 else 2
        first, second = ("lat", "lon") if self.geographic else ("E", "N")
        return f"""
const across = Math.round(special_vars.x) + 0.5, down = Math.round(special_vars.y) + 0.5
const x = {a} * across + {b} * down + {c}, y = {d} * across + {e} * down + {f}
const [p, q] = {"[y, x]" if self.geographic else "[x, y]"}
return "{first} " + p.toFixed({digits}) + ", {second} " + q.toFixed({digits})
"""
