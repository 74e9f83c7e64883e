"""The noisy input of a result, shown beside it: a cube in memory or in a file, read by block."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from sigmacube.cube import Cube
from sigmacube.io.result_file import ResultFile
from sigmacube.io.source import Source

#: Elements that are read together.
_STREAMED = 4_000_000


def open_observed(given: Any, result: ResultFile) -> Cube | Source:
    """Open the noisy input of a result: a file, a `Cube` or an array of the same shape."""
    cube: Cube | Source
    if isinstance(given, str | Path):
        from sigmacube.io import open_source

        cube = open_source(given)
    else:
        cube = given if isinstance(given, Cube) else Cube(np.asarray(given))
    if cube.shape != tuple(result.shape):
        raise ValueError(
            f"Invalid observed {name_of(cube)} of shape {cube.shape}. It must be that of the "
            f"result, {result.shape}."
        )
    return cube


def observed_for(given: Any, path: Any, result: ResultFile) -> Cube | Source | None:
    """Open the noisy input that is given; without one, that which lies beside a result's file."""
    if given is not None:
        return open_observed(given, result)
    return find_observed(path, result) if isinstance(path, str | Path) else None


def find_observed(path: str | Path, result: ResultFile) -> Cube | Source | None:
    """Open the input that a result was made from, where it lies beside the result.

    It must be a plain file name, have the shape of the result and the same scale factor: another
    choice of bands or units would put wrong values beside the estimate.
    """
    beside = input_beside(path, result)
    if beside is None:
        return None
    try:
        opened = open_observed(beside, result)
    except (ValueError, OSError):
        return None
    same = opened.metadata.get("scale_factor") == result.about.metadata.get("scale_factor")
    return opened if same else None


def input_beside(path: str | Path, result: ResultFile) -> Path | None:
    """Return the file that a result says it was made from, where it lies beside the result."""
    name = str(result.about.metadata.get("source") or "")
    beside = Path(path).parent / name
    if not name or Path(name).name != name or not beside.exists() or beside == Path(path):
        return None
    return beside


def name_of(cube: Cube | Source) -> str:
    """Return what to call it: the file's name."""
    return cube.path.name if isinstance(cube, Source) else "observed"


def block_of(cube: Cube | Source, rows: slice, cols: slice) -> np.ndarray:
    """Return (row, col, band) values of a block; NaN where they are masked."""
    values, mask = cube.block(rows, cols)
    values = np.asarray(values, dtype=np.float64)
    return values if mask is None else np.where(mask, values, np.nan)


def picture_of(
    cube: Cube | Source,
    bands: list[int],
    step: int,
    rows: slice | None = None,
    cols: slice | None = None,
) -> np.ndarray:
    """Return some bands of a part of the scene, every ``step``-th pixel, read by strips."""
    rows, cols = rows or slice(0, cube.shape[0]), cols or slice(0, cube.shape[1])
    # Whole groups of rows, so that every step-th one of them is every step-th of the part.
    width = (cols.stop - cols.start) * cube.shape[2]
    strip = max(1, _STREAMED // width // step) * step
    parts = [
        block_of(cube, slice(top, min(top + strip, rows.stop)), cols)[::step, ::step, bands]
        for top in range(rows.start, rows.stop, strip)
    ]
    return np.concatenate(parts)
