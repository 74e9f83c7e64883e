"""What the image pane shows: which values, on which scale, in which colours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from sigmacube.io.result_file import Progress, ResultFile
from sigmacube.show import plots

__all__ = ["Part", "Picture", "kinds", "make", "presets"]

#: Pixels along the longer side of a picture; larger parts of a scene are thinned.
LONGEST = 512

_NAMES = {
    "rgb": "Colour",
    "band": "One band",
    "sigma": "σ",
    "ratio": "σ relative to the noise",
    "rank": "Rank",
    "residual": "Residual / noise variance",
    "rejected": "Rejected",
}

_PRESETS = {
    "Colour infrared": plots.COLOR_INFRARED,
    "True colour": (650.0, 550.0, 470.0),
    "Short-wave infrared": (2200.0, 1650.0, 850.0),
}


@dataclass(frozen=True)
class Part:
    """A part of the scene, and the distance of the pixels that are shown of it."""

    rows: slice
    cols: slice
    step: int

    @classmethod
    def of(cls, shape: tuple[int, int, int], box: tuple[float, float, float, float]) -> Part:
        """Return the part that covers a box (top, bottom, left, right) in pixels.

        Examples
        --------
        >>> Part.of((1000, 2000, 5), (-50.0, 400.0, 100.2, 300.0))
        Part(rows=slice(0, 401, None), cols=slice(100, 301, None), step=1)
        """
        top, bottom, left, right = box
        rows = _inside(top, bottom, shape[0])
        cols = _inside(left, right, shape[1])
        longest = max(rows.stop - rows.start, cols.stop - cols.start)
        step = -(-longest // LONGEST)
        # On a grid of steps, so that panning finds the pixels it has already read.
        return cls(_snapped(rows, step), _snapped(cols, step), step)

    @property
    def extent(self) -> tuple[float, float, float, float]:
        """(x, y, width, height) of the picture, pixel centres on whole numbers."""
        rows = len(range(self.rows.start, self.rows.stop, self.step))
        cols = len(range(self.cols.start, self.cols.stop, self.step))
        # Every sample is drawn as large as the pixels it stands for.
        x, y = self.cols.start - 0.5, self.rows.start - 0.5
        return x, y, float(cols * self.step), float(rows * self.step)


def _inside(low: float, high: float, size: int) -> slice:
    if not (np.isfinite(low) and np.isfinite(high)):
        return slice(0, size)
    first = int(np.clip(np.floor(min(low, high)), 0, size - 1))
    last = int(np.clip(np.ceil(max(low, high)), first, size - 1))
    return slice(first, last + 1)


def _snapped(part: slice, step: int) -> slice:
    return slice(part.start // step * step, part.stop)


@dataclass(frozen=True, eq=False)
class Picture:
    """Values of the image pane, and how to draw them."""

    values: np.ndarray
    """(row, col), or (row, col, 3) for colour."""
    low: np.ndarray
    """Value that becomes the first colour; one per channel."""
    high: np.ndarray
    palette: str
    """``"gray"``, ``"viridis"``, ``"cividis"`` or ``"diverging"``; ``"rgb"``."""

    def rgba(self) -> np.ndarray:
        """Return a colour picture as (row, col) of packed 8-bit values; grey for no value."""
        scaled = plots.stretch(self.values, limits=np.stack([self.low, self.high]))
        whole = np.isfinite(scaled).all(axis=2)
        scaled = np.where(whole[..., None], scaled, 0.85)
        packed = np.empty((*scaled.shape[:2], 4), dtype=np.uint8)
        packed[..., :3] = np.round(255 * scaled)
        packed[..., 3] = 255
        return packed.view(np.uint32)[..., 0]


def kinds(source: ResultFile) -> list[tuple[str, str]]:
    """Return the pictures that a result has, as pairs of a key and a name."""
    absent = set()
    if "std" not in source.cubes:
        absent |= {"sigma", "ratio"}
    if "rejected" not in source.cubes:
        absent |= {"rejected"}
    return [(key, name) for key, name in _NAMES.items() if key not in absent]


def presets(source: ResultFile) -> dict[str, list[int]]:
    """Return the choices of red, green and blue whose wavelengths the scene has."""
    usable = _usable(source)
    nm = source.wavelengths
    if nm is None:
        return {"Spread over the bands": plots.color_bands(usable, None)}
    nm = np.asarray(nm, dtype=np.float64)
    # A tenth of the wavelength is as far as the nearest band may lie.
    near = {
        name: colors
        for name, colors in _PRESETS.items()
        if all(np.abs(nm[usable] - color).min() < 0.1 * color for color in colors)
    }
    found = {name: plots.color_bands(usable, nm, colors) for name, colors in near.items()}
    return found or {"Spread over the bands": plots.color_bands(usable, None)}


def _usable(source: ResultFile) -> np.ndarray:
    """Return the bands with values, judged on the pixels in the middle of the scene."""
    rows, cols, _ = source.shape
    for row, col in ((rows // 2, cols // 2), (rows // 4, cols // 4), (3 * rows // 4, cols // 2)):
        filled = np.isfinite(source.spectrum("estimate", row, col))
        if filled.any():
            return filled & source.good_bands
    return source.good_bands


def make(
    source: ResultFile,
    kind: str,
    part: Part,
    *,
    band: int,
    colors: list[int],
    percentiles: tuple[float, float] = (2.0, 98.0),
    progress: Progress | None = None,
) -> Picture:
    """Return the picture of one kind.

    Parameters
    ----------
    source
        The result.
    kind
        One of `kinds`.
    part
        What of the scene.
    band
        Band of the single-band pictures.
    colors
        Bands of red, green and blue.
    percentiles
        Shares (in percent) of the values that become the first and the last colour.
    progress
        See `ResultFile.image`.
    """
    where: dict[str, Any] = {"rows": part.rows, "cols": part.cols, "step": part.step}
    if kind == "rgb":
        channels = [source.image("estimate", b, progress=progress, **where) for b in colors]
        return scaled(np.stack(channels, axis=2), kind, percentiles)
    if kind in ("rank", "residual"):
        name = {"rank": "ranks", "residual": "residual_ratio"}[kind]
        return scaled(source.window_image(name, **where), kind, percentiles)
    cube = {"band": "estimate", "sigma": "std", "ratio": "std", "rejected": "rejected"}[kind]
    values = source.image(cube, band, progress=progress, **where)
    values = values / source.noise_std[band] if kind == "ratio" else values
    return scaled(values, kind, percentiles)


def scaled(values: np.ndarray, kind: str, percentiles: tuple[float, float]) -> Picture:
    """Return values with the limits of their colours."""
    if kind == "rank":
        finite = values[np.isfinite(values)]
        low, high = (finite.min(), finite.max()) if finite.size else (0, 1)
        return Picture(values, np.array([low - 0.5]), np.array([high + 0.5]), "cividis")
    if kind == "residual":
        finite = np.abs(values[np.isfinite(values)] - 1)
        # Never so narrow that sampling scatter looks like a misfit.
        reach = max(float(np.percentile(finite, 99)) if finite.size else 0.0, 0.05)
        return Picture(values, np.array([1 - reach]), np.array([1 + reach]), "diverging")
    if kind == "rejected":
        return Picture(values, np.array([0.0]), np.array([1.0]), "gray")
    channels = values if values.ndim == 3 else values[..., None]
    low, high = plots.stretch_limits(channels, percentiles)
    high = np.where(high > low, high, low + np.maximum(np.abs(low), 1e-6) * 1e-3)
    palette = {"rgb": "rgb", "band": "gray"}.get(kind, "viridis")
    return Picture(values, low, high, palette)
