"""A Dask-backed `DataArray` in, a result of Dask arrays out.

One pass over the data is made at once (the survey), by tasks that return a few numbers each. The
result's arrays have one chunk per tile; a tile's task reads itself and its halo.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import TYPE_CHECKING, Any

import numpy as np

from sigmacube.core.lowrank.kept_noise import sampled_regions
from sigmacube.core.parallel import parallel
from sigmacube.core.validity import broadcast_mask, check_values
from sigmacube.io.dataset import dataarray_mask, describe
from sigmacube.pipeline import (
    Options,
    extent,
    is_robust,
    keeps_noise,
    part_grid,
    per_window,
    pool_correlation,
    sets_aside,
    settle_noise,
    solve_part,
    take_survey,
)
from sigmacube.result import DenoisedCube
from sigmacube.survey import (
    Coverage,
    Read,
    SettledNoise,
    Survey,
    noise_regions,
    strips,
)
from sigmacube.tiles.finish import StoredResult
from sigmacube.tiles.plan import Tile, TileGrid, choose_tile, parse_memory

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["denoise_lazily"]

Region = tuple[slice, slice]
#: Memory that one tile's task may take.
TASK_MEMORY = "1GB"


@dataclass(frozen=True, eq=False)
class LazyResult(StoredResult):
    """A result of Dask arrays, one chunk per tile."""

    middle: tuple[Any, ...] = ()
    """Delayed estimate, std, ranks, residual ratio, noise scale and rejected of the middle tile."""

    def representative(self) -> DenoisedCube:
        """Return the tile in the middle, computed."""
        import dask

        estimate, std, ranks, ratio, scale, _ = dask.compute(*self.middle)
        return DenoisedCube(
            estimate,
            std,
            ranks,
            self.noise,
            ratio,
            noise_scale=scale,
            wavelengths=self.wavelengths,
            metadata=self.metadata,
            settings=self.settings,
        )


def denoise_lazily(
    array: xr.DataArray,
    noise: float | np.ndarray | str | None,
    options: Options,
    *,
    mask: np.ndarray | None = None,
    tile: tuple[int, int] | None = None,
) -> LazyResult:
    """Return the result for a Dask-backed `DataArray`, to be computed when it is asked for.

    Parameters
    ----------
    array
        Cube on a Dask array, in any order of its dimensions.
    noise, options, mask
        As for `sigmacube.denoise`.
    tile
        Rows and columns of a chunk of the result; chosen by memory if not given.
    """
    ordered, wavelengths, metadata = describe(array)
    blocks = _Blocks(ordered, None if mask is None else broadcast_mask(mask, ordered.shape))
    survey = _survey(blocks, noise, options)
    if tile is None:
        rank, size = survey.expected_rank(options.rank), ordered.dtype.itemsize
        tile = choose_tile(survey, rank, size, parse_memory(TASK_MEMORY))
    tiles = TileGrid.create(survey.shape, tile)
    parts = [_delayed_tile(blocks, survey, options, tile) for tile in tiles]
    cubes = _assembled(tiles, parts, survey, options, ordered.dtype)
    rows, cols = tiles.counts
    return LazyResult(
        noise=survey.noise,
        wavelengths=wavelengths,
        metadata=metadata,
        settings=options.described(survey),
        bands=survey.bands,
        middle=tuple(parts[rows // 2 * cols + cols // 2]),
        **cubes,
    )


class _Blocks:
    """Blocks of a Dask-backed cube and of its mask, as delayed arrays."""

    def __init__(self, ordered: xr.DataArray, mask: np.ndarray | None) -> None:
        check_values(np.empty((0, 0, 0), ordered.dtype))
        self.array, self.mask = ordered, mask
        self.shape: tuple[int, int, int] = ordered.shape  # type: ignore[assignment]

    def delayed(self, region: Region) -> tuple[Any, np.ndarray | None]:
        """Return the values of a region as a Dask array, and the user's mask there."""
        own = None if self.mask is None else np.array(self.mask[region])
        return self.array.data[region], own

    def call(self, function: Any, regions: Sequence[Region], *arguments: Any, nout: int = 1) -> Any:
        """Delay ``function(read, *arguments)`` whose reads lie in some regions."""
        import dask

        values, masks = zip(*(self.delayed(region) for region in regions), strict=True)
        about = self.array[:0, :0, :0].copy(data=np.empty((0, 0, 0), self.array.dtype))
        task = partial(_with_reader, function, list(regions), about.drop_vars(about.coords))
        return dask.delayed(task, nout=nout, pure=False)(list(values), list(masks), arguments)


