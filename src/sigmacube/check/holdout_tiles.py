"""The hold-out check of a file, tile by tile: the figures of the whole, in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from sigmacube.check.holdout import Check, Holdout, check_request
from sigmacube.check.leave_one_out import SolvedScene, partition
from sigmacube.check.scores import brightness
from sigmacube.core.lowrank.errors import LowRankErrors
from sigmacube.core.parallel import ParallelMap, default_workers, parallel
from sigmacube.core.validity import valid_elements
from sigmacube.core.windows import Axis
from sigmacube.pipeline import (
    Options,
    per_window,
    pixel_scales,
    sets_aside,
    solve_part,
    take_survey,
)
from sigmacube.survey import Survey
from sigmacube.tiles.origin import Origin
from sigmacube.tiles.plan import Tile, choose_tile, parse_memory, parse_tile
from sigmacube.tiles.run import DEFAULT_MEMORY

__all__ = ["holdout_file"]

Progress = Callable[[int, int], None]
Span = tuple[int, int]


def holdout_file(
    source: str | Path,
    noise: float | np.ndarray | str | None = None,
    *,
    share: float = 0.03,
    rng: int | np.random.Generator = 0,
    method: str = "leave-one-out",
    mask: np.ndarray | None = None,
    reading: Mapping[str, Any] | None = None,
    tile: str | int | tuple[int, int] | None = None,
    memory: str | float | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> Holdout:
    """Check the error bars of a cube in a file or store on the cube itself, tile by tile.

    The figures are those of `sigmacube.holdout` on the whole cube, to the last digit, for any tile.

    Parameters
    ----------
    source
        What `sigmacube.read` reads, or the address of a Zarr store.
    noise, mask
        As for `sigmacube.denoise`.
    share, rng, method
        As for `sigmacube.holdout`.
    reading
        Options of `sigmacube.read`.
    tile
        Rows and columns of a tile, such as ``"512x640"``. By default as large as ``memory`` allows.
    memory
        What the check may use, such as ``"2GB"``.
    workers
        Threads, which solve one tile together; as many as there are processors by default.
    progress
        Called as ``progress(done, total)``, in tiles.
    **options
        Options of `sigmacube.denoise` that say how windows are solved.

    Examples
    --------
    >>> import tempfile, sigmacube as sc
    >>> path = Path(tempfile.mkdtemp(), "noisy.npy")
    >>> noisy = sc.synthetic.add_noise(sc.synthetic.scene((40, 30, 20), rng=1), 0.05, rng=2)
    >>> np.save(path, noisy.values)
    >>> check = holdout_file(path, 0.05, window=8, tile=16, workers=1)
    >>> check.to_json() == sc.holdout(noisy.values, noise=0.05, window=8).to_json()
    True
    """
    check_request(method, share)
    chosen = Options(**{**options, "uncertainty": False})
    budget = parse_memory(DEFAULT_MEMORY if memory is None else memory)
    sides = None if tile is None else parse_tile(tile)
    threads = default_workers() if workers is None else workers
    origin = Origin(str(source), dict(reading or {}), mask)
    opened, stamp = origin.open(), origin.stamp()
    with parallel(threads) as run:
        survey = take_survey(origin.read, opened.shape, noise, chosen, run, workers=threads)
        if sides is None or memory is not None:
            rank, size = survey.expected_rank(chosen.rank), opened.value_dtype.itemsize
            fitting = choose_tile(survey, rank, size, budget)
            sides = sides or fitting
        check = Check.create(
            origin.read, survey.grid, survey.shape, survey.bands,
            method=method, share=share, rng=rng,
        )  # fmt: skip
        ranks = _add_tiles(check, origin, survey, chosen, sides, run, progress)
        origin.check(stamp)
        return check.concluded(
            origin.read,
            survey.model.std,
            ranks=ranks,
            noise_source=survey.settled.source,
            scale=pixel_scales(origin.read, survey),
            impulses=sets_aside(chosen),
            wavelengths=opened.wavelengths,
        )


def _add_tiles(
    check: Check,
    origin: Origin,
    survey: Survey,
    options: Options,
    sides: tuple[int, int],
    run: ParallelMap,
    progress: Progress | None,
) -> np.ndarray:
    """Count all tiles; return the ranks of all windows."""
    grid = survey.grid
    ranks = np.zeros(grid.shape if len(grid.bands) > 1 else grid.shape[:2], dtype=np.int64)
    lines = [list(_spans(axis, side)) for axis, side in
             zip((grid.rows, grid.cols), sides, strict=True)]  # fmt: skip
    places = list(product(*lines))
    for number, ((rows, own_rows), (cols, own_cols)) in enumerate(places):
        part = solve_part(origin.read, survey, options, run, rows=rows, cols=cols)
        own = Tile(number, own_rows, own_cols)
        here = own.windows_in(grid, part.factors.grid)
        there = tuple(slice(*ends) for ends in own.windows(grid))
        ranks[there] = per_window(part.factors.ranks)[here]
        # The windows that lie in these rows and columns, of those that were solved.
        inner = [
            (int(np.searchsorted(axis.starts + axis.origin, ends[0])),
             int(np.searchsorted(axis.starts + axis.origin, ends[1] - axis.size, "right")))
            for axis, ends in ((part.factors.grid.rows, rows), (part.factors.grid.cols, cols))
        ]  # fmt: skip
        errors = LowRankErrors(
            part.factors.select(*inner), None, survey.bands, survey.shape[2], part.noise_scale
        )
        values, mask = origin.read(slice(*rows), slice(*cols))
        scene = SolvedScene.create(
            values, part.estimate, errors, part.left_out if sets_aside(options) else None,
            mask=mask, varied=check.look.varied,
        )  # fmt: skip
        there_bands = valid_elements(values, mask)[..., survey.bands]
        check.add(scene, brightness(values[..., survey.bands], there_bands), run)
        if progress is not None:
            progress(number + 1, len(places))
    return ranks


def _spans(axis: Axis, side: int) -> Iterator[tuple[Span, Span]]:
    """Yield parts of an axis that hold whole windows of its partition, about ``side`` long.

    Each with the elements that no other part begins before: windows starting there are its own.
    """
    starts = [int(axis.starts[window]) for window in partition(axis)]
    count = max(side // axis.size, 1)
    for first in range(0, len(starts), count):
        group = starts[first : first + count]
        following = starts[first + count : first + count + 1]
        yield (group[0], group[-1] + axis.size), (group[0], (following or [axis.length])[0])
