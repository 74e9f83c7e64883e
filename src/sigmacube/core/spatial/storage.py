"""The error model of the spatial estimator as named arrays, and back.

Windows are packed one after the other, and their kept directions as well: those of a
window begin where those of the windows before it end. A window over two tiles is stored by both,
with the weights of their own pixels; weights of equal windows are joined when they are read.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from sigmacube.core.errors_in_units import ErrorsInUnits
from sigmacube.core.spatial.errors import SpatialErrors
from sigmacube.core.spatial.fit import padded_rank
from sigmacube.core.spatial.geometry import Box
from sigmacube.core.spatial.views import View, merged
from sigmacube.core.stored import ArraySpec, ModelArrays
from sigmacube.core.whitening import Noise
from sigmacube.core.windows import WindowGrid

__all__ = ["StoredSpatialErrors", "to_arrays"]

Span = tuple[int, int]
_PIXELS = ("row", "col")
#: Windows are read in runs of neighbouring ones, with no more than these between two of them.
GAP = 64
#: Values per view and pixel, of 4 bytes, that making a product takes beside the view itself.
WORK = 6


def to_arrays(model: ErrorsInUnits, whole: WindowGrid, span: tuple[Span, Span]) -> ModelArrays:
    """Return what a model keeps of a region of the scene, ``span`` its rows and columns."""
    white: SpatialErrors = model.white
    box = white.box
    arrays: dict[str, Any] = {
        "basis": white.basis,
        "gain": white.gain,
        "cube_bands": model.bands,
        "loading": white.loading,
        "own_inside": white.own_inside,
        "own_leading": white.own_leading,
        "leading": np.array([white.leading]),
        "own_outside": white.own_outside,
        "restored": white.restored + np.array([box.top, box.left, 0]),
    }
    arrays |= _of_windows(white.views)
    if model.pixel_scale is not None:
        arrays["pixel_scale"] = model.pixel_scale
    if model.band_scale is not None:
        arrays["band_scale"] = model.band_scale
    if model.gap_factor is not None:
        arrays["inflation"] = model.gap_factor
    rows, cols, _ = whole.cube_shape
    places = {"row": (*span[0], rows), "col": (*span[1], cols)}
    about = {
        "shape": list(whole.cube_shape),
        "window": list(whole.window),
        "step": [axis.step for axis in (whole.rows, whole.cols, whole.bands)],
    }
    return ModelArrays.create("spatial", about, arrays, places)


def _of_windows(views: list[View]) -> dict[str, np.ndarray]:
    """Return the arrays of windows, without those that do not meet the region."""
    parts: dict[str, list[np.ndarray]] = {}
    for view in views:
        met = view.weight.any(axis=(1, 2))
        used = (np.arange(view.kept.shape[1]) < view.rank[:, None])[met]
        own = {
            "corner": view.corner[met],
            "rank": view.rank[met],
            "dropped": view.dropped[met],
            "weight": view.weight[met],
            "direction": view.directions[met].transpose(0, 2, 1)[used],
            "kept": view.kept[met][used],
        }
        for name, array in own.items():
            parts.setdefault(name, []).append(array)
    return {name: np.concatenate(found) for name, found in parts.items()}


def _specs() -> dict[str, ArraySpec]:
    specs = {
        "basis": ArraySpec(("band_known", "direction"), "float64", "directions of the scene"),
        "gain": ArraySpec(("direction",), "float64", "factor on the variance along a direction"),
        "cube_bands": ArraySpec(("band_known",), "int32", "band of the cube, from 0"),
        "loading": ArraySpec((*_PIXELS, "direction"), "float32", "error of the scene's directions"),
        "own_inside": ArraySpec(
            _PIXELS, "float32", "share of the pixel's own noise inside the scene's directions"
        ),
        "own_leading": ArraySpec(
            _PIXELS, "float32", "how much more of it there is along the leading directions"
        ),
        "leading": ArraySpec(("count",), "int32", "how many directions are leading"),
        "own_outside": ArraySpec(_PIXELS, "float32", "the same outside of them"),
        "restored": ArraySpec(
            ("component_restored", "row_col_band"), "int32", "elements that are the observation"
        ),
        "pixel_scale": ArraySpec(_PIXELS, "float64", "factor of the pixel on its noise", 1.0),
        "inflation": ArraySpec(
            (*_PIXELS, "band_known"), "float32", "noise of the element over that of its band", 1.0
        ),
        "band_scale": ArraySpec(
            ("calibrated_band",), "float64", "factor of a calibration on the std", 1.0
        ),
    }
    window, kept = "component_window", "component"
    inside = ("window_row", "window_col")
    specs |= {
        "corner": ArraySpec((window, "row_col"), "int32", "first pixel of the window"),
        "rank": ArraySpec((window,), "int16", "kept directions of the window"),
        "dropped": ArraySpec(
            (window, *inside), "float32", "squared error by frequency of other directions"
        ),
        "weight": ArraySpec((window, *inside), "float32", "weight at each pixel"),
        "direction": ArraySpec((kept, "direction"), "float32", "kept direction"),
        "kept": ArraySpec(
            (kept, *inside), "float32", "squared error by frequency of a kept direction"
        ),
    }
    return specs


@dataclass(frozen=True, eq=False)
class StoredSpatialErrors:
    """The error model of the spatial estimator in an open file, to be read whole or in part."""

    arrays: ClassVar[Mapping[str, ArraySpec]] = _specs()

    found: Mapping[str, Any]
    """The arrays of the file, read when they are indexed."""
    grid: WindowGrid
    """The larger windows."""
    noise: Noise
    """Noise of the bands that hold data."""
    n_bands: int

    @classmethod
    def from_arrays(
        cls,
        about: Mapping[str, Any],
        arrays: Mapping[str, Any],
        noise: float | np.ndarray,
        n_bands: int,
    ) -> StoredSpatialErrors:
        """Return the model that arrays hold; nothing large is read."""
        grid = WindowGrid.create(
            tuple(about["shape"]), window=tuple(about["window"]), step=tuple(about["step"])
        )
        bands = np.asarray(arrays["cube_bands"][:]).astype(int)
        return cls(arrays, grid, Noise.create(noise, n_bands).select(bands), n_bands)

    @cached_property
    def _windows(self) -> tuple[np.ndarray, np.ndarray, tuple[int, ...]]:
        """Corners and ranks of all windows, and the sides of a window."""
        return (
            np.asarray(self.found["corner"][:]).astype(int),
            np.asarray(self.found["rank"][:]).astype(int),
            tuple(int(n) for n in self.found["weight"].shape[1:]),
        )

    def span(self, rows: Span, cols: Span) -> tuple[Span, Span]:
        """Return the rows and columns that `read` gives: those asked for."""
        return rows, cols

    def read(self, rows: Span | None = None, cols: Span | None = None) -> ErrorsInUnits:
        """Return the error model of the scene, or of some rows and columns."""
        height, width, _ = self.grid.cube_shape
        (top, bottom), (left, right) = rows or (0, height), cols or (0, width)
        box = Box(top, bottom, left, right)
        pixels = box.slices
        restored = np.asarray(self.found["restored"][:]).astype(np.intp).reshape(-1, 3)
        inside = np.all((restored[:, :2] >= (top, left)) & (restored[:, :2] < (bottom, right)), 1)
        more, leading = np.zeros(box.shape), 0
        if "own_leading" in self.found:
            more = np.asarray(self.found["own_leading"][pixels], dtype=np.float64)
            leading = int(self.found["leading"][0])
        white = SpatialErrors(
            box=box,
            basis=np.asarray(self.found["basis"][:]),
            gain=np.asarray(self.found["gain"][:]),
            views=merged(self._views(box)),
            loading=np.asarray(self.found["loading"][pixels], dtype=np.float64),
            own_inside=np.asarray(self.found["own_inside"][pixels], dtype=np.float64),
            own_leading=more,
            leading=leading,
            own_outside=np.asarray(self.found["own_outside"][pixels], dtype=np.float64),
            restored=restored[inside] - np.array([top, left, 0]),
        )
        scale, band_scale = (
            np.asarray(self.found[name][key], dtype=np.float64) if name in self.found else None
            for name, key in (("pixel_scale", pixels), ("band_scale", slice(None)))
        )
        bands = np.asarray(self.found["cube_bands"][:]).astype(int)
        slope = None
        if "inflation" in self.found:
            slope = np.asarray(self.found["inflation"][pixels], dtype=np.float32)
        return ErrorsInUnits(
            white, self.noise, bands, self.n_bands, scale, band_scale, self.grid, slope
        )

    def _views(self, box: Box) -> list[View]:
        """Return the windows that meet a box, in runs of neighbours in the file."""
        corner, _, side = self._windows
        last = corner + side
        meets = np.flatnonzero(
            (corner[:, 0] < box.bottom) & (last[:, 0] > box.top)
            & (corner[:, 1] < box.right) & (last[:, 1] > box.left)
        )  # fmt: skip
        runs = np.split(meets, np.flatnonzero(np.diff(meets) > GAP) + 1)
        return [view for run in runs if len(run) for view in self._run(run)]

    def _run(self, run: np.ndarray) -> Iterator[View]:
        """Yield some windows of one run, those of like rank together, as they were made."""
        corner, ranks, side = self._windows
        windows = slice(int(run[0]), int(run[-1]) + 1)
        first = np.cumsum(ranks) - ranks
        parts = slice(int(first[run[0]]), int(first[run[-1]] + ranks[run[-1]]))
        direction, kept = (np.asarray(self.found[name][parts]) for name in ("direction", "kept"))
        dropped, weight = (
            np.asarray(self.found[name][windows])[run - run[0]] for name in ("dropped", "weight")
        )
        k = direction.shape[1]
        padded = np.minimum(padded_rank(ranks[run]), k)
        for most in np.unique(padded).tolist():
            mine = np.flatnonzero(padded == most)
            rank, start = ranks[run[mine]], first[run[mine]] - parts.start
            used = np.arange(most) < rank[:, None]
            rows = (start[:, None] + np.arange(most))[used]
            vectors = np.zeros((len(mine), most, k), dtype=np.float32)
            vectors[used] = direction[rows]
            power = np.zeros((len(mine), most, *side), dtype=np.float32)
            power[used] = kept[rows]
            yield View(
                corner[run[mine]], vectors.transpose(0, 2, 1), rank, power, dropped[mine],
                weight[mine],
            )  # fmt: skip

    def _bytes(self, share: float) -> float:
        """Return the bytes of a share of all windows while they are worked with."""
        k = int(self.found["basis"].shape[1])
        _, ranks, side = self._windows
        most = max(int(ranks.max(initial=0)), 1)
        each = (most + WORK) * math.prod(side) + most * k
        return 8.0 * each * max(len(ranks) * share, 1)

    def bytes_in_memory(self) -> float:
        """Return what the whole model takes in memory while a product is made with it."""
        rows, cols, _ = self.grid.cube_shape
        return self._bytes(1.0) + 16.0 * rows * cols * int(self.found["basis"].shape[1])

    def product_bytes(self, tile: tuple[int, int], count: int) -> float:
        """Return what the model of a tile takes while ``count`` covariances of bands are found."""
        rows, cols, _ = self.grid.cube_shape
        axes = (self.grid.rows, self.grid.cols)
        sides = [min(n + 2 * axis.size, axis.length) for n, axis in zip(tile, axes, strict=True)]
        pixels = sides[0] * sides[1]
        k = int(self.found["basis"].shape[1])
        return self._bytes(pixels / (rows * cols)) + pixels * 8.0 * (2 * k + 3 * count)
