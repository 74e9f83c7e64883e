"""Error models of a run over tiles: each tile keeps its own part, and the end packs them.

How many components a tile has is known when it is solved, so tiles cannot write to one array. Each
writes a file in the folder of the run; when all tiles are done these are packed one after the
other, by the code that writes the error model of a scene in memory.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from io import BytesIO
from typing import TYPE_CHECKING, Any

import numpy as np

from sigmacube.core.stored import ModelArrays
from sigmacube.io.error_models import Create, pack
from sigmacube.tiles.faults import passing
from sigmacube.tiles.plan import Tile

if TYPE_CHECKING:
    from sigmacube.estimators import Region
    from sigmacube.tiles.job import Job

__all__ = ["file_name", "pack_factors", "tile_factors"]


def file_name(number: int) -> str:
    """Return the name of a tile's part in the folder of its run.

    Examples
    --------
    >>> file_name(12)
    'factors/000012.npz'
    """
    return f"factors/{number:06d}.npz"


def tile_factors(tile: Tile, part: Region) -> dict[str, Any]:
    """Return what a solved tile keeps of its error model, as arrays of an .npz file."""
    errors: Any = part.errors
    kept: ModelArrays = errors.to_arrays(tile.rows, tile.cols)
    summary = {
        "kind": kept.kind, "about": kept.about, "places": kept.places, "shapes": kept.shapes,
    }  # fmt: skip
    return {"summary": json.dumps(summary), **kept.arrays}


def pack_factors(job: Job, create: Create) -> str:
    """Write the error model of all tiles to the output; return the attribute that tells of it."""
    return pack(lambda: _parts(job), create)


def _parts(job: Job) -> Iterator[ModelArrays]:
    """Yield the parts of all tiles, whose arrays are read when they are asked for."""
    for tile in job.tiles:
        passing("packing-during")
        with _open(job, tile) as file:
            told = json.loads(str(file["summary"]))
            shapes = {name: tuple(shape) for name, shape in told["shapes"].items()}
            yield ModelArrays(told["kind"], told["about"], file, told["places"], shapes)


def _open(job: Job, tile: Tile) -> Any:
    folder, name = job.folder, file_name(tile.number)
    if folder.local is not None:
        return np.load(folder.local / name, allow_pickle=False)
    content = folder.read(name)
    if content is None:
        raise FileNotFoundError(f"{folder.place}/{name}: the factors of a tile are missing.")
    return np.load(BytesIO(content), allow_pickle=False)
