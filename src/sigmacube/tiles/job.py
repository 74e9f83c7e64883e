"""One run over the tiles of a scene: what it is, and how a worker computes one tile of it.

A worker is told no more than a folder and the number of a tile. The folder holds the run's settings
(``run.json``), the survey of the scene (``survey.npz``), one record per finished tile, and the
address of the store that results go to. Everything a tile needs it reads itself.
"""

from __future__ import annotations

import io as bytes_io
import json
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from sigmacube import io
from sigmacube.core.parallel import parallel
from sigmacube.core.stored import ModelArrays
from sigmacube.estimators import Region, estimator
from sigmacube.io.places import reason_of
from sigmacube.io.source import Source
from sigmacube.io.watch import check_unchanged, removed
from sigmacube.pipeline import denoise_region
from sigmacube.settings import Settings
from sigmacube.survey import Survey
from sigmacube.tiles.faults import passing
from sigmacube.tiles.figures import tile_figures
from sigmacube.tiles.folder import Folder
from sigmacube.tiles.plan import Tile, TileGrid

#: Where a tile's part of the error model lies in the folder of its run.
_FACTORS = "factors/{:06d}.npz"


def to_npz(arrays: Mapping[str, Any]) -> memoryview:
    """Return arrays as the bytes of an .npz file."""
    buffer = bytes_io.BytesIO()
    np.savez(buffer, allow_pickle=False, **{key: np.asarray(arrays[key]) for key in arrays})
    return buffer.getbuffer()


def from_npz(content: bytes) -> dict[str, np.ndarray]:
    """Return the arrays of an .npz file; nothing in it is executed."""
    with np.load(bytes_io.BytesIO(content), allow_pickle=False) as file:
        return {key: file[key] for key in file.files}


@dataclass(frozen=True, eq=False)
class Job:
    """A run, as its folder tells it."""

    folder: Folder
    run: Mapping[str, Any]
    """Content of ``run.json``: what defines the run."""

    @cached_property
    def settings(self) -> Settings:
        """How windows are solved."""
        with self.intact():
            return Settings.from_dict(self.run["options"])

    @cached_property
    def source(self) -> Source:
        """The input."""
        found = self.folder.read("mask.npz")
        with self.intact():
            mask = None if found is None else from_npz(found)["mask"]
        place = self.run["input"]
        try:
            return io.open_source(place, mask=mask, **self.run["reading"])
        except FileNotFoundError:
            raise removed(place) from None

    @cached_property
    def _stored(self) -> dict[str, np.ndarray]:
        content = self.folder.read("survey.npz")
        if content is None:
            raise FileNotFoundError(f"{self.folder.place}: the survey is missing.")
        with self.intact():
            return from_npz(content)

    @contextmanager
    def intact(self) -> Iterator[None]:
        """Say that the state of the run is damaged, whatever the damage led to."""
        try:
            yield
        except (MemoryError, OSError):
            raise
        except Exception as error:  # a damaged archive raises many kinds
            if str(error).startswith(f"{self.folder.place}:"):
                raise
            raise ValueError(
                f"{self.folder.place}: the state of the run is damaged ({reason_of(error)}). "
                "--overwrite starts anew."
            ) from error

    @cached_property
    def survey(self) -> Survey:
        """What is known of the whole scene."""
        with self.intact():
            return Survey.from_arrays(self._stored, self.settings)

    @cached_property
    def tiles(self) -> TileGrid:
        """The tiles."""
        with self.intact():
            rows, cols = (int(side) for side in self._stored["tile"])
        return TileGrid.create(self.survey.shape, (rows, cols))

    @property
    def digest(self) -> str:
        """Digest of the input's values."""
        return str(self._stored["digest"])

    @property
    def store(self) -> str:
        """The Zarr store that tiles are written to."""
        return self.run["address"] or f"{self.folder.place}/cube.zarr"

    @cached_property
    def arrays(self) -> dict[str, Any]:
        """The stored cubes, by what they hold: estimate, std."""
        from sigmacube.io.zarr import library

        with self.intact():
            root = library().open_group(self.store, mode="r+")
            return {what: root[name] for what, name in self.names.items()}

    @property
    def names(self) -> dict[str, str]:
        """Names of the cubes in the store, by what they hold."""
        name = self.run["name"]
        names = {"estimate": name}
        if self.settings.uncertainty:
            names["std"] = f"{name}_uncertainty"
        if estimator(self.settings).sets_aside:
            names["rejected"] = "rejected"
        return names

    def write(self, tile: Tile, part: Region) -> list[int]:
        """Write a tile's cubes to the store; return their checksums."""
        cubes = {"estimate": part.estimate, "std": part.std, "rejected": _aside(self, part)}
        sums = []
        for number, (what, array) in enumerate(self.arrays.items()):
            cube = np.moveaxis(np.asarray(cubes[what]), 2, 0)
            values = np.ascontiguousarray(cube, dtype=array.dtype)
            if number:
                passing("chunk-during")
            array[(slice(None), *tile.slices)] = values
            sums.append(zlib.crc32(values.data))
        return sums

    @property
    def keeps_factors(self) -> bool:
        """Whether window factors are written, too."""
        return bool(self.run["keep_factors"])

    def write_factors(self, tile: Tile, part: Region) -> dict[str, np.ndarray]:
        """Write a tile's window factors, where they are kept; return what to record of them."""
        if not self.keeps_factors:
            return {}
        passing("factors-before")
        errors: Any = part.errors
        own: ModelArrays = errors.to_arrays(tile.rows, tile.cols)
        summary = {"kind": own.kind, "about": own.about, "places": own.places,
                   "shapes": own.shapes}  # fmt: skip
        content = to_npz({"summary": json.dumps(summary), **own.arrays})
        self.folder.write(_FACTORS.format(tile.number), content, "factors-during")
        passing("factors-after")
        return {"factors": np.array([zlib.crc32(content), len(content)], dtype=np.int64)}

    def factors(self) -> Iterator[ModelArrays]:
        """Yield the error models of all tiles, whose arrays are read when they are asked for.

        How many components a tile has is known when it is solved, so tiles cannot write to one
        array. Each writes a file in the folder of the run; the end packs these one after the
        other, by the code that writes the error model of a scene in memory.
        """
        for tile in self.tiles:
            passing("packing-during")
            name = _FACTORS.format(tile.number)
            opened: Any = None if self.folder.local is None else self.folder.local / name
            if opened is None:
                content = self.folder.read(name)
                if content is None:
                    raise FileNotFoundError(
                        f"{self.folder.place}/{name}: the factors of a tile are missing."
                    )
                opened = bytes_io.BytesIO(content)
            with np.load(opened, allow_pickle=False) as file:
                told = json.loads(str(file["summary"]))
                shapes = {name: tuple(shape) for name, shape in told["shapes"].items()}
                yield ModelArrays(told["kind"], told["about"], file, told["places"], shapes)

    def finished(self, *, check: bool) -> dict[int, dict[str, np.ndarray]]:
        """Return the records of the tiles that are done.

        With ``check`` a record only counts if the store holds what it says: chunks may be lost
        where a machine went down before its disk was up to date.
        """
        records = {}
        for name in self.folder.names("tiles"):
            number = int(name.partition(".")[0]) if name[:6].isdigit() else len(self.tiles)
            record = self._record(number) if number < len(self.tiles) else None
            if record is not None and (not check or self._is_stored(self.tiles[number], record)):
                records[number] = record
        return records

    def _record(self, number: int) -> dict[str, np.ndarray] | None:
        content = self.folder.read(f"tiles/{number:06d}.npz")
        try:
            return None if content is None else from_npz(content)
        except Exception:  # a damaged archive raises many kinds; the tile is done again
            return None

    def _is_stored(self, tile: Tile, record: Mapping[str, np.ndarray]) -> bool:
        sums = record["checksums"].tolist() if "checksums" in record else []
        if len(sums) != len(self.names) or not {"ranks", "residual_ratio"} <= record.keys():
            return False
        for array, expected in zip(self.arrays.values(), sums, strict=True):
            try:
                values = np.ascontiguousarray(array[(slice(None), *tile.slices)])
            except Exception:  # a damaged chunk raises what its codec likes
                return False
            if zlib.crc32(values.data) != expected:
                return False
        if not self.keeps_factors:
            return True
        content = self.folder.read(_FACTORS.format(tile.number))
        known = record.get("factors")
        return content is not None and known is not None and zlib.crc32(content) == known[0]


