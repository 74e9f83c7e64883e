"""The whole path from a noisy cube to an estimate with its standard deviation, in data order.

`survey_scene` learns what no part of a scene can know by itself; `denoise_region` solves some rows
and columns of it: the whole scene in memory, a tile of a file, or a block of a Dask array.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sigmacube.core.parallel import ParallelMap, parallel
from sigmacube.core.validity import broadcast_mask
from sigmacube.correction import corrected, find_clipping, find_line_offsets
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

# Pixels along a side that are asked what an estimate keeps of offsets, and the share of the offsets
# that are left that is added to ask.
ASKED, LITTLE = 64, 0.2


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
    presence = find_presence(source) if presence is None else presence
    presence.check_sizes()
    if lines is None:
        lines = (find_line_offsets(source, presence, impulses=settings.solver == "robust"),)
    offsets = lines[0]
    source = corrected(source, offsets)
    if not isinstance(noise, SettledNoise):
        noise = settle_noise(source, noise, settings, workers=workers)
    survey = Survey(source.shape, presence, noise, settings, offsets=offsets)
    presence.check_sizes(survey.model.std)
    if offsets is None:
        survey = replace(survey, bounds=find_clipping(source, presence, survey.model.std))
    if settings.solver == "robust":
        shape = (*survey.shape[:2], len(survey.bands))
        survey = replace(survey, stripes=find_stripes(Scene(source, survey).over_noise, shape))
    learnt = estimator(settings).learn(Scene(source, survey), run, whole=whole)
    survey = replace(survey, learnt=learnt)
    if offsets is None or settings.prior != "spatial" or not settings.uncertainty:
        return survey
    return replace(survey, offsets=_answered(source, survey, offsets, run))


@dataclass(frozen=True, eq=False)
class _More:
    """A source with something added."""

    source: Source
    more: Callable[[slice, slice], np.ndarray]

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.source.shape

    def block(self, rows: slice, cols: slice) -> tuple[np.ndarray, np.ndarray | None]:
        values, mask = self.source.block(rows, cols)
        return values + self.more(rows, cols), mask


def _answered(
    source: Source, survey: Survey, offsets: LineOffsets, run: ParallelMap
) -> LineOffsets:
    """Return offsets with what the estimate is seen to keep of what is left of them."""
    if offsets.inside is None:
        return offsets
    draw, survey = offsets.inside.draw, replace(survey, learnt=dict(survey.learnt))
    rows, cols = (
        slice((n - min(n, ASKED)) // 2, (n + min(n, ASKED)) // 2) for n in survey.shape[:2]
    )
    solve = partial(
        estimator(survey.settings).solve,
        rows=(rows.start, rows.stop), cols=(cols.start, cols.stop), run=run,
    )  # fmt: skip
    plain = solve(Scene(source, survey))
    assert plain.std is not None
    kept = [
        (solve(Scene(_More(source, more), survey)).estimate - plain.estimate) / LITTLE
        for more in (
            lambda y, x: LITTLE * offsets.on(draw, y, x),
            partial(_little_noise, survey, (rows, cols)),
        )
    ]
    return offsets.answered(offsets.on(draw, rows, cols), kept[0], plain.std, kept[1])


def _little_noise(
    survey: Survey, where: tuple[slice, slice], rows: slice, cols: slice
) -> np.ndarray:
    """Return a block of a draw of the noise on some rows and columns, made little."""
    tall, wide = (part.stop - part.start for part in where)
    draw = np.random.default_rng(0).standard_normal((tall, wide, len(survey.bands)))
    whole = np.zeros((tall, wide, survey.shape[2]))
    whole[..., survey.bands] = LITTLE * survey.model.unwhiten(draw)
    around = [
        (max(w.start - p.start, 0), max(p.stop - w.stop, 0))
        for w, p in zip(where, (rows, cols), strict=True)
    ]
    inner = tuple(
        slice(max(p.start - w.start, 0), max(p.stop - w.start, 0))
        for w, p in zip(where, (rows, cols), strict=True)
    )
    return np.pad(whole[inner], (*around, (0, 0)))


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
    if survey.offsets is None or region.std is None:
        return region
    std = survey.offsets.with_left(region.std, slice(*rows), slice(*cols))
    return replace(region, std=std)


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
