"""The error model of overlapping windows as named arrays, and back.

Windows have different ranks, so their components are packed one after the other: row n of ``left``
and ``right`` is a component of U and V of the whitened windows; those of a window begin at its
``first``. Weights are kept by pixel, with a slot for every window that may cover it: they compare
all windows over a pixel, so a tile knows them for its own pixels. Single precision is enough:
errors are known to a few per cent.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from sigmacube.core.lowrank.errors import LowRankErrors, WindowErrors
from sigmacube.core.lowrank.factors import Factors
from sigmacube.core.stored import ArraySpec, ModelArrays
from sigmacube.core.whitening import Noise
from sigmacube.core.windows import Axis, Span, WindowGrid

#: Components that are read together, and elements of a cube.
RUN, STREAMED = 2048, 4_000_000
_WINDOWS = ("window_row", "band_window", "window_col")
_PIXELS = ("row", "col")


def to_arrays(model: LowRankErrors, rows: Span, cols: Span) -> ModelArrays:
    """Return what a model keeps of some rows and columns of the whole scene."""
    factors, grid = model.factors, model.factors.grid
    whole, origin = grid.root, grid.origin
    own = [_own_windows(axis, span) for axis, span in zip((grid.rows, grid.cols), (rows, cols),
                                                          strict=True)]  # fmt: skip
    windows = tuple(slice(*span) for span in own)
    ranks = factors.ranks[windows[0], :, windows[1]]
    used = np.arange(factors.left.shape[3]) < ranks[..., None]
    pixels = grid.rows.size * grid.cols.size
    arrays = {
        "rank": ranks,
        "first": np.cumsum(ranks).reshape(ranks.shape) - ranks,
        "left": factors.left[windows[0], :, windows[1]][used].reshape(-1, pixels),
        "right": factors.right[windows[0], :, windows[1]][used],
        "singular_value": factors.singular_values[windows[0], :, windows[1]][used],
        "residual": factors.residual[windows[0], :, windows[1]],
        "valid_pixels": factors.n_valid[windows],
        "cube_bands": model.bands,
    }
    here = tuple(slice(span[0] - start, span[1] - start)
                 for span, start in zip((rows, cols), origin, strict=True))  # fmt: skip
    noise = model.noise_variance
    maps = {"noise_variance": noise if noise is not None and np.any(noise[here]) else None}
    maps |= {"inflation": model.gap_factor, "pixel_scale": model.pixel_scale}
    for name, kept in maps.items():
        arrays |= {} if kept is None else {name: kept[here]}
    arrays |= {} if model.band_scale is None else {"band_scale": model.band_scale}
    if factors.weighting != "uniform":
        arrays["pixel_weight"] = _weights_by_pixel(factors, rows, cols)
    places = {"row": (*rows, whole.cube_shape[0]), "col": (*cols, whole.cube_shape[1])}
    for dim, axis, span in (("row", grid.rows, own[0]), ("col", grid.cols, own[1])):
        before = int(np.searchsorted(axis.root.starts, axis.origin))
        places[f"window_{dim}"] = (before + span[0], before + span[1], len(axis.root))
    about = {
        "shape": list(whole.cube_shape),
        "window": list(whole.window),
        "step": [axis.step for axis in (whole.rows, whole.cols, whole.bands)],
        "finite_noise": factors.finite_noise,
        "weighting": factors.weighting,
    }
    return ModelArrays.create("windows", about, arrays, places)


def _own_windows(axis: Axis, span: Span) -> Span:
    """Return the windows of a part of an axis that start inside a span of the whole."""
    first, stop = np.searchsorted(axis.starts + axis.origin, span)
    return int(first), int(stop)


def _slots(grid: WindowGrid) -> tuple[int, int]:
    """Return how many windows may cover a pixel along rows and columns."""
    rows, cols = (int(axis.root.count.max()) for axis in (grid.rows, grid.cols))
    return rows, cols


def _weights_by_pixel(factors: Factors, rows: Span, cols: Span) -> np.ndarray:
    """Return (row, col, band window, slot) weights of the windows over pixels of the whole scene.

    The slot of a window is its number along rows and columns, modulo the most windows that cover a
    pixel: those over one pixel are neighbours, so no two of them share a slot.
    """
    grid, slots = factors.grid, _slots(factors.grid)
    shape = (rows[1] - rows[0], cols[1] - cols[0], grid.shape[2], *slots)
    weights = np.zeros(shape, dtype=np.float32)
    for block in grid.root.blocks(rows, cols):
        part = factors.select(*block.windows(grid))  # as in `combine`: those over it alone
        found = part.pixel_weights
        down = list(_overlaps(part.grid.rows, _common(block.rows, rows), rows[0]))
        across = list(_overlaps(part.grid.cols, _common(block.cols, cols), cols[0]))
        for i, slot_i, into_i, of_i in down:
            for j, slot_j, into_j, of_j in across:
                own = found[i, :, j, of_i, of_j]
                weights[into_i, into_j, :, slot_i % slots[0], slot_j % slots[1]] = np.moveaxis(
                    own, 0, 2
                )
    return weights.reshape(*shape[:3], -1)


def _common(one: Span, other: Span) -> Span:
    return max(one[0], other[0]), min(one[1], other[1])


def _overlaps(axis: Axis, span: Span, origin: int) -> Iterator[tuple[int, int, slice, slice]]:
    """Yield the windows over a span: number here and in the whole, where in a part, which of it."""
    first = int(np.searchsorted(axis.root.starts, axis.origin))
    for number, start in enumerate((axis.starts + axis.origin).tolist()):
        low, high = _common((start, start + axis.size), span)
        if low < high:
            into = slice(low - origin, high - origin)
            yield number, first + number, into, slice(low - start, high - start)


@dataclass(frozen=True, eq=False)
class StoredFactors:
    """Window factors in an open file, to be read whole or in part."""

    arrays: ClassVar[Mapping[str, ArraySpec]] = {
        "rank": ArraySpec(_WINDOWS, "int16", "components of the window"),
        "first": ArraySpec(
            _WINDOWS, "int64", "where the components of the window begin", counts=True
        ),
        "left": ArraySpec(
            ("component", "pixel"), "float32",
            "left singular vector of the whitened window, pixels by rows",
        ),
        "right": ArraySpec(
            ("component", "band"), "float32", "right singular vector of the whitened window"
        ),
        "singular_value": ArraySpec(
            ("component",), "float64", "singular value, in units of noise"
        ),
        "residual": ArraySpec(_WINDOWS, "float64", "sum of squares left of the window"),
        "valid_pixels": ArraySpec((_WINDOWS[0], _WINDOWS[2]), "int32", "valid pixels"),
        "cube_bands": ArraySpec(("cube_band",), "int32", "bands of the cube with data, from 0"),
        "pixel_weight": ArraySpec(
            (*_PIXELS, "band_window", "slot"), "float32",
            "weights of the windows over the pixel, by their number modulo the most over a pixel",
        ),
        "noise_variance": ArraySpec(
            (*_PIXELS, "band_cell"), "float32",
            "variance of kept pure noise, relative to the noise",
        ),
        "pixel_scale": ArraySpec(_PIXELS, "float64", "factor of the pixel on its noise", 1.0),
        "band_scale": ArraySpec(
            ("calibrated_band",), "float64", "factor of a calibration on the std", 1.0
        ),
        "inflation": ArraySpec(
            (*_PIXELS, "band_known"), "float32", "factor of left-out elements on the std", 1.0
        ),
    }  # fmt: skip

    found: Mapping[str, Any]
    """The arrays of the file, read when they are indexed."""
    grid: WindowGrid
    """All windows."""
    bands: np.ndarray
    """Indices of the cube's bands that they hold."""
    noise: float | np.ndarray
    n_bands: int
    finite_noise: bool
    weighting: str

    @classmethod
    def from_arrays(
        cls,
        about: Mapping[str, Any],
        arrays: Mapping[str, Any],
        noise: float | np.ndarray,
        n_bands: int,
    ) -> StoredFactors:
        """Return the factors that arrays hold; nothing large is read."""
        grid = WindowGrid.create(
            tuple(about["shape"]), window=tuple(about["window"]), step=tuple(about["step"])
        )
        bands = np.asarray(arrays["cube_bands"][:]).astype(int)
        finite_noise, weighting = bool(about["finite_noise"]), str(about["weighting"])
        return cls(arrays, grid, bands, noise, n_bands, finite_noise, weighting)

    @cached_property
    def ranks(self) -> np.ndarray:
        """(I, K, J) components of every window."""
        ranks = np.asarray(self.found["rank"][:]).astype(int)
        grid = self.grid
        expected = (grid.shape[0], grid.shape[2], grid.shape[1])
        count = int(self.found["singular_value"].shape[0])
        if ranks.shape != expected or int(ranks.sum()) != count:
            raise ValueError(
                f"damaged window factors: {count} components of {ranks.shape} windows. There "
                f"must be {int(ranks.sum())} of {expected}."
            )
        return ranks

    @cached_property
    def _first(self) -> np.ndarray:
        if "first" in self.found:
            return np.asarray(self.found["first"][:])
        return np.cumsum(self.ranks).reshape(self.ranks.shape) - self.ranks

    def span(self, rows: Span, cols: Span) -> tuple[Span, Span]:
        """Return the rows and columns that the windows over some pixels cover."""
        part = self.grid.part(*self._over(rows, cols))
        (top, side), (height, width, _) = part.origin, part.cube_shape
        return (top, top + height), (side, side + width)

    def _over(self, rows: Span, cols: Span) -> tuple[Span, Span]:
        return self.grid.rows.windows_over(*rows), self.grid.cols.windows_over(*cols)

    def bytes_in_memory(self) -> float:
        """Return what the whole model takes in memory while a product is made with it."""
        grid = self.grid
        window = grid.rows.size * grid.cols.size
        components = int(self.ranks.sum()) * (window + grid.bands.size)
        padding = self.ranks.size * max(int(self.ranks.max(initial=1)), 1)
        padded = padding * (window + grid.bands.size)
        return 4.0 * components + 12.0 * padded + 12.0 * self.ranks.size * window

    def product_bytes(self, tile: tuple[int, int], count: int) -> float:
        """Return what the model of a tile takes while ``count`` covariances of bands are found."""
        grid, rank = self.grid, max(int(self.ranks.max(initial=1)), 1)
        counts = []
        for axis, side in zip((grid.rows, grid.cols), tile, strict=True):
            span = min(side + 2 * (axis.size - 1), axis.length)
            counts.append(min((span - axis.size) // axis.step + 2, len(axis)))
        windows, window = counts[0] * counts[1] * grid.shape[2], grid.rows.size * grid.cols.size
        factors = windows * (rank * (window + grid.bands.size) + 2 * window) * 8
        maps = self.ranks.size * 24
        in_block = min(windows, (9 * grid.rows.size // grid.rows.step + 2)
                       * (9 * grid.cols.size // grid.cols.step + 2) * grid.shape[2])  # fmt: skip
        lines = (grid.rows.reach + 1) * (2 * grid.cols.reach + 1)
        pairs = in_block * lines * (rank**2 + 2 * count) * 4
        copies = in_block * (rank * (window + grid.bands.size) * 12 + 3 * window * 8)
        return factors * 1.5 + maps + pairs + copies

    def read(self, rows: Span | None = None, cols: Span | None = None) -> LowRankErrors:
        """Return the error model of the scene, or of the windows over some rows and columns."""
        height, width, _ = self.grid.cube_shape
        windows = self._over(rows or (0, height), cols or (0, width))
        is_whole = rows is None and cols is None
        grid = self.grid if is_whole else self.grid.part(*windows)
        (top, side), (height, width, _) = grid.origin, grid.cube_shape
        down, across = (slice(*span) for span in windows)
        pixels = (slice(top, top + height), slice(side, side + width))
        factors = Factors(
            grid,
            Noise.create(self.noise, self.n_bands).select(self.bands),
            *self._unpacked(grid, down, across),
            residual=np.asarray(self.found["residual"][down, :, across], dtype=np.float64),
            energy=np.zeros((height, width, grid.shape[2])),
            n_valid=np.asarray(self.found["valid_pixels"][down, across]).astype(int),
            finite_noise=self.finite_noise,
            weighting=self.weighting,
            stored_weights=self._weights(grid, windows, pixels),
        )
        variance, scale, gaps = (
            self._floats(name, pixels) for name in ("noise_variance", "pixel_scale", "inflation")
        )
        return LowRankErrors(
            WindowErrors(factors, variance), factors.noise, self.bands, self.n_bands, scale,
            self._floats("band_scale", (slice(None),)), gap_factor=gaps,
        )  # fmt: skip

    def _floats(self, name: str, key: tuple[slice, ...]) -> np.ndarray | None:
        if name not in self.found:
            return None
        return np.asarray(self.found[name][key], dtype=np.float64)

    def _unpacked(
        self, grid: WindowGrid, rows: slice, cols: slice
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return U, V and d of some windows, padded with zeros to their largest rank."""
        ranks = self.ranks[rows, :, cols]
        order = component_rows(self._first[rows, :, cols], ranks)
        most = max(int(ranks.max(initial=0)), 1)
        used = np.arange(most) < ranks[..., None]
        height, width, bands = grid.window
        left = np.zeros((*used.shape, height, width))
        left[used] = self._rows("left", order).reshape(-1, height, width)
        right = np.zeros((*used.shape, bands))
        right[used] = self._rows("right", order)
        singular = np.zeros(used.shape)
        singular[used] = self._rows("singular_value", order)
        return left, right, singular

    def _rows(self, name: str, order: np.ndarray) -> np.ndarray:
        """Return some rows of an array, read in runs of neighbouring ones."""
        array = self.found[name]
        rows = np.empty((len(order), *array.shape[1:]), dtype=array.dtype)
        chunk = order // RUN
        by_chunk = np.argsort(chunk, kind="stable")
        for members in np.split(by_chunk, np.flatnonzero(np.diff(chunk[by_chunk])) + 1):
            if len(members):
                wanted = order[members]
                low = int(wanted.min())
                rows[members] = np.asarray(array[low : int(wanted.max()) + 1])[wanted - low]
        return rows

    def _weights(
        self, grid: WindowGrid, windows: tuple[Span, Span], pixels: tuple[slice, slice]
    ) -> np.ndarray | None:
        """Return (I, K, J, rows, cols) weights of some windows at their pixels."""
        (top, bottom), (left, right) = windows
        if "weight" in self.found:  # by window, as the first release wrote them
            stored = np.asarray(self.found["weight"][top:bottom, :, left:right], dtype=np.float64)
            return stored.reshape(*stored.shape[:3], grid.rows.size, grid.cols.size)
        if "pixel_weight" not in self.found:
            return None
        by_pixel = np.asarray(self.found["pixel_weight"][pixels])
        slots = _slots(grid)
        by_pixel = by_pixel.reshape(*by_pixel.shape[:3], *slots)
        sides = (grid.rows.size, grid.cols.size)
        weights = np.empty((bottom - top, grid.shape[2], right - left, *sides))
        for i, row in enumerate(grid.rows.starts.tolist()):
            for j, col in enumerate(grid.cols.starts.tolist()):
                own = by_pixel[row : row + sides[0], col : col + sides[1], :,
                               (top + i) % slots[0], (left + j) % slots[1]]  # fmt: skip
                weights[i, :, j] = np.moveaxis(own, 2, 0)
        return weights


def component_rows(first: np.ndarray, ranks: np.ndarray) -> np.ndarray:
    """Return where the components of windows lie, from where each begins and how many it has.

    Examples
    --------
    >>> component_rows(np.array([7, 0, 4]), np.array([2, 3, 0]))
    array([7, 8, 0, 1, 2])
    """
    counts = ranks.ravel()
    before = np.cumsum(counts) - counts
    return np.repeat(first.ravel() - before, counts) + np.arange(counts.sum())
