"""Denoise a file tile by tile: bounded memory, many workers, and a run that can be resumed."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from sigmacube import io
from sigmacube._version import __version__
from sigmacube.core.parallel import parallel
from sigmacube.core.progress import Progress, phase
from sigmacube.correction import corrected, find_line_offsets
from sigmacube.estimators import estimator
from sigmacube.io import cf
from sigmacube.io.atomic import check_not_input, sweep
from sigmacube.io.places import address_of, local_path
from sigmacube.io.source import Source
from sigmacube.io.watch import check_unchanged, digesting, stamp
from sigmacube.pipeline import survey_scene
from sigmacube.settings import Settings, takes_settings
from sigmacube.survey import Survey, find_presence, settle_noise
from sigmacube.tiles.execute import Execution, run_tiles
from sigmacube.tiles.faults import passing
from sigmacube.tiles.figures import Figures, gathered
from sigmacube.tiles.finish import create_arrays, window_maps, write_output
from sigmacube.tiles.folder import Folder
from sigmacube.tiles.job import Job, compute_tile, open_job, to_npz
from sigmacube.tiles.plan import (
    check_memory,
    choose_tile,
    parse_memory,
    parse_tile,
    smallest_tile_bytes,
)

#: Memory for one run where the user names neither memory nor tile.
DEFAULT_MEMORY = "2GB"
#: Bytes that a thread beside the first works in, measured.
PER_THREAD = 45e6


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a run over tiles has done."""

    output: str
    tiles: int = 0
    """Tiles of the scene."""
    computed: int = 0
    """Those that this call computed; the others had been finished before."""
    tile: tuple[int, int] = (0, 0)
    """Rows and columns of a tile."""
    noise: float | np.ndarray | None = None
    noise_source: str | None = None
    ranks: np.ndarray | None = None
    """As in `DenoisedCube`; None where the run had only to be cleaned up."""
    residual_ratio: np.ndarray | None = None
    factor_bytes: int = 0
    """Size of the window factors before compression, where they were kept."""
    bands: np.ndarray | None = None
    """Indices of the bands that hold data."""
    caveats: tuple[str, ...] = ()
    """What σ does not hold on this scene."""
    figures: Figures | None = None
    """σ, gaps and outliers, for a summary."""


