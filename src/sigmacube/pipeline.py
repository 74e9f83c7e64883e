"""The whole path from a noisy cube to an estimate with its standard deviation, in data order.

`survey_scene` learns what no part of a scene can know by itself; `denoise_region` solves some rows
and columns of it: the whole scene in memory, a tile of a file, or a block of a Dask array.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sigmacube.core.parallel import ParallelMap, parallel
from sigmacube.core.validity import broadcast_mask
from sigmacube.correction import answered, corrected, first_look, with_what_is_left
from sigmacube.cube import Cube
from sigmacube.estimators import Progress, Region, advice, estimator
from sigmacube.io.dataarray import from_dataarray
from sigmacube.noise.line_offsets import LineOffsets
from sigmacube.noise.signal_noise import SignalNoise
from sigmacube.noise.stripes import find_stripes
from sigmacube.result import DenoisedCube
from sigmacube.settings import Settings
from sigmacube.survey import (
    Presence,
    Scene,
    SettledNoise,
    Source,
    Survey,
    find_presence,
    settle_noise,
)

if TYPE_CHECKING:
    import xarray as xr

Noise = float | np.ndarray | str | SignalNoise | SettledNoise | None


def as_cube(cube: Cube | np.ndarray | xr.DataArray, mask: np.ndarray | None = None) -> Cube:
    """Return any accepted input as a `Cube`, its own mask and the user's joined."""
    if not isinstance(cube, Cube):
        given: Any = cube
        if isinstance(given, str | Path):
            raise ValueError(
                f"Invalid cube: the name {str(given)!r}. sigmacube.read reads files, "
                "sigmacube.tiles.denoise_file denoises them tile by tile."
            )
        if hasattr(given, "estimate"):
            raise ValueError(
                f"Invalid cube: a {type(given).__name__}, which is a result. It must be the noisy "
                "scene that a result is made from."
            )
        labelled = hasattr(given, "dims") and hasattr(given, "coords")
        cube = from_dataarray(given) if labelled else Cube(np.asarray(given))
    if mask is None:
        return cube
    mask = broadcast_mask(mask, cube.shape)
    return replace(cube, mask=mask if cube.mask is None else cube.mask & mask)


def survey_scene(
    source: Source,
    noise: Noise,
    settings: Settings,
    run: ParallelMap,
    *,
    presence: Presence | None = None,
    lines: tuple[LineOffsets | None] | None = None,
    workers: int | None = None,
    whole: bool = False,
) -> Survey:
    """Learn what the regions of a scene need to know of the whole, in bounded memory.

    ``presence`` tells which values are there, where that has been looked at, and ``lines`` holds
    the offsets of lines; ``whole`` tells whether the scene will be solved as one region.
    ``workers`` are threads for estimators of the noise.
    """
    presence = find_presence(source, run=run) if presence is None else presence
    presence.check_sizes()
    offsets, clipping, sample = first_look(source, presence, lines, settings, run)
    source = corrected(source, offsets)
    if not isinstance(noise, SettledNoise):
        looked_at = sample if offsets is None else None
        noise = settle_noise(source, noise, settings, workers=workers, sample=looked_at)
    survey = Survey(source.shape, presence, noise, settings, offsets=offsets)
    presence.check_sizes(survey.model.std)
    if offsets is None and clipping is not None:
        survey = replace(survey, bounds=clipping.beside(survey.model.std))
    if settings.solver == "robust":
        shape = (*survey.shape[:2], len(survey.bands))
        survey = replace(survey, stripes=find_stripes(Scene(source, survey).over_noise, shape))
    learnt = estimator(settings).learn(Scene(source, survey), run, whole=whole)
    return answered(source, replace(survey, learnt=learnt), run)


def denoise_region(
    source: Source,
    survey: Survey,
    run: ParallelMap,
    *,
    rows: tuple[int, int] | None = None,
    cols: tuple[int, int] | None = None,
    progress: Progress | None = None,
) -> Region:
    """Denoise some rows and columns of a scene; all of them by default.

    All windows that cover them are solved, so that the result is that of the whole scene, to the
    last bit.
    """
    rows, cols = rows or (0, survey.shape[0]), cols or (0, survey.shape[1])
    scene = Scene(corrected(source, survey.offsets), survey)
    region = estimator(survey.settings).solve(scene, rows, cols, run, progress)
    return with_what_is_left(region, survey.offsets, slice(*rows), slice(*cols))


def denoise_cube(
    cube: Cube,
    noise: Noise,
    settings: Settings,
    *,
    workers: int | None = None,
    progress: Progress | None = None,
) -> DenoisedCube:
    """Denoise a cube in memory; see `sigmacube.denoise`."""
    chosen = estimator(settings)
    with parallel(chosen.threads(cube.shape) if workers is None else workers) as run:
        survey = survey_scene(cube, noise, settings, run, workers=workers, whole=True)
        region = denoise_region(cube, survey, run, progress=progress)
    record = survey.record(advice=advice(Scene(corrected(cube, survey.offsets), survey), region))
    rejected = region.left_out if chosen.sets_aside else None
    if rejected is not None:
        record["rejected_share"] = float(rejected.mean())
    return DenoisedCube(
        estimate=region.estimate,
        std=region.std,
        ranks=region.ranks,
        noise=survey.noise,
        noise_power=chosen.noise_power(survey),
        noise_scale=region.noise_scale,
        residual_ratio=region.residual_ratio,
        wavelengths=cube.wavelengths,
        metadata=cube.metadata,
        rejected=rejected,
        unexplained=region.unexplained,
        settings=record,
        error_model=region.errors,
    )
