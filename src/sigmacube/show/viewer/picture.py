"""What the image pane shows: which values, on which scale, in which colours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from bokeh import palettes

from sigmacube.cube import Cube
from sigmacube.io.observed import picture_of
from sigmacube.io.result_file import Growing, ResultFile
from sigmacube.io.source import Source
from sigmacube.show import plots

#: Pixels along the longer side of a picture; larger parts of a scene are thinned.
LONGEST = 512

#: Key and name of every picture, in groups.
GROUPS = {
    "Scene": {
        "rgb": "Denoised, colour",
        "observed_rgb": "Observed, colour",
        "band": "Denoised, one band",
        "observed": "Observed, one band",
    },
    "Taken away": {"removed": "Removed: observed − denoised", "z": "z: removed / noise σ"},
    "Uncertainty": {"sigma": "σ", "ratio": "σ relative to the noise"},
    "Model": {"rank": "Rank", "residual": "Residual / noise variance", "rejected": "Rejected"},
}
#: Pictures that need the noisy input, and what they are read from beside it.
_OBSERVED = {"observed_rgb": "rgb", "observed": "band", "removed": "band", "z": "band"}
#: Limits of z: beyond them one value in 400 lies, where what was removed is noise.
_Z = 3.0

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
        down, across = (slice(s.start // step * step, s.stop) for s in (rows, cols))
        return cls(down, across, step)

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

    def colors(self) -> list[str]:
        """Return the colours from the lowest to the highest value."""
        if self.palette == "cividis":
            steps = round(float(self.high[0] - self.low[0]))
            return list(palettes.cividis(max(2, min(steps, 256))))
        if self.palette == "diverging":
            return list(palettes.interp_palette(palettes.RdBu11, 255))
        return list({"gray": palettes.Greys256, "viridis": palettes.Viridis256}[self.palette])

    def rgba(self) -> np.ndarray:
        """Return the picture as (row, col) of packed 8-bit values; grey for no value."""
        if self.palette == "rgb":
            scaled = plots.stretch(self.values, limits=np.stack([self.low, self.high]))
        else:
            scaled = self._colored()
        whole = np.isfinite(scaled).all(axis=2)
        scaled = np.where(whole[..., None], scaled, 0.85)
        packed = np.empty((*scaled.shape[:2], 4), dtype=np.uint8)
        packed[..., :3] = np.round(255 * scaled)
        packed[..., 3] = 255
        return packed.view(np.uint32)[..., 0]

    def _colored(self) -> np.ndarray:
        """Return (row, col, 3) colours between 0 and 1 of a picture with a palette."""
        table = np.array([[int(c[i : i + 2], 16) for i in (1, 3, 5)] for c in self.colors()]) / 255
        share = (self.values - self.low[0]) / (self.high[0] - self.low[0])
        known = np.isfinite(share)
        place = np.clip(np.where(known, share, 0) * len(table), 0, len(table) - 1).astype(int)
        return np.where(known[..., None], table[place], np.nan)


def kinds(source: ResultFile, *, observed: bool = False) -> dict[str, list[tuple[str, str]]]:
    """Return the pictures that a result has, as pairs of a key and a name, in groups."""
    absent = set() if observed else set(_OBSERVED)
    if "std" not in source.cubes:
        absent |= {"sigma", "ratio"}
    if "rejected" not in source.cubes:
        absent |= {"rejected"}
    found = {
        group: [(key, name) for key, name in members.items() if key not in absent]
        for group, members in GROUPS.items()
    }
    return {group: members for group, members in found.items() if members}


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
    observed: Cube | Source | None = None,
    progress: Growing | None = None,
) -> Picture:
    """Return the picture of one of `kinds`: of one band, or of red, green and blue ``colors``.

    ``percentiles`` of the values become the first and the last colour; ``observed`` is the noisy
    input, for the pictures that need it; ``progress`` is that of `ResultFile.image`.
    """
    if kind in _OBSERVED:
        return _beside(source, observed, kind, part, band, colors, percentiles, progress)
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


def _beside(
    source: ResultFile,
    observed: Cube | Source | None,
    kind: str,
    part: Part,
    band: int,
    colors: list[int],
    percentiles: tuple[float, float],
    progress: Growing | None,
) -> Picture:
    """Return a picture of the noisy input, or of what was taken from it."""
    if observed is None:
        raise ValueError(f"Invalid picture {kind!r}: the noisy input is not at hand.")
    after = make(source, _OBSERVED[kind], part, band=band, colors=colors, percentiles=percentiles,
                 progress=progress)  # fmt: skip
    bands = colors if kind == "observed_rgb" else [band]
    before = picture_of(observed, bands, part.step, part.rows, part.cols)
    if kind in ("observed_rgb", "observed"):
        # On the scale of the estimate, or a flicker between both would show a change of scale.
        values = before if kind == "observed_rgb" else before[..., 0]
        return Picture(values, after.low, after.high, after.palette)
    removed = before[..., 0] - after.values
    return scaled(removed / noise_of(source, band, part) if kind == "z" else removed, kind,
                  percentiles)  # fmt: skip


def noise_of(source: ResultFile, band: int, part: Part) -> np.ndarray:
    """Return the standard deviation of the noise of a band: one, or one per pixel of a part."""
    level, scale = np.asarray(source.noise_std[band]), source.about.noise_scale
    if scale is None:
        return level
    return np.asarray(level * scale[part.rows, part.cols][:: part.step, :: part.step])


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
    if kind == "z":
        return Picture(values, np.array([-_Z]), np.array([_Z]), "diverging")
    if kind == "removed":
        finite = np.abs(values[np.isfinite(values)])
        reach = float(np.percentile(finite, percentiles[1])) if finite.size else 0.0
        reach = reach or 1e-6
        return Picture(values, np.array([-reach]), np.array([reach]), "diverging")
    if kind == "rejected":
        return Picture(values, np.array([0.0]), np.array([1.0]), "gray")
    channels = values if values.ndim == 3 else values[..., None]
    low, high = plots.stretch_limits(channels, percentiles)
    high = np.where(high > low, high, low + np.maximum(np.abs(low), 1e-6) * 1e-3)
    palette = {"rgb": "rgb", "band": "gray"}.get(kind, "viridis")
    return Picture(values, low, high, palette)