@takes_settings
def denoise_file(
    source: str | Path,
    output: str | Path,
    noise: float | np.ndarray | str | None = None,
    *,
    mask: np.ndarray | None = None,
    reading: Mapping[str, Any] | None = None,
    tile: str | int | tuple[int, int] | None = None,
    memory: str | float | None = None,
    workers: int | None = None,
    mode: str = "processes",
    scheduler: str | None = None,
    resume: bool = False,
    overwrite: bool = False,
    dtype: str = "float32",
    keep_factors: bool = False,
    progress: Progress | None = None,
    **options: Any,
) -> Outcome:
    """Denoise a cube in a file or store, tile by tile, into another one.

    The result has the bits of `sigmacube.denoise` on the whole cube. A run that was stopped, in
    whatever way, is resumed with ``resume=True`` and the same arguments.

    Parameters
    ----------
    source
        What `sigmacube.read` reads, or the address of a Zarr store, such as ``s3://…/cube.zarr``.
    output
        What `DenoisedCube.save` writes, or the address of a Zarr store.
    noise, mask
        As for `sigmacube.denoise`.
    reading
        Options of `sigmacube.read`: ``bands``, ``scale``, ``nodata``, ``variable``, ``axes``,
        ``data``.
    tile
        Rows and columns of a tile, such as ``"512x640"``. By default as large as ``memory`` allows.
    memory
        What all workers on this machine together may use, such as ``"2GB"``.
    workers
        Threads, processes or local Dask workers; as many as there are processors by default.
    mode
        ``"processes"``: one tile per worker. ``"threads"``: one tile at a time, solved by all
        workers, in less memory.
    scheduler
        Address of a Dask scheduler whose workers see input and output, or ``"local"``.
    resume
        Go on with a run of the same output that was stopped.
    overwrite
        Replace an existing output, and an unfinished run.
    dtype
        Of the output: ``"float32"`` or ``"float64"``.
    keep_factors
        Whether to keep the factors of all windows, from which products are made (.nc and .zarr
        only). They are on the disk twice until the output is whole.
    progress
        Called as ``progress(done, total)``, in windows.
    **options
        Options of `sigmacube.denoise` that say how windows are solved; the solver by name.

    Returns
    -------
    Outcome
        What was done, with the maps of the windows; the cubes are in the output.

    Examples
    --------
    >>> import tempfile, numpy as np, sigmacube as sc
    >>> folder = Path(tempfile.mkdtemp())
    >>> noisy = sc.synthetic.add_noise(sc.synthetic.scene((40, 30, 20), rng=1), 0.05, rng=2)
    >>> np.save(folder / "noisy.npy", noisy.values)
    >>> made = denoise_file(
    ...     folder / "noisy.npy", folder / "clean.zarr", 0.05, window=8, tile=16, workers=1,
    ...     dtype="float64",
    ... )
    >>> whole = sc.denoise(noisy.values, 0.05, window=8)
    >>> bool(np.array_equal(io.read_result(made.output).std, whole.std))
    True
    """
    chosen = Settings.of(options)
    if dtype not in ("float32", "float64"):
        raise ValueError(f"Invalid dtype {dtype!r}. It must be 'float32' or 'float64'.")
    if not isinstance(chosen.solver, str):
        raise ValueError("Invalid solver: tiles of files need a solver by its name.")
    if keep_factors:
        io.check_keeps_factors(output, uncertainty=chosen.uncertainty)
    how = Execution.create(mode, workers, scheduler)
    budget = None if memory is None else check_memory(memory)
    wanted = None if tile is None else parse_tile(tile)
    place, output = _absolute(source), _absolute(output)
    _check_inputs(output, place, chosen)
    folder = Folder(run_folder(output))
    reading = {k: v.absolute() if isinstance(v, Path) else v for k, v in (reading or {}).items()}
    opened = io.open_source(place, mask=mask, **reading)
    chosen = chosen.fitted(opened.shape)
    settings = _settings(opened, output, chosen, noise, dtype, wanted)
    digest = None if mask is None else hashlib.blake2b(mask.tobytes()).hexdigest()[:16]
    settings |= {"input": place, "reading": _plain(reading), "mask": digest}
    settings["keep_factors"] = keep_factors
    begin = _enter(folder, output, chosen, resume=resume, overwrite=overwrite)
    if begin is None:
        return Outcome(output)
    with folder.locked():
        job = _begin(folder, settings, mask) if begin else _again(folder, settings, opened)
        try:
            how = _prepare(job, noise, wanted, budget, how, progress)
        except BaseException:
            if folder.read("survey.npz") is None:  # nothing that could be gone on with
                _close(folder)
            raise
        computed = _tiles(job, how, progress)
        phase(progress, "Writing the output")
        write_output(job, output)
        outcome = _outcome(job, output, computed)
    _close(folder)
    return outcome


def _outcome(job: Job, output: str, computed: int) -> Outcome:
    records = job.finished(check=False)
    maps = window_maps(job, records.values())
    kept = sum(int(record["factors"][1]) for record in records.values() if "factors" in record)
    return Outcome(
        output,
        len(job.tiles),
        computed,
        job.tiles.tile,
        job.survey.noise,
        job.survey.settled.source,
        maps["ranks"],
        maps["residual_ratio"],
        kept,
        job.survey.bands,
        tuple(job.survey.record()["caveats"]),
        gathered(records.values()),
    )


def _absolute(place: str | Path) -> str:
    return str(place) if address_of(place) else os.path.abspath(local_path(place))


def run_folder(output: str) -> str:
    """Return where the state of a run is kept: beside the output.

    Examples
    --------
    >>> run_folder("/data/clean.zarr"), run_folder("s3://bucket/clean.zarr")
    ('/data/.clean.zarr.run', 's3://bucket/.clean.zarr.run')
    """
    if address_of(output):
        parent, _, name = output.rpartition("/")
        return f"{parent}/.{name}.run"
    return str(Path(output).with_name(f".{Path(output).name}.run"))