def _with_reader(
    function: Any,
    regions: Sequence[Region],
    about: xr.DataArray,
    values: Sequence[np.ndarray],
    masks: Sequence[np.ndarray | None],
    arguments: Sequence[Any],
) -> Any:
    """Call a function with a reader for the regions that are at hand."""

    def read(rows: slice, cols: slice) -> tuple[np.ndarray, np.ndarray | None]:
        for (top, side), block, own in zip(regions, values, masks, strict=True):
            if (rows.start >= top.start and rows.stop <= top.stop
                    and cols.start >= side.start and cols.stop <= side.stop):  # fmt: skip
                here = (slice(rows.start - top.start, rows.stop - top.start),
                        slice(cols.start - side.start, cols.stop - side.start))  # fmt: skip
                part = np.asarray(block[here])
                valid = dataarray_mask(about, part)
                mine = None if own is None else own[here]
                both = valid if mine is None else mine if valid is None else valid & mine
                return part, both
        raise LookupError(f"Rows {rows} and columns {cols} are not at hand.")

    return function(read, *arguments)


def _survey(blocks: _Blocks, noise: Any, options: Options) -> Survey:
    """Survey the scene by tasks that return a few numbers each."""
    import dask

    shape = blocks.shape
    whole = [(rows, slice(0, shape[1])) for rows in strips(shape)]
    looks = [blocks.call(_look, [region], region) for region in whole]
    regions = [region for line in noise_regions(shape) for region in line]
    level = blocks.call(_settle, regions, shape, noise, options)
    found, settled = dask.compute(looks, level)
    coverage = reduce(Coverage.joined, found)
    regions = whole[:1]
    if is_robust(options):
        regions = [(slice(0, shape[0]), slice(0, shape[1]))]  # stripes run through all of it
    task = blocks.call(_take_survey, regions, shape, settled, options, coverage)
    survey = dask.compute(task)[0]
    return _with_correlation(blocks, survey, options)


def _settle(read: Read, shape: tuple[int, int, int], noise: Any, options: Options) -> SettledNoise:
    robust = is_robust(options)
    return settle_noise(read, shape, noise, window=options.window, workers=1, impulses=robust)


def _look(read: Read, region: Region) -> Coverage:
    return Coverage.look(*read(*region))


def _take_survey(
    read: Read, shape: tuple[int, int, int], noise: Any, options: Options, coverage: Coverage
) -> Survey:
    with parallel(1) as run:
        return take_survey(read, shape, noise, options, run, coverage=coverage)


def _with_correlation(blocks: _Blocks, survey: Survey, options: Options) -> Survey:
    import dask

    if not keeps_noise(options, survey):
        return survey
    regions = [extent(survey, survey.grid.part(*r)) for r in sampled_regions(survey.grid)]
    return dask.compute(blocks.call(_pool, regions, survey, options))[0]


def _pool(read: Read, survey: Survey, options: Options) -> Survey:
    with parallel(1) as run:
        return pool_correlation(read, survey, options, run)


def _delayed_tile(blocks: _Blocks, survey: Survey, options: Options, tile: Tile) -> Any:
    region = extent(survey, part_grid(survey, tile.rows, tile.cols))
    return blocks.call(_solve_tile, [region], survey, options, tile, nout=6)


def _solve_tile(read: Read, survey: Survey, options: Options, tile: Tile) -> tuple[Any, ...]:
    with parallel(1) as run:
        part = solve_part(read, survey, options, run, rows=tile.rows, cols=tile.cols)
    here = tile.windows_in(survey.grid, part.factors.grid)
    maps = (part.factors.ranks, part.factors.residual_ratio)
    windows = (per_window(map_)[here] for map_ in maps)
    rejected = part.left_out
    if rejected is None:
        rejected = np.zeros(part.estimate.shape, dtype=bool)
    return part.estimate, part.std, *windows, part.noise_scale, rejected


def _assembled(
    tiles: TileGrid, parts: list[Any], survey: Survey, options: Options, dtype: np.dtype
) -> dict[str, Any]:
    """Put the delayed tiles together to Dask arrays."""
    import dask.array as da

    grid = survey.grid
    output = dtype if dtype in (np.float32, np.float64) else np.dtype(np.float64)
    layers = () if len(grid.bands) == 1 else (len(grid.bands),)

    def joined(index: int, kind: Any, windows: bool, depth: tuple[int, ...]) -> Any:
        lines = []
        for row in range(tiles.counts[0]):
            line = []
            for col in range(tiles.counts[1]):
                tile = tiles[row * tiles.counts[1] + col]
                ends = tile.windows(grid) if windows else (tile.rows, tile.cols)
                size = tuple(stop - start for start, stop in ends)
                if min(size) > 0:
                    task = parts[tile.number][index]
                    line.append(da.from_delayed(task, (*size, *depth), dtype=kind))
            if line:
                lines.append(da.concatenate(line, axis=1))
        return da.concatenate(lines, axis=0)

    bands = survey.shape[2:]
    scaled = survey.signal_noise is not None
    return {
        "estimate": joined(0, output, False, bands),
        "std": joined(1, output, False, bands) if options.uncertainty else None,
        "ranks": joined(2, np.int64, True, layers),
        "residual_ratio": joined(3, np.float64, True, layers),
        "noise_scale": joined(4, np.float64, False, ()) if scaled else None,
        "rejected": joined(5, bool, False, bands) if sets_aside(options) else None,
    }
