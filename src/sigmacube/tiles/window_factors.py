"""Window factors of a run over tiles: each tile keeps its own, and the end packs them.

How many components a tile has is known when it is solved, so tiles cannot write to one array. Each
writes a file in the folder of the run: U, V and d of the windows that start inside it, and what
belongs to its pixels. Weights belong to pixels, too: they compare all windows over a pixel, and a
tile has these for its own pixels only. When all tiles are done the files are packed one after the
other, in the layout of `sigmacube.io.factors`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from io import BytesIO
from typing import TYPE_CHECKING, Any

import numpy as np

from sigmacube.core.lowrank.factors import Factors
from sigmacube.io.factors import ANYWHERE, described
from sigmacube.tiles.faults import passing
from sigmacube.tiles.plan import Tile

if TYPE_CHECKING:
    from sigmacube.pipeline import Part
    from sigmacube.tiles.job import Job

__all__ = ["Create", "file_name", "pack_factors", "tile_factors"]

Create = Callable[[str, tuple[int, ...], tuple[int, ...]], Any]
"""Makes an array of a name, shape and chunks in the output, to be written to by slices."""

#: Components in a chunk of the output, and windows along a side of a chunk of weights.
COMPONENTS, WINDOWS = 512, 16


def file_name(number: int) -> str:
    """Return the name of a tile's factors in the folder of its run.

    Examples
    --------
    >>> file_name(12)
    'factors/000012.npz'
    """
    return f"factors/{number:06d}.npz"


def tile_factors(tile: Tile, part: Part) -> dict[str, np.ndarray]:
    """Return what a solved tile keeps of its windows' factors."""
    factors = part.factors
    rows, cols = tile.windows_in(factors.grid.root, factors.grid)
    ranks = factors.ranks[rows, :, cols]
    used = np.arange(factors.left.shape[3]) < ranks[..., None]
    pixels = factors.grid.rows.size * factors.grid.cols.size
    arrays = {
        "rank": ranks,
        "left": factors.left[rows, :, cols][used].reshape(-1, pixels).astype(np.float32),
        "right": factors.right[rows, :, cols][used].astype(np.float32),
        "singular_value": factors.singular_values[rows, :, cols][used],
        "residual": factors.residual[rows, :, cols],
        "valid_pixels": factors.n_valid[rows, cols],
    }
    if factors.weighting != "uniform":
        arrays["weight"] = _weights_at(factors, tile)
    top, side = factors.grid.origin
    here = (slice(tile.rows[0] - top, tile.rows[1] - top),
            slice(tile.cols[0] - side, tile.cols[1] - side))  # fmt: skip
    if part.noise_variance is not None and np.any(part.noise_variance[here]):
        arrays["noise_variance"] = part.noise_variance[here].astype(np.float32)
    if part.gap_factor is not None:
        arrays["inflation"] = part.gap_factor[here].astype(np.float32)
    return arrays


def _weights_at(factors: Factors, tile: Tile) -> np.ndarray:
    """Return (I, K, J, rows, cols) weights of all windows over a tile, zero outside of it."""
    grid = factors.grid
    (top, bottom), (left, right) = _windows_over(factors, tile)
    size = (grid.rows.size, grid.cols.size)
    weights = np.zeros((bottom - top, grid.shape[2], right - left, *size), dtype=np.float32)
    for block in grid.blocks(tile.rows, tile.cols):
        windows = block.windows(grid)
        # As in `combine`: weights of a block rest on the windows over it alone.
        found = factors.select(*windows).pixel_weights
        inside, there, own = [], [], []
        for (first, stop), begin, end, axis, mine, theirs in (
            (windows[0], top, bottom, grid.rows, tile.rows, block.rows),
            (windows[1], left, right, grid.cols, tile.cols, block.cols),
        ):
            low, high = max(first, begin), min(stop, end)
            pixel = axis.origin + axis.starts[low:high, None] + np.arange(axis.size)
            limits = max(mine[0], theirs[0]), min(mine[1], theirs[1])
            inside.append((pixel >= limits[0]) & (pixel < limits[1]))
            there.append(slice(low - begin, high - begin))
            own.append(slice(low - first, high - first))
        where = inside[0][:, None, None, :, None] & inside[1][None, None, :, None, :]
        np.copyto(
            weights[there[0], :, there[1]], found[own[0], :, own[1]], casting="same_kind",
            where=where,
        )  # fmt: skip
    return weights