def _enter(
    folder: Folder, output: str, options: Settings, *, resume: bool, overwrite: bool
) -> bool | None:
    """Return whether to begin anew; None where nothing is left to do."""
    there = folder.exists()
    begun = there and folder.read("run.json") is not None
    if begun and not (resume or overwrite):
        raise FileExistsError(
            f"{output}: an unfinished run of this output exists. --resume goes on with it, "
            "--overwrite starts anew."
        )
    goes_on = begun and resume
    written = Folder(output).exists() if address_of(output) else Path(output).exists()
    finished = resume and there and not begun and written
    if finished or (goes_on and _is_renamed(folder, output)):
        if folder.local is not None:
            sweep(Path(output))
        _close(folder)
        return None
    _check_output(
        output, options.uncertainty, estimator(options).sets_aside, overwrite=overwrite or goes_on
    )
    if goes_on:
        return False
    if there:
        folder.remove()
    if address_of(output):  # nothing can be renamed there, so an old store goes first
        Folder(output).remove()
    folder.create("tiles", "factors")
    return True


def _is_renamed(folder: Folder, output: str) -> bool:
    """Tell whether a run only lacks its cleaning up: its store has got the final name."""
    if folder.local is None or not output.lower().endswith(".zarr"):
        return False
    made = folder.read("survey.npz") is not None and folder.read("created") is not None
    return made and not (folder.local / "cube.zarr").exists() and Path(output).exists()


def _check_inputs(output: str, source: str, options: Settings) -> None:
    """Refuse an output that would replace the input."""
    outputs: list[str | Path] = [output]
    if not address_of(output):
        outputs += io.output_files(
            output,
            uncertainty=options.uncertainty,
            rejected=estimator(options).sets_aside,
            overwrite=True,
        )
    check_not_input(outputs, [source])


def _check_output(output: str, uncertainty: bool, rejected: bool, *, overwrite: bool) -> None:
    if not address_of(output):
        io.output_files(output, uncertainty=uncertainty, rejected=rejected, overwrite=overwrite)
    elif not output.lower().endswith(".zarr"):
        raise ValueError(f"{output}: only Zarr stores (.zarr) are written to an address.")
    elif not overwrite and Folder(f"{output}").read("zarr.json") is not None:
        raise FileExistsError(f"{output} exists. It is only replaced with overwrite (--overwrite).")


def _settings(
    source: Source,
    output: str,
    options: Settings,
    noise: Any,
    dtype: str,
    tile: tuple[int, int] | None,
) -> dict[str, Any]:
    """Return what defines a run, as JSON; a resumed run must have the same."""
    name, dims = cf.layout(source.metadata, source.wavelengths)
    made = {
        "version": __version__,
        "noise": noise.tolist() if isinstance(noise, np.ndarray) else noise,
        "options": options.to_dict(),
        "dtype": dtype,
        "tile": None if tile is None else list(tile),
        "address": output if address_of(output) else None,
        "name": name,
        "dims": list(dims),
        "stamp": stamp(source),
    }
    return _plain(made)


def _plain(made: Mapping[str, Any]) -> dict[str, Any]:
    """Return what JSON makes of settings."""
    return dict(json.loads(json.dumps(made, default=str)))


def _begin(folder: Folder, settings: dict[str, Any], mask: np.ndarray | None) -> Job:
    passing("run-before")
    if mask is not None:
        folder.write("mask.npz", to_npz({"mask": mask}))
    folder.write("run.json", json.dumps(settings, indent=1).encode())
    passing("run-after")
    return open_job(folder.place)


def _again(folder: Folder, settings: dict[str, Any], source: Source) -> Job:
    """Return the run of a folder, if it is the one that is asked for."""
    job = open_job(folder.place)
    former = dict(job.run)
    if settings["tile"] is None:  # whatever the run has
        settings["tile"] = former["tile"]
    _refuse_changes(former, settings)
    now = settings["stamp"]
    if now != former["stamp"] or now is None:
        _compare_values(job, source)
        folder.write("run.json", json.dumps({**former, "stamp": now}, indent=1).encode())
        job = open_job(folder.place)
    return job