@lru_cache(maxsize=1)
def _job(place: str, text: bytes) -> Job:
    job = Job(Folder(place), {})
    with job.intact():
        run = json.loads(text)
        missing = sorted(_RUN - set(run))
        if missing:
            raise ValueError(f"run.json lacks {missing[0]}")
        return replace(job, run=run)


#: What `run.json` states.
_RUN = {"options", "reading", "input", "stamp", "address", "name", "dims", "dtype", "keep_factors",
        "tile"}  # fmt: skip


def open_job(place: str) -> Job:
    """Return the run of a folder; a worker opens it once."""
    folder = Folder(place)
    text = folder.read("run.json")
    if text is None:
        raise FileNotFoundError(f"{place}: the run's settings are missing.")
    return _job(place, text)


def compute_tile(place: str, threads: int, number: int) -> int:
    """Compute one tile of the run in a folder, write it, and record that it is done.

    Returns
    -------
    int
        Number of the tile.
    """
    job = open_job(place)
    tile, survey = job.tiles[number], job.survey
    passing("tile-before")
    check_unchanged(job.source, job.run["stamp"])
    with parallel(threads) as run:
        part = denoise_region(job.source, survey, run, rows=tile.rows, cols=tile.cols)
    check_unchanged(job.source, job.run["stamp"])
    passing("chunk-before")
    sums = job.write(tile, part)
    passing("chunk-after")
    record = {
        "checksums": np.array(sums, dtype=np.int64),
        **_own_windows(job, tile, part),
        **tile_figures(part.estimate, part.std, part.noise_std, _aside(job, part)),
        **job.write_factors(tile, part),
    }
    passing("manifest-before")
    job.folder.write(f"tiles/{number:06d}.npz", to_npz(record), "manifest-during")
    passing("manifest-after")
    return number


def _aside(job: Job, part: Region) -> np.ndarray | None:
    """Return the elements that were set aside; None where the solver does not do so."""
    if "rejected" not in job.names:
        return None
    nothing = np.broadcast_to(np.False_, part.estimate.shape)
    return nothing if part.left_out is None else part.left_out


def _own_windows(job: Job, tile: Tile, part: Region) -> dict[str, np.ndarray]:
    """Return maps of the windows that start inside the tile, and of its pixels' noise."""
    here = tile.windows_in(job.survey.grid, part.grid)
    more = {"noise_scale": part.noise_scale, "unexplained": part.unexplained}
    return {
        **{name: array for name, array in more.items() if array is not None},
        "ranks": part.ranks[here],
        "residual_ratio": part.residual_ratio[here],
    }