def _windows_over(factors: Factors, tile: Tile) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return the windows (first, stop) of a part's grid that cover any pixel of a tile."""
    rows, cols = (
        axis.windows_over(ends[0] - axis.origin, ends[1] - axis.origin)
        for axis, ends in ((factors.grid.rows, tile.rows), (factors.grid.cols, tile.cols))
    )
    return rows, cols


def pack_factors(job: Job, noise_scale: np.ndarray | None, create: Create) -> str:
    """Write the factors of all tiles to the output; return the attribute that tells of them."""
    packing = _Packing(job, create)
    packing.write_windows()
    packing.write_components()
    if job.options.weights != "uniform":
        packing.write_weights()
    packing.write_pixels("noise_variance", 0.0)
    packing.write_pixels("inflation", 1.0)
    if noise_scale is not None:
        packing.write_whole("factor_pixel_scale", noise_scale)
    options = job.options
    return described(
        job.survey.grid,
        finite_noise=options.finite_noise and options.overlap == "exact",
        weighting=options.weights,
        layout=ANYWHERE,
    )


@dataclass(frozen=True, eq=False)
class _Packing:
    """The files of all tiles on their way to the output, one tile in memory at a time."""

    job: Job
    create: Create

    def write_whole(self, name: str, values: np.ndarray) -> None:
        """Write an array that is small."""
        chunks = tuple(min(size, COMPONENTS) for size in values.shape)
        self.create(name, values.shape, chunks)[...] = values

    @cached_property
    def _windows(self) -> dict[str, np.ndarray]:
        """Maps of all windows; ``first`` is where their components begin."""
        rows, cols, bands = self.job.survey.grid.shape
        shape = (rows, bands, cols)
        maps = {
            "rank": np.zeros(shape, np.int64),
            "first": np.zeros(shape, np.int64),
            "residual": np.zeros(shape),
            "valid_pixels": np.zeros((rows, cols), np.int64),
        }
        begin = 0
        for tile in self.job.tiles:
            here = self._own(tile)
            with self._open(tile) as file:
                for name in ("rank", "residual"):
                    maps[name][here[0], :, here[1]] = file[name]
                maps["valid_pixels"][here] = file["valid_pixels"]
            ranks = maps["rank"][here[0], :, here[1]]
            before = np.cumsum(ranks).reshape(ranks.shape) - ranks
            maps["first"][here[0], :, here[1]] = begin + before
            begin += int(ranks.sum())
        return maps

    def write_windows(self) -> None:
        """Write what there is one of per window, and the bands."""
        for name, values in self._windows.items():
            self.write_whole(f"factor_{name}", values)
        self.write_whole("factor_cube_bands", self.job.survey.bands)

    def write_components(self) -> None:
        """Write U, V and d, tile after tile."""
        rows, cols, bands = self.job.survey.grid.window
        count = int(self._windows["rank"].sum())
        chunk = max(min(count, COMPONENTS), 1)
        arrays = {
            name: self.create(f"factor_{name}", (count, *shape), (chunk, *shape))
            for name, shape in (
                ("left", (rows * cols,)), ("right", (bands,)), ("singular_value", ()),
            )
        }  # fmt: skip
        begin = 0
        for tile in self.job.tiles:
            passing("packing-during")
            with self._open(tile) as file:
                values = {name: file[name] for name in arrays}
            end = begin + len(values["left"])
            if end > begin:
                for name, array in arrays.items():
                    array[begin:end] = values[name]
            begin = end

    def write_weights(self) -> None:
        """Write the weights of each tile's own windows, from all tiles that these reach into."""
        grid = self.job.survey.grid
        pixels = grid.rows.size * grid.cols.size
        shape = (grid.shape[0], grid.shape[2], grid.shape[1], pixels)
        chunks = (min(shape[0], WINDOWS), 1, min(shape[2], WINDOWS), pixels)
        array = self.create("factor_weight", shape, chunks)
        for tile in self.job.tiles:
            rows, cols = self._own(tile)
            if rows.start == rows.stop or cols.start == cols.stop:
                continue
            own = np.zeros((rows.stop - rows.start, shape[1], cols.stop - cols.start,
                            grid.rows.size, grid.cols.size), dtype=np.float32)  # fmt: skip
            for other in self._reached(rows, cols):
                pairs = [
                    _common(axis.windows_over(*ends), part)
                    for axis, ends, part in (
                        (grid.rows, other.rows, rows), (grid.cols, other.cols, cols),
                    )
                ]  # fmt: skip
                there, here = zip(*pairs, strict=True)
                with self._open(other) as file:
                    # Zero where the other tile does not know them: pixels belong to one tile.
                    own[here[0], :, here[1]] += file["weight"][there[0], :, there[1]]
            array[rows, :, cols] = own.reshape(*own.shape[:3], pixels)

    def write_pixels(self, name: str, otherwise: float) -> None:
        """Write what belongs to pixels, if any tile has it; the others have ``otherwise``."""
        depth = 0
        for tile in self.job.tiles:
            with self._open(tile) as file:
                if name in file.files:
                    depth = file[name].shape[2]
                    break
        if not depth:
            return
        shape = (*self.job.survey.shape[:2], depth)
        chunks = (*self.job.tiles.chunk, min(depth, self.job.tiles.chunks[2]))
        array = self.create(f"factor_{name}", shape, chunks)
        for tile in self.job.tiles:
            with self._open(tile) as file:
                known = name in file.files
                array[tile.slices] = file[name] if known else np.full(
                    (*(stop - start for start, stop in (tile.rows, tile.cols)), depth),
                    otherwise, dtype=np.float32,
                )  # fmt: skip

    def _own(self, tile: Tile) -> tuple[slice, slice]:
        rows, cols = tile.windows(self.job.survey.grid)
        return slice(*rows), slice(*cols)

    def _reached(self, rows: slice, cols: slice) -> Iterator[Tile]:
        """Yield the tiles that some windows reach into."""
        ends = []
        for axis, part in zip(
            (self.job.survey.grid.rows, self.job.survey.grid.cols), (rows, cols), strict=True
        ):
            first, last = axis.starts[part.start], axis.starts[part.stop - 1]
            ends.append((int(first), int(last) + axis.size))
        tiles = self.job.tiles
        for row in range(ends[0][0] // tiles.tile[0], -(-ends[0][1] // tiles.tile[0])):
            for col in range(ends[1][0] // tiles.tile[1], -(-ends[1][1] // tiles.tile[1])):
                yield tiles[row * tiles.counts[1] + col]

    def _open(self, tile: Tile) -> Any:
        """Open the file of a tile, whose arrays are read when they are asked for."""
        folder, name = self.job.folder, file_name(tile.number)
        if folder.local is not None:
            return np.load(folder.local / name, allow_pickle=False)
        content = folder.read(name)
        if content is None:
            raise FileNotFoundError(f"{folder.place}/{name}: the factors of a tile are missing.")
        return np.load(BytesIO(content), allow_pickle=False)


def _common(span: tuple[int, int], part: slice) -> tuple[slice, slice]:
    """Return the windows that a span and a part have in common, counted from each one's start."""
    low, high = max(span[0], part.start), min(span[1], part.stop)
    high = max(high, low)
    return slice(low - span[0], high - span[0]), slice(low - part.start, high - part.start)
