"""Small files in the layout of every sensor, to try things out on: for the tests and the docs.

Real products are too large to come along. These have their groups, names, types, scales, flags and
places, around a made scene, and come with what a reader must find in them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import numpy as np

from sigmacube.synthetic import scene

__all__ = ["SAMPLES", "Sample", "Setting", "write_sample"]

#: Metres of a degree of latitude.
DEGREE = 111_320.0
TIME = "2024-06-18T10:20:30"
#: Where samples lie: a map's upper left corner in UTM 33N, and a swath's first pixel.
EAST, NORTH, EPSG = 365_000.0, 5_807_000.0, 32633
LAT, LON = 52.4, 13.0


@dataclass(frozen=True, eq=False)
class Sample:
    """A product that was made, and what a reader must find in it."""

    path: Path
    values: np.ndarray
    """(row, col, band) in physical units."""
    wavelengths: np.ndarray
    valid: np.ndarray
    """(row, col, band) False where a value is none."""
    x: np.ndarray
    """(row, col) of pixel centres: easting or longitude."""
    y: np.ndarray
    epsg: int
    time: str | None = TIME
    quantity: str = "reflectance"


@dataclass(frozen=True, eq=False)
class Setting:
    """What samples are made from: a size, and a seed."""

    rows: int = 36
    cols: int = 30
    rng: int = 0

    def reflectance(self, centres: np.ndarray) -> np.ndarray:
        """Return a scene at some wavelengths, with noise."""
        truth = scene((self.rows, self.cols, 120), rng=self.rng)
        assert truth.wavelengths is not None
        table = np.array([np.interp(centres, truth.wavelengths, row) for row in np.eye(120)])
        noise = np.random.default_rng(self.rng).normal(size=(self.rows, self.cols, len(centres)))
        return np.clip(truth.values @ table + 0.004 * noise, 0.002, 0.98)

    def radiance(self, centres: np.ndarray) -> np.ndarray:
        """Return the radiance of the scene, in µW cm⁻² nm⁻¹ sr⁻¹."""
        return self.reflectance(centres) * sunlight(centres)

    def bad(self, bands: int) -> np.ndarray:
        """Return (row, col, band) True for some elements that the product calls not measured."""
        flags = np.zeros((self.rows, self.cols, bands), dtype=bool)
        flags[3, 4, 5], flags[10:12, 7, bands // 2], flags[20, 11, 3:6] = True, True, True
        return flags

    def swath(self, pixel: float = 60.0, angle: float = 12.0) -> tuple[np.ndarray, np.ndarray]:
        """Return the longitude and latitude of every pixel of a flight that is not due south."""
        row, col = np.mgrid[: self.rows, : self.cols].astype(float)
        cos, sin = np.cos(np.radians(angle)), np.sin(np.radians(angle))
        lat = LAT - pixel * (row * cos + col * sin) / DEGREE
        lon = LON + pixel * (col * cos - row * sin) / (DEGREE * np.cos(np.radians(LAT)))
        return lon, lat

    def lookup(
        self, pixel: float = 60.0, angle: float = 12.0
    ) -> tuple[np.ndarray, np.ndarray, list[float]]:
        """Return the lookup of a map grid of degrees (columns and rows from 1) and its transform.

        Every cell is taken back to the swath by the inverse of what `swath` does.
        """
        lon, lat = self.swath(pixel, angle)
        step = pixel / DEGREE
        west, north = lon.min() - step, lat.max() + step
        width = int((lon.max() - west) / step) + 3
        height = int((north - lat.min()) / step) + 3
        y, x = np.mgrid[:height, :width] + 0.5
        down = (LAT - (north - y * step)) * DEGREE / pixel
        right = (west + x * step - LON) * DEGREE * np.cos(np.radians(LAT)) / pixel
        cos, sin = np.cos(np.radians(angle)), np.sin(np.radians(angle))
        row, col = np.rint(down * cos - right * sin), np.rint(down * sin + right * cos)
        inside = (row >= 0) & (row < self.rows) & (col >= 0) & (col < self.cols)
        glt_x = np.where(inside, col + 1, 0).astype(np.int32)
        glt_y = np.where(inside, row + 1, 0).astype(np.int32)
        return glt_x, glt_y, [step, 0.0, west, 0.0, -step, north]

    def grid(self, pixel: float = 30.0) -> tuple[np.ndarray, np.ndarray]:
        """Return the easting and northing of the pixel centres of a map."""
        row, col = np.mgrid[: self.rows, : self.cols] + 0.5
        return EAST + pixel * col, NORTH - pixel * row


def sunlight(centres: np.ndarray) -> np.ndarray:
    """Return the radiance of a white surface (µW cm⁻² nm⁻¹ sr⁻¹): about that of the Sun."""
    metres = np.asarray(centres) * 1e-9
    planck = metres**-5 / np.expm1(0.014388 / (metres * 5800))
    peak = 5e-7**-5 / np.expm1(0.014388 / (5e-7 * 5800))
    return np.asarray(40 * planck / peak)


Maker = Callable[[Path, Setting], Sample]
SAMPLES: dict[str, str] = {
    "emit-l1b": "samples_hdf:emit_l1b",
    "emit-l2a": "samples_hdf:emit_l2a",
    "prisma-l1": "samples_hdf:prisma_l1",
    "prisma-l2b": "samples_hdf:prisma_l2b",
    "prisma-l2c": "samples_hdf:prisma_l2c",
    "prisma-l2d": "samples_hdf:prisma_l2d",
    "enmap-l1b": "samples_images:enmap_l1b",
    "enmap-l1c": "samples_images:enmap_l1c",
    "enmap-l2a": "samples_images:enmap_l2a",
    "desis-l1c": "samples_images:desis_l1c",
    "desis-l2a": "samples_images:desis_l2a",
    "aviris-3": "samples_more:aviris_3",
    "aviris-5": "samples_more:aviris_5",
    "aviris-ng": "samples_images:aviris_ng",
    "neon": "samples_more:neon",
    "pace": "samples_more:pace",
    "tanager": "samples_more:tanager",
    "tanager-ortho": "samples_more:tanager_ortho",
}
"""Names of samples, and what makes them."""


def write_sample(name: str, folder: str | Path, setting: Setting | None = None) -> Sample:
    """Write a small product in the layout of a sensor.

    Parameters
    ----------
    name
        One of `SAMPLES`.
    folder
        Where to write it; it must exist.
    setting
        Its size and seed.

    Examples
    --------
    >>> import tempfile, sigmacube as sc
    >>> made = write_sample("emit-l1b", tempfile.mkdtemp())
    >>> sc.read(made.path).shape == made.values.shape
    True
    """
    if name not in SAMPLES:
        raise ValueError(f"Invalid sample {name!r}. It must be one of {', '.join(SAMPLES)}.")
    module, function = SAMPLES[name].split(":")
    make: Maker = getattr(import_module(f"sigmacube.io.sensors.{module}"), function)
    return make(Path(folder), setting or Setting())