def _refuse_changes(former: dict[str, Any], now: dict[str, Any]) -> None:
    flat = [{**s, **s["options"], **s["reading"]} for s in (former, now)]
    for key in flat[1]:
        if key in ("options", "reading", "stamp", "name", "dims"):
            continue
        was, is_now = flat[0].get(key), flat[1][key]
        if was != is_now:
            raise ValueError(
                f"Invalid {key} {_short(is_now)} for --resume: the run was begun with "
                f"{_short(was)}. It must be the same, or --overwrite starts anew."
            )


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 60 else f"{text[:50]}…"


def _compare_values(job: Job, source: Source) -> None:
    """Refuse an input with other values than those that the run began with."""
    if job.folder.read("survey.npz") is None:
        return
    digest = hashlib.blake2b(digest_size=20)
    if source.shape == job.survey.shape:
        find_presence(digesting(source, digest))
    if digest.hexdigest() != job.digest:
        raise ValueError(
            f"{source.address or source.path}: changed since the run was begun, so --resume would "
            "mix two inputs. It must be the same file, or --overwrite starts anew."
        )


def _prepare(
    job: Job,
    noise: Any,
    tile: tuple[int, int] | None,
    memory: float | None,
    how: Execution,
    progress: Progress | None,
) -> Execution:
    """Survey the scene, choose the tiles and make the store, unless that has been done.

    Returns who is to compute the tiles: threads where memory is short for several processes.
    """
    if job.folder.read("survey.npz") is None:
        passing("survey-before")
        digest = hashlib.blake2b(digest_size=20)
        survey = _survey(job, noise, digest, how.workers, progress)
        if tile is None or memory is not None:
            budget = parse_memory(DEFAULT_MEMORY) if memory is None else memory
            itemsize, factors = job.source.dtype.itemsize, job.keeps_factors
            least = smallest_tile_bytes(survey, itemsize, factors)
            how = how.within(budget, least)
            alone = budget - PER_THREAD * (how.threads - 1)
            budget = alone if alone >= least * how.at_once else budget
            fitting = choose_tile(survey, itemsize, budget, how.at_once, factors)
            tile = tile or fitting
        check_unchanged(job.source, job.run["stamp"])
        kept = {**survey.to_arrays(), "tile": tile, "digest": digest.hexdigest()}
        job.folder.write("survey.npz", to_npz(kept))
        passing("survey-after")
    if job.folder.read("created") is None:
        create_arrays(job)
        job.folder.write("created", b"")
        passing("arrays-after")
    return how


def _survey(job: Job, noise: Any, digest: Any, threads: int, progress: Progress | None) -> Survey:
    """Look at the whole scene: what is there, its noise, and what the estimator learns."""
    source, settings = job.source, job.settings
    presence = find_presence(digesting(source, digest), phase(progress, "Reading the scene"))
    phase(progress, "Estimating the noise")
    presence.check_sizes()
    lines = find_line_offsets(source, presence, impulses=settings.solver == "robust")
    settled = settle_noise(corrected(source, lines), noise, settings, workers=threads)
    phase(progress, "Surveying the scene")
    with parallel(threads) as run:
        return survey_scene(source, settled, settings, run, presence=presence, lines=(lines,))


def _tiles(job: Job, how: Execution, progress: Progress | None) -> int:
    """Compute the tiles that are not done; return how many they were."""
    finished = set(job.finished(check=True))
    spans = [tile.windows(job.survey.grid) for tile in job.tiles]
    windows = [(rows[1] - rows[0]) * (cols[1] - cols[0]) for rows, cols in spans]
    moved = sum(windows[number] for number in finished)
    todo = [number for number in range(len(job.tiles)) if number not in finished]
    phase(progress, "Denoising tiles")

    def done(number: int) -> None:
        nonlocal moved
        moved += windows[number]
        if progress is not None:
            progress(moved, sum(windows))

    try:
        run_tiles(partial(compute_tile, job.folder.place, how.threads), todo, how, done)
    except OSError as error:
        if error.errno is None or isinstance(error, FileNotFoundError | ConnectionError):
            raise
        reason = f"{error.strerror or error}; --resume goes on once that is mended"
        raise OSError(error.errno, reason, error.filename or job.store) from None
    return len(todo)


def _close(folder: Folder) -> None:
    """Remove the state of a run that is finished, first what makes it a run."""
    passing("remove-before")
    if folder.local is not None:
        (folder.local / "run.json").unlink(missing_ok=True)
    folder.remove()
