"""Tiles of a scene: how it is cut, and how large a tile fits in memory."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from sigmacube.core.windows import BLOCK, Axis, WindowGrid
from sigmacube.survey import Survey

__all__ = [
    "Tile",
    "TileGrid",
    "choose_tile",
    "largest_tile",
    "parse_memory",
    "parse_tile",
    "peak_memory",
]

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


def peak_memory(
    survey: Survey, rank: int, tile: tuple[int, int], itemsize: int, keep_factors: bool = False
) -> float:
    """Return the bytes that solving one tile takes at most, without the interpreter.

    Parameters
    ----------
    survey
        What is known of the scene.
    rank
        Components that a window keeps.
    tile
        (rows, cols).
    itemsize
        Bytes per value of the input.
    keep_factors
        Whether the tile also writes the factors of its windows.
    """
    grid, bands = survey.grid, survey.grid.cube_shape[2]
    sides = [_extent(axis, side) for axis, side in zip((grid.rows, grid.cols), tile, strict=True)]
    pixels, windows = sides[0][0] * sides[1][0], sides[0][1] * sides[1][1] * grid.shape[2]
    window = grid.rows.size * grid.cols.size
    source = pixels * survey.shape[2] * (itemsize + 1)
    white = pixels * bands * 8
    factors = windows * rank * (window + grid.bands.size) * 8
    solving = source + white + 2 * factors
    block = [_extent(axis, 1) for axis in (grid.rows, grid.cols)]
    in_block = min(block[0][1], sides[0][1]) * min(block[1][1], sides[1][1]) * grid.shape[2]
    lines = (grid.rows.reach + 1) * (2 * grid.cols.reach + 1)
    pairs = in_block * lines * (rank**2 + bands) * 4
    copies = in_block * (rank * (2 * window + 4 * grid.bands.size) * 8 + 7 * window * 8)
    combining = source + factors + pixels * bands * 12 + pairs + copies
    output = tile[0] * tile[1] * survey.shape[2] * 16
    writing = factors * 5 / 2 + windows * window * 12 + copies if keep_factors else 0.0
    return max(solving, combining, writing) + output


def expected_rank(survey: Survey) -> int:
    """Return the rank that most windows will not exceed, to plan memory with."""
    if isinstance(survey.settings.rank, int):
        return survey.settings.rank
    smaller = min(survey.grid.rows.size * survey.grid.cols.size, survey.grid.bands.size)
    return max(smaller // 8, min(smaller, 10))


def _extent(axis: Axis, side: int) -> tuple[int, int]:
    """Return the pixels and windows that a tile needs along an axis, wherever it lies."""
    block = max(BLOCK * axis.size // axis.step, 1) * axis.step
    span = min(-(-side // block) * block + 2 * (axis.size - 1), axis.length)
    return span, min((span - axis.size) // axis.step + 2, len(axis))


def choose_tile(
    survey: Survey,
    itemsize: int,
    memory: float,
    workers: int = 1,
    keep_factors: bool = False,
) -> tuple[int, int]:
    """Return the largest tile, nearly square, that ``workers`` can solve in ``memory`` bytes."""
    rank = expected_rank(survey)

    def needs(tile: tuple[int, int]) -> float:
        return peak_memory(survey, rank, tile, itemsize, keep_factors)

    told = f"{rank} with {workers} workers" if workers > 1 else str(rank)
    return largest_tile(survey.grid, needs, memory, workers, f"rank {told}")


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
    blocks = [max(BLOCK * a.size // a.step, 1) * a.step for a in (grid.rows, grid.cols)]
    most = [-(-a.length // b) for a, b in zip((grid.rows, grid.cols), blocks, strict=True)]
    budget = memory / workers - BASELINE

    def sides(counts: list[int]) -> tuple[int, int]:
        return counts[0] * blocks[0], counts[1] * blocks[1]

    counts = [1, 1]
    if needs(sides(counts)) > budget:
        least = (needs(sides(counts)) + BASELINE) * workers
        raise ValueError(
            f"Invalid memory {_size(memory)}. It must be at least {_size(least)} for windows of "
            f"{'x'.join(map(str, grid.window))} and {told}."
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


def _size(size: float) -> str:
    """Return bytes as text, rounded up so that it is enough when given back.

    Examples
    --------
    >>> _size(612_345_678)
    '613MB'
    """
    return f"{np.ceil(size / 1e6):.0f}MB" if size < 1e10 else f"{np.ceil(size / 1e8) / 10:.1f}GB"
