"""A Dask-backed `DataArray` in, a result of Dask arrays out.

The scene is surveyed at once, block by block, so that no more than a block is in memory. The arrays
of the result have one chunk per tile; a tile's task reads itself and its halo.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from sigmacube.core.parallel import parallel
from sigmacube.core.validity import broadcast_mask, check_values
from sigmacube.estimators import estimator
from sigmacube.io.dataarray import dataarray_mask, describe
from sigmacube.pipeline import denoise_region, survey_scene
from sigmacube.result import DenoisedCube
from sigmacube.settings import Settings
from sigmacube.survey import Scene, Survey
from sigmacube.tiles.plan import Tile, TileGrid, choose_tile, parse_memory

if TYPE_CHECKING:
    import xarray as xr

#: Memory that one tile's task may take.
TASK_MEMORY = "1GB"


def denoise_lazily(
    array: xr.DataArray,
    noise: Any,
    settings: Settings,
    *,
    mask: np.ndarray | None = None,
    tile: tuple[int, int] | None = None,
) -> DenoisedCube:
    """Return the result for a Dask-backed `DataArray`, to be computed when it is asked for.

    Parameters
    ----------
    array
        Cube on a Dask array, in any order of its dimensions.
    noise, settings, mask
        As for `sigmacube.denoise`.
    tile
        Rows and columns of a chunk of the result; chosen by memory if not given.
    """
    ordered, wavelengths, metadata = describe(array)
    blocks = _Blocks.create(ordered, mask)
    with parallel() as run:
        survey = survey_scene(blocks, noise, settings, run)
    if tile is None:
        tile = choose_tile(survey, ordered.dtype.itemsize, parse_memory(TASK_MEMORY))
    tiles = TileGrid.create(survey.shape, tile)
    parts = [_delayed_tile(blocks, survey, tile) for tile in tiles]
    cubes = _assembled(tiles, parts, survey, ordered.dtype)
    rows, cols = tiles.counts
    result = DenoisedCube(
        noise=survey.noise,
        noise_power=estimator(settings).noise_power(survey),
        wavelengths=wavelengths,
        metadata=metadata,
        settings=survey.record(),
        filled_bands=np.isin(np.arange(survey.shape[2]), survey.bands),
        **cubes,
    )
    middle = parts[rows // 2 * cols + cols // 2]
    return replace(result, typical=partial(_computed, result, middle))


def _computed(result: DenoisedCube, delayed: Any) -> DenoisedCube:
    """Return one tile of a result, computed."""
    import dask

    (part,) = dask.compute(delayed)
    part |= {"rejected": None, "unexplained": np.argwhere(part["unexplained"])}
    return replace(result, **part, filled_bands=None, typical=None)


@dataclass(frozen=True, eq=False)
class _Blocks:
    """A cube on a Dask array and the user's mask, or a region of it, read by block."""

    shape: tuple[int, int, int]
    """Of the whole cube."""
    values: Any
    """Dask array of the region, or what a task has got of it."""
    mask: np.ndarray | None
    about: xr.DataArray
    """An empty array with the attributes of the whole."""
    origin: tuple[int, int] = (0, 0)

    @classmethod
    def create(cls, ordered: xr.DataArray, mask: np.ndarray | None) -> _Blocks:
        """Return a whole cube (row, col, band)."""
        empty = np.empty((0, 0, 0), ordered.dtype)
        check_values(empty)
        about = ordered[:0, :0, :0].copy(data=empty)
        shape: Any = ordered.shape
        mask = None if mask is None else broadcast_mask(mask, shape)
        return cls(shape, ordered.data, mask, about.drop_vars(about.coords))

    def region(self, rows: slice, cols: slice) -> _Blocks:
        """Return some rows and columns, of which nothing is computed."""
        here = tuple(slice(part.start - first, part.stop - first)
                     for part, first in zip((rows, cols), self.origin, strict=True))  # fmt: skip
        own = None if self.mask is None else np.array(self.mask[here])
        return replace(self, values=self.values[here], mask=own, origin=(rows.start, cols.start))

    def block(self, rows: slice, cols: slice) -> tuple[np.ndarray, np.ndarray | None]:
        """Return values and mask of a block, computed now."""
        part = self.region(rows, cols)
        values, own = np.asarray(part.values), part.mask
        valid = dataarray_mask(self.about, values)
        return values, valid if own is None else own if valid is None else valid & own


def _delayed_tile(blocks: _Blocks, survey: Survey, tile: Tile) -> Any:
    import dask

    extent = estimator(survey.settings).extent(Scene(blocks, survey), tile.rows, tile.cols)
    region = blocks.region(*extent)
    task = partial(_solve_tile, replace(region, values=None), survey, tile)
    return dask.delayed(task, pure=False)(region.values)


def _solve_tile(blocks: _Blocks, survey: Survey, tile: Tile, values: Any) -> dict[str, Any]:
    """Return arrays of a tile by fields of `DenoisedCube`; flags in place of listed pixels."""
    source = replace(blocks, values=values)
    with parallel(1) as run:
        part = denoise_region(source, survey, run, rows=tile.rows, cols=tile.cols)
    here = tile.windows_in(survey.grid, part.grid)
    rejected = part.left_out
    if rejected is None:
        rejected = np.zeros(part.estimate.shape, dtype=bool)
    odd = np.zeros(part.estimate.shape[:2], dtype=bool)
    if part.unexplained is not None:
        odd[tuple((part.unexplained - (tile.rows[0], tile.cols[0])).T)] = True
    return {
        "estimate": part.estimate,
        "std": part.std,
        "ranks": part.ranks[here],
        "residual_ratio": part.residual_ratio[here],
        "noise_scale": part.noise_scale,
        "rejected": rejected,
        "unexplained": odd,
    }


def _assembled(
    tiles: TileGrid, parts: list[Any], survey: Survey, dtype: np.dtype
) -> dict[str, Any]:
    """Put the delayed tiles together to Dask arrays."""
    import dask.array as da

    grid = survey.grid
    output = dtype if dtype in (np.float32, np.float64) else np.dtype(np.float64)
    layers = () if len(grid.bands) == 1 else (len(grid.bands),)

    def joined(name: str, kind: Any, depth: tuple[int, ...], windows: bool = False) -> Any:
        lines = []
        for row in range(tiles.counts[0]):
            line = []
            for col in range(tiles.counts[1]):
                tile = tiles[row * tiles.counts[1] + col]
                ends = tile.windows(grid) if windows else (tile.rows, tile.cols)
                size = tuple(stop - start for start, stop in ends)
                if min(size) > 0:
                    task = parts[tile.number][name]
                    line.append(da.from_delayed(task, (*size, *depth), dtype=kind))
            if line:
                lines.append(da.concatenate(line, axis=1))
        return da.concatenate(lines, axis=0)

    bands = survey.shape[2:]
    scaled, chosen = survey.signal_noise is not None, estimator(survey.settings)
    looked = chosen.lists_unexplained
    return {
        "estimate": joined("estimate", output, bands),
        "std": joined("std", output, bands) if survey.settings.uncertainty else None,
        "ranks": joined("ranks", np.int64, layers, windows=True),
        "residual_ratio": joined("residual_ratio", np.float64, layers, windows=True),
        "noise_scale": joined("noise_scale", np.float64, ()) if scaled else None,
        "rejected": joined("rejected", bool, bands) if chosen.sets_aside else None,
        "unexplained": da.argwhere(joined("unexplained", bool, ())) if looked else None,
    }
