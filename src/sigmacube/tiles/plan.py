"""Tiles of a scene: how it is cut, and how large a tile fits in memory."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from sigmacube.core.windows import BLOCK, WindowGrid
from sigmacube.estimators import estimator
from sigmacube.survey import Survey

#: What the interpreter, the libraries and their buffers take, measured; bytes.
BASELINE = 170e6
#: Sides of stored chunks lie between these where the tile allows: good for pictures and spectra.
CHUNK = (32, 80)
BAND_CHUNK = 64
_UNITS = {"": 1, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}


def parse_memory(text: str | int | float) -> float:
    """Return bytes for a text such as ``2GB``, ``500 MB`` or ``1.5GiB``.

    Examples
    --------
    >>> parse_memory("2GB"), parse_memory("0.5 GiB")
    (2000000000.0, 536870912.0)
    """
    if not isinstance(text, str):
        return float(text)
    found = re.fullmatch(r"\s*([0-9]*\.?[0-9]+)\s*([kmgt]?)(i?)b?\s*", text.lower())
    if found is None or float(found[1]) <= 0 or (found[3] and not found[2]):
        raise ValueError(f"Invalid memory {text!r}. It must be a size such as 2GB or 500MB.")
    power = " kmgt".index(found[2] or " ")
    return float(found[1]) * (1024.0**power if found[3] else _UNITS[found[2]])


def check_memory(memory: str | float) -> float:
    """Return bytes; refuse what not even the interpreter fits in, before anything is read."""
    size = parse_memory(memory)
    if size <= BASELINE:
        raise ValueError(
            f"Invalid memory {as_size(size)}. It must be at least {as_size(BASELINE, up=True)} for "
            "the program itself, and more for a tile of the scene; give a size such as 500MB."
        )
    return size


def parse_tile(text: str | int | tuple[int, int]) -> tuple[int, int]:
    """Return (rows, cols) for a text such as ``512x640`` or ``512``.

    Examples
    --------
    >>> parse_tile("512x640"), parse_tile("512")
    ((512, 640), (512, 512))
    """
    if isinstance(text, str):
        found = re.fullmatch(r"\s*(\d+)(?:\s*[x×]\s*(\d+))?\s*", text.lower())
        sides = (int(found[1]), int(found[2] or found[1])) if found else (0, 0)
    else:
        sides = (text, text) if isinstance(text, int) else (int(text[0]), int(text[1]))
    if min(sides) < 1:
        raise ValueError(f"Invalid tile {text!r}. It must be ROWSxCOLS in pixels, such as 512x640.")
    return sides


@dataclass(frozen=True)
class Tile:
    """Some rows and columns that are computed and written together."""

    number: int
    rows: tuple[int, int]
    cols: tuple[int, int]

    @property
    def slices(self) -> tuple[slice, slice]:
        """The tile as an index of (row, col) arrays."""
        return slice(*self.rows), slice(*self.cols)

    def windows(self, grid: WindowGrid) -> tuple[tuple[int, int], tuple[int, int]]:
        """Return the windows (first, stop) along rows and columns that start inside the tile."""
        first_row, stop_row = np.searchsorted(grid.rows.starts, self.rows)
        first_col, stop_col = np.searchsorted(grid.cols.starts, self.cols)
        return (int(first_row), int(stop_row)), (int(first_col), int(stop_col))

    def windows_in(self, whole: WindowGrid, part: WindowGrid) -> tuple[slice, slice]:
        """Return where these windows lie in the maps of a part of the whole grid."""
        rows, cols = (
            slice(*(window - int(np.searchsorted(axis.starts, origin)) for window in ends))
            for ends, axis, origin in zip(
                self.windows(whole), (whole.rows, whole.cols), part.origin, strict=True
            )
        )
        return rows, cols


@dataclass(frozen=True)
class TileGrid:
    """A scene cut into tiles, row by row, that are whole chunks of what is stored.

    Examples
    --------
    >>> grid = TileGrid.create((500, 300, 10), (160, 202))
    >>> grid.tile, grid.chunk, len(grid)
    ((160, 256), (80, 64), 8)
    >>> grid[5]
    Tile(number=5, rows=(320, 480), cols=(256, 300))
    """

    shape: tuple[int, int, int]
    tile: tuple[int, int]
    chunk: tuple[int, int]

    @classmethod
    def create(cls, shape: tuple[int, int, int], tile: tuple[int, int]) -> TileGrid:
        """Cut a cube into tiles of about ``tile``: enlarged where chunks would not divide them."""
        sides = [_with_chunk(min(side, size)) for side, size in zip(tile, shape, strict=False)]
        return cls(shape, (sides[0][0], sides[1][0]), (sides[0][1], sides[1][1]))

    @property
    def counts(self) -> tuple[int, int]:
        """Number of tiles along rows and columns."""
        return -(-self.shape[0] // self.tile[0]), -(-self.shape[1] // self.tile[1])

    @property
    def chunks(self) -> tuple[int, int, int]:
        """Sides of a stored chunk (row, col, band)."""
        return (*self.chunk, min(self.shape[2], BAND_CHUNK))

    def __len__(self) -> int:
        return self.counts[0] * self.counts[1]

    def __getitem__(self, number: int) -> Tile:
        if not 0 <= number < len(self):
            raise IndexError(number)
        row, col = divmod(number, self.counts[1])
        ends = [
            (start, min(start + side, size))
            for start, side, size in zip(
                (row * self.tile[0], col * self.tile[1]), self.tile, self.shape, strict=False
            )
        ]
        return Tile(number, ends[0], ends[1])

    def __iter__(self) -> Iterator[Tile]:
        return (self[number] for number in range(len(self)))


def _with_chunk(side: int) -> tuple[int, int]:
    """Return a side of a tile and the chunk that divides it."""
    low, high = CHUNK
    if side <= high:
        return side, side
    for chunk in range(high, low - 1, -1):
        if side % chunk == 0:
            return side, chunk
    return side + -side % 64, 64


def choose_tile(
    survey: Survey,
    itemsize: int,
    memory: float,
    workers: int = 1,
    keep_factors: bool = False,
) -> tuple[int, int]:
    """Return the largest tile, nearly square, that ``workers`` can solve in ``memory`` bytes."""
    chosen = estimator(survey.settings)

    def needs(tile: tuple[int, int]) -> float:
        return chosen.tile_bytes(survey, tile, itemsize, keep_factors)

    several = f" and {workers} workers" if workers > 1 else ""
    return largest_tile(survey.grid, needs, memory, workers, several)


def smallest_tile_bytes(survey: Survey, itemsize: int, keep_factors: bool = False) -> float:
    """Return what a process needs to solve the smallest tile, the interpreter included."""
    tile = _blocks(survey.grid)
    return BASELINE + estimator(survey.settings).tile_bytes(survey, tile, itemsize, keep_factors)


def _blocks(grid: WindowGrid) -> tuple[int, int]:
    """Return the sides of the smallest tile: the blocks that windows are combined in."""
    rows, cols = (max(BLOCK * a.size // a.step, 1) * a.step for a in (grid.rows, grid.cols))
    return rows, cols


def largest_tile(
    grid: WindowGrid,
    needs: Callable[[tuple[int, int]], float],
    memory: float,
    workers: int = 1,
    told: str = "",
) -> tuple[int, int]:
    """Return the largest tile of whole blocks, nearly square, for which there is memory.

    Parameters
    ----------
    grid
        Windows of the scene.
    needs
        Bytes that a tile (rows, cols) takes beside the interpreter.
    memory
        Bytes for all workers.
    workers
        How many tiles are in memory at a time.
    told
        What an error says beside the windows.
    """
    blocks = _blocks(grid)
    most = [-(-a.length // b) for a, b in zip((grid.rows, grid.cols), blocks, strict=True)]
    budget = memory / workers - BASELINE

    def sides(counts: list[int]) -> tuple[int, int]:
        return counts[0] * blocks[0], counts[1] * blocks[1]

    counts = [1, 1]
    if needs(sides(counts)) > budget:
        least = (needs(sides(counts)) + BASELINE) * workers
        raise ValueError(
            f"Invalid memory {as_size(memory)}. It must be at least {as_size(least, up=True)} for "
            f"windows of {'x'.join(map(str, grid.window))}{told}."
        )
    while True:
        options = [
            [counts[0] + (axis == 0), counts[1] + (axis == 1)]
            for axis in sorted((0, 1), key=lambda a: counts[a] * blocks[a])
            if counts[axis] < most[axis]
        ]
        larger = next((o for o in options if needs(sides(o)) <= budget), None)
        if larger is None:
            return sides(counts)
        counts = larger


def as_size(size: float, *, up: bool = False) -> str:
    """Return bytes as text; rounded ``up`` it is enough when given back.

    Examples
    --------
    >>> as_size(612_345_678, up=True), as_size(4), as_size(2e10)
    ('613MB', '4 bytes', '20.0GB')
    """
    for least, unit in ((1e10, "GB"), (1e6, "MB"), (1e3, "kB")):
        if size >= least:
            scale = {"GB": 1e9, "MB": 1e6, "kB": 1e3}[unit]
            digits = 1 if unit == "GB" else 0
            told = np.ceil(size / scale * 10**digits) / 10**digits if up else size / scale
            return f"{told:.{digits}f}{unit}"
    return f"{size:g} bytes"
