"""Products of a result that does not fit in memory: tile by tile, each with the windows over it.

Tiles are whole blocks of windows, or for means over blocks of pixels whole batches of these. A tile
reads its pixels and the factors of all windows over them, makes the product as in
memory, and writes its own values to a store beside the output, from which the output is written.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from sigmacube.core.lowrank.covariance import batch_side
from sigmacube.core.progress import Progress
from sigmacube.core.windows import Axis, Span, WindowGrid
from sigmacube.io import product as files
from sigmacube.io.atomic import check_not_input, check_output, remove
from sigmacube.io.result_file import ResultFile, open_result
from sigmacube.io.zarr import library
from sigmacube.products import Product, resample
from sigmacube.products._indices import MOST_REFLECTANCE, TOLERANCE_NM, Index
from sigmacube.products._supports import Supports, means
from sigmacube.result import DenoisedCube
from sigmacube.tiles.execute import Execution, run_tiles
from sigmacube.tiles.plan import largest_tile, parse_memory, parse_tile
from sigmacube.tiles.run import DEFAULT_MEMORY

Make = Callable[[DenoisedCube, Span, "_Place"], Product]
#: Side of the chunks of the store that tiles are written to, in pixels.
CHUNK = 64
#: Values that `sample` looks at, at most.
SAMPLED = 1_000_000


def product_file(
    source: str | Path,
    output: str | Path,
    *,
    index: str | None = None,
    centres: Sequence[float] | None = None,
    fwhm: float | Sequence[float] | None = None,
    aggregate: int | None = None,
    tolerance: float = TOLERANCE_NM,
    memory: str | float | None = None,
    tile: str | int | tuple[int, int] | None = None,
    workers: int | None = None,
    overwrite: bool = False,
    ortho: bool = False,
    progress: Progress | None = None,
) -> Product:
    """Make a product of a result in a file, in bounded memory, and write it.

    Indices, and means over blocks narrower than two windows, have the bits of those made in memory.
    Resampled values agree to rounding (1e-15): BLAS rounds matrix products by their shape.

    Parameters
    ----------
    source
        Result that was written with its window factors, .nc or .zarr.
    output
        Where to write the product, .nc, .zarr or .tif.
    index
        An index or an expression, see `sigmacube.products.index`.
    centres, fwhm
        Bands of another sensor instead, see `sigmacube.products.resample`.
    aggregate
        Side of blocks of pixels: the index of their mean spectra, or the means themselves.
    tolerance
        How far, in nm, the nearest band may be from the wavelength asked for.
    memory
        What may be used, such as ``"2GB"``.
    tile
        Rows and columns of a tile; by default as large as ``memory`` allows.
    workers
        Threads; the number of processors by default.
    overwrite
        Whether an existing output may be replaced.
    ortho
        Whether to put a scene in sensor geometry on a map, nearest neighbour.
    progress
        Called as ``progress(done, total)``, in tiles.

    Returns
    -------
    Product
        A part of what was written, at most a million values spread evenly, to look at.

    Examples
    --------
    >>> import tempfile, sigmacube as sc
    >>> folder = Path(tempfile.mkdtemp())
    >>> noisy = sc.synthetic.add_noise(sc.synthetic.scene((24, 30, 60), rng=1), 0.02, rng=2)
    >>> result = sc.denoise(noisy, 0.02, window=12)
    >>> _ = result.save(folder / "clean.zarr", keep_factors=True)
    >>> made = product_file(folder / "clean.zarr", folder / "ndvi.nc", index="ndvi", tile=12)
    >>> made.estimate.shape
    (24, 30)
    """
    output = Path(output)
    files.check(("row", "col"), output)
    check_output([output], overwrite=overwrite)
    check_not_input([output], [source])
    if (index is None) + (centres is None) + (aggregate is None) == 3:
        raise ValueError("Invalid request: give an index, centres with fwhm, or aggregate.")
    with open_result(source) as opened:
        grid = opened.known_errors().grid
        _check_aggregate(grid, aggregate)
        make = _maker(opened, index, centres, fwhm, aggregate, tolerance, workers)
        if tile is None or memory is not None:
            budget = parse_memory(DEFAULT_MEMORY if memory is None else memory)
            count = _covariances(opened, index, centres)
            needs = partial(product_memory, opened, count)
            sides = largest_tile(grid, needs, budget, told=f" and {count} covariances")
        if tile is not None:
            sides = parse_tile(tile)
        store = output.with_name(f".{output.name}.{secrets.token_hex(4)}.partial.zarr")
        try:
            made = _fill(opened, store, make, list(_places(opened, sides, aggregate)), progress)
            made.save(output, overwrite=overwrite, ortho=ortho)
            return _sampled(made)
        finally:
            remove(store)


def _covariances(opened: ResultFile, index: str | None, centres: Sequence[float] | None) -> int:
    """Return how many covariances of bands a product needs at a pixel."""
    if index is not None:
        bands = len(Index.create(opened.empty(), index, np.inf).bands)
        return bands * (bands + 1) // 2
    return opened.shape[2] if centres is None else len(centres)


def product_memory(opened: ResultFile, count: int, tile: tuple[int, int]) -> float:
    """Return the bytes that the product of a tile takes at most, without the interpreter.

    Parameters
    ----------
    opened
        The result.
    count
        How many covariances of bands the product needs at a pixel.
    tile
        (rows, cols).
    """
    stored = opened.known_errors()
    axes = (stored.grid.rows, stored.grid.cols)
    sides = [min(n + 2 * (axis.size - 1), axis.length) for n, axis in zip(tile, axes, strict=True)]
    cubes = sides[0] * sides[1] * (opened.shape[2] * 48 + count * 24)
    return stored.product_bytes(tile, count) + cubes


@dataclass(frozen=True)
class _Place:
    """Some rows and columns of a scene, and where their values go in the product."""

    rows: Span
    cols: Span
    target: tuple[slice, slice]

    def within(self, origin: Span) -> tuple[slice, slice]:
        """Return these pixels in a part of the result that starts at ``origin``."""
        (top, side), rows, cols = origin, self.rows, self.cols
        return slice(rows[0] - top, rows[1] - top), slice(cols[0] - side, cols[1] - side)


def _check_aggregate(grid: WindowGrid, size: int | None) -> None:
    most = 2 * min(grid.rows.size, grid.cols.size) - 1
    if size is not None and not 1 <= size <= most:
        raise ValueError(
            f"Invalid aggregate {size} within limited memory. It must be from 1 to {most}, below "
            "two windows; wider blocks need the whole result in memory."
        )


def _maker(
    opened: ResultFile,
    index: str | None,
    centres: Sequence[float] | None,
    fwhm: float | Sequence[float] | None,
    aggregate: int | None,
    tolerance: float,
    workers: int | None,
) -> Make:
    """Return what makes the product of a part of the result."""
    if index is not None:
        task = Index.create(opened.empty(), index, tolerance, workers=workers)
        if task.needs_reflectance:
            _check_reflectance(opened, task)

        def of_index(part: DenoisedCube, origin: Span, place: _Place) -> Product:
            own = replace(task, cube=part)
            if aggregate is None:
                return _cut(own.of_spectra(None), place.within(origin))
            return own.of_spectra(_supports(part, origin, place, aggregate))

        return of_index
    if aggregate is not None:
        size = aggregate
        return lambda part, origin, place: means(
            part, _supports(part, origin, place, size), "aggregate", workers
        )
    return lambda part, origin, place: _cut(
        resample(part, centres, fwhm, workers=workers), place.within(origin)
    )


def _supports(part: DenoisedCube, origin: Span, place: _Place, size: int) -> Supports:
    return Supports.blocks_of(part, (size, size), 0.5, place.within(origin), origin)


def _check_reflectance(opened: ResultFile, task: Index) -> None:
    """Refuse values of which more than half are no reflectances."""
    above = known = 0
    for rows in opened.strips():
        values = opened.block("estimate", rows, slice(0, opened.shape[1]))[..., task.columns]
        above += int(np.count_nonzero(values > MOST_REFLECTANCE))
        known += int(np.count_nonzero(np.isfinite(values)))
    if 2 * above > known:
        task.refuse_values(f"more than half of them are above {MOST_REFLECTANCE:g}")


def _cut(made: Product, here: tuple[slice, slice]) -> Product:
    flags = None if made.flags is None else made.flags[here]
    return replace(
        made, estimate=made.estimate[here], std=made.std[here], flags=flags, independent_std=None
    )


def _places(opened: ResultFile, sides: tuple[int, int], aggregate: int | None) -> Iterator[_Place]:
    """Yield the tiles of a scene, by rows."""
    grid = opened.known_errors().grid
    lines = [list(_spans(axis, side, aggregate)) for axis, side in
             zip((grid.rows, grid.cols), sides, strict=True)]  # fmt: skip
    for (rows, top), (cols, side) in product(*lines):
        yield _Place(rows, cols, (top, side))


def _spans(axis: Axis, side: int, size: int | None) -> Iterator[tuple[Span, slice]]:
    """Yield parts of an axis of about ``side`` pixels, and where they go in the product.

    They are whole blocks of the axis; or, for means over ``size`` pixels, whole batches of these.
    """
    if size is None:
        start = 0
        for begin, end in axis.blocks:
            if end - start > side and begin > start:
                yield (start, begin), slice(start, begin)
                start = begin
        yield (start, axis.length), slice(start, axis.length)
        return
    batch = batch_side(axis)
    step = max(side // batch, 1) * batch
    for start in range(0, axis.length, step):
        first, stop = -(-start // size), -(-min(start + step, axis.length) // size)
        if first < stop:
            yield (first * size, min(stop * size, axis.length)), slice(first, stop)


def _fill(
    opened: ResultFile, store: Path, make: Make, places: list[_Place], progress: Progress | None
) -> Product:
    """Write the product of all tiles to a store; return it as Dask arrays of the store."""
    import dask.array as da

    root = library().open_group(store, mode="w")
    shape = tuple(max(place.target[axis].stop for place in places) for axis in (0, 1))
    arrays: dict[str, Any] = {}
    last: list[Product] = []

    def work(number: int) -> tuple[int, Product]:
        place = places[number]
        return number, make(*opened.part(place.rows, place.cols), place)

    def put(done: tuple[int, Product]) -> None:
        number, made = done
        for name in ("estimate", "std", "flags"):
            values = getattr(made, name)
            if name not in arrays:
                depth = values.shape[2:]
                chunks = (*(min(CHUNK, n) for n in shape), *depth)
                arrays[name] = root.create_array(
                    name, shape=(*shape, *depth), dtype=values.dtype, chunks=chunks
                )
            arrays[name][places[number].target] = values
        last[:] = [made]
        if progress is not None:
            progress(number + 1, len(places))

    run_tiles(work, range(len(places)), Execution(), put)
    lazy = {name: da.from_zarr(array) for name, array in arrays.items()}
    return replace(last[0], independent_std=None, **lazy)


def _sampled(made: Product) -> Product:
    """Return a product with some of its pixels, spread evenly, in memory."""
    size = int(np.prod(made.estimate.shape))
    stride = int(np.ceil(np.sqrt(size / SAMPLED)))
    arrays: dict[str, Any] = {
        name: np.asarray(getattr(made, name)[::stride, ::stride])
        for name in ("estimate", "std", "flags")
    }
    return replace(made, **arrays)
