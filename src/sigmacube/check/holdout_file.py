"""The hold-out check of a file, tile by tile, in bounded memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from sigmacube import io
from sigmacube.check.holdout import Holdout, check_share, compare
from sigmacube.core.parallel import default_workers, parallel
from sigmacube.core.progress import Progress
from sigmacube.io.watch import check_unchanged, stamp
from sigmacube.settings import Settings
from sigmacube.survey import Survey
from sigmacube.tiles.plan import TileGrid, choose_tile, parse_memory, parse_tile
from sigmacube.tiles.run import DEFAULT_MEMORY

__all__ = ["holdout_file"]


def holdout_file(
    source: str | Path,
    noise: float | np.ndarray | str | None = None,
    *,
    share: float = 0.03,
    rng: int | np.random.Generator = 0,
    mask: np.ndarray | None = None,
    reading: Mapping[str, Any] | None = None,
    tile: str | int | tuple[int, int] | None = None,
    memory: str | float | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> Holdout:
    """Check the error bars of a cube in a file or store on the cube itself, tile by tile.

    The coverage is that of `sigmacube.holdout` on the whole cube, for any tile.

    Parameters
    ----------
    source
        What `sigmacube.read` reads, or the address of a Zarr store.
    noise, mask
        As for `sigmacube.denoise`.
    share, rng
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
    >>> check.coverage == sc.holdout(noisy.values, noise=0.05, window=8).coverage
    True
    """
    check_share(share)
    settings = Settings.of({**options, "uncertainty": True})
    budget = parse_memory(DEFAULT_MEMORY if memory is None else memory)
    sides = None if tile is None else parse_tile(tile)
    opened = io.open_source(source, mask=mask, **(reading or {}))
    former = stamp(opened)

    def tiles(survey: Survey) -> Any:
        fitting = sides or choose_tile(survey, opened.dtype.itemsize, budget)
        return [(tile.rows, tile.cols) for tile in TileGrid.create(survey.shape, fitting)]

    threads = default_workers() if workers is None else workers
    seed = rng if isinstance(rng, int) else int(rng.integers(2**63))
    with parallel(threads) as run:
        check = compare(
            opened, noise, settings, tiles, run,
            share=share, seed=seed, workers=threads, progress=progress,
        )  # fmt: skip
    check_unchanged(opened, former)
    return replace(check, wavelengths=opened.wavelengths)
