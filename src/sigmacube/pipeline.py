"""The whole path from a noisy cube to an estimate with its standard deviation, in data order.

`survey_scene` learns what no part of a scene can know by itself; `denoise_region` solves some rows
and columns of it: the whole scene in memory, a tile of a file, or a block of a Dask array.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from sigmacube.core.parallel import ParallelMap, parallel
from sigmacube.core.windows import WindowGrid
from sigmacube.cube import Cube
from sigmacube.estimators import Progress, Region, estimator
from sigmacube.noise.advice import advice_on_impulses, advice_on_ranks
from sigmacube.noise.signal_noise import SignalNoise
from sigmacube.noise.stripes import find_stripes
from sigmacube.result import DenoisedCube
from sigmacube.scene import Scene
from sigmacube.settings import Settings
from sigmacube.survey import Presence, SettledNoise, Source, Survey, find_presence, settle_noise

__all__ = ["denoise_cube", "denoise_region", "survey_scene"]

Noise = float | np.ndarray | str | SignalNoise | SettledNoise | None
# Elements of a window from which on a second thread pays.
SMALL_WINDOW = 12_000


def survey_scene(
    source: Source,
    noise: Noise,
    settings: Settings,
    run: ParallelMap,
    *,
    presence: Presence | None = None,
    workers: int | None = None,
    whole: bool = False,
) -> Survey:
    """Learn what the regions of a scene need to know of the whole, in bounded memory.

    Parameters
    ----------
    source
        The cube, read by block.
    noise
        As for `sigmacube.denoise`.
    settings
        How the scene is solved.
    run
        Parallel map.
    presence
        Which values are there, where that has been looked at.
    workers
        Threads for estimators of the noise.
    whole
        Whether the scene will be solved as one region.
    """
    chosen = estimator(settings)
    presence = find_presence(source) if presence is None else presence
    if not isinstance(noise, SettledNoise):
        robust = settings.solver_name == "robust"
        noise = settle_noise(source, noise, settings, impulses=robust, workers=workers)
    survey = Survey(source.shape, presence, noise, settings)
    if settings.solver_name == "robust":
        shape = (*survey.shape[:2], len(survey.bands))
        survey = replace(survey, stripes=find_stripes(Scene(source, survey).over_noise, shape))
    learnt = chosen.learn(Scene(source, survey), run, whole=whole)
    return replace(survey, learnt=learnt)


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
    scene = Scene(source, survey)
    return estimator(survey.settings).solve(scene, rows, cols, run, progress)


def denoise_cube(
    cube: Cube,
    noise: Noise,
    settings: Settings,
    *,
    workers: int | None = None,
    progress: Progress | None = None,
) -> DenoisedCube:
    """Denoise a cube in memory; see `sigmacube.denoise`."""
    with parallel(_threads(workers, settings, cube.shape)) as run:
        survey = survey_scene(cube, noise, settings, run, workers=workers, whole=True)
        region = denoise_region(cube, survey, run, progress=progress)
    record: dict[str, Any] = survey.record()
    aside = estimator(settings).sets_aside
    if aside and region.left_out is not None:
        record["rejected_share"] = float(region.left_out.mean())
    advice = _advice(cube, survey, region)
    return DenoisedCube(
        estimate=region.estimate,
        std=region.std,
        ranks=region.ranks,
        noise=survey.noise,
        noise_power=estimator(settings).noise_power(survey),
        noise_scale=region.noise_scale,
        residual_ratio=region.residual_ratio,
        wavelengths=cube.wavelengths,
        metadata=cube.metadata,
        rejected=region.left_out if aside else None,
        unexplained=region.unexplained,
        settings=record if advice is None else {**record, "advice": advice},
        error_model=region.errors,
    )


def _advice(cube: Cube, survey: Survey, region: Region) -> str | None:
    """Return what to tell a user whose windows met impulses that the solver does not know."""
    if survey.settings.solver != "svd":
        return None
    found = advice_on_impulses(cube.values, region.estimate, region.noise_std)
    return found or advice_on_ranks(_few_windows(cube, survey), region.ranks, survey.grid)


def _few_windows(cube: Cube, survey: Survey) -> Iterator[np.ndarray]:
    """Yield (pixel, band) values over their noise of three windows across the scene."""
    grid, scene = survey.grid, Scene(cube, survey)
    rows, cols = (np.linspace(0, n - 1, 3).astype(int).tolist() for n in grid.shape[:2])
    for i, j in zip(rows, cols, strict=True):
        block = scene.load(*grid.slices(i, j)[:2])
        yield block.scaled()[block.valid]


def _threads(workers: int | None, settings: Settings, shape: tuple[int, ...]) -> int | None:
    """Return the number of threads: one by default where windows are small.

    Their steps are so short that threads spend more time on handing over the interpreter lock than
    a second processor gains.
    """
    if workers is not None or settings.solver != "svd" or len(shape) != 3:
        return workers
    if settings.prior == "spatial":  # windows go by stacks, whatever their size
        return None
    grid = WindowGrid.create(shape, window=settings.window, step=settings.step)
    return 1 if math.prod(grid.window) < SMALL_WINDOW else None
