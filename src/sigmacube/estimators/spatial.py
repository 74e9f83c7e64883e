"""Spectral subspace, local windows, shrunk spatial frequencies (``prior="spatial"``)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from sigmacube.core.errors_in_units import ErrorsInUnits
from sigmacube.core.parallel import ParallelMap, in_turn, strips
from sigmacube.core.progress import Progress
from sigmacube.core.spatial import Block, SpatialModel, SpatialPart, Whole, smooth_region
from sigmacube.core.spatial import survey as survey_subspace
from sigmacube.core.spatial.completing import Completion, learn_completion, stuck_values
from sigmacube.core.spatial.subspace import gram, project
from sigmacube.core.spatial.subspace import strong as strong_directions
from sigmacube.core.validity import of_bands, to_all_bands
from sigmacube.core.whitening import Noise
from sigmacube.core.windows import Span
from sigmacube.estimators import Region
from sigmacube.estimators.kept_noise import with_kept_noise
from sigmacube.noise.stabilise import MOST_DIRECTIONS
from sigmacube.settings import Settings
from sigmacube.survey import APART, AROUND, STABLE, Scene, SceneBlock, Survey

# Sizes and steps of the windows, as shares of those asked for: small ones follow borders.
SIZES = ((1.0, APART), (0.5, 1.0), (0.25, 0.5))
# Maps over windows and rows that a region takes: fits, two averages, variance.
ROUNDS = 4
# Rows of a scene in memory that are made ready at a time.
STRIP = 16


@dataclass(frozen=True)
class SpatialEstimator:
    """Windows of three sizes, smoothed in the scene's subspace."""

    settings: Settings

    @property
    def sets_aside(self) -> bool:
        """Whether elements may be set aside as outliers."""
        return self.settings.solver == "robust"

    @property
    def lists_unexplained(self) -> bool:
        """Whether pixels that no window explains are looked for: beside σ."""
        return self.settings.uncertainty

    def noise_power(self, survey: Survey) -> np.ndarray | None:
        """Return the power of the noise by spatial frequency of a window; None for white noise."""
        power = np.asarray(survey.learnt["noise_power_0"])
        return None if np.all(power == 1) else power

    @property
    def windows(self) -> tuple[tuple[int, int], ...]:
        """(size, step) of the windows, the largest first."""
        window, step = self.settings.window, self.settings.step
        assert isinstance(window, int)  # `Settings` refuses others
        assert isinstance(step, int)
        return tuple((max(round(a * window), 2), max(round(b * step), 1)) for a, b in SIZES)

    def learn(self, scene: Scene, run: ParallelMap, *, whole: bool) -> Mapping[str, np.ndarray]:
        """Return what the whole scene knows: subspace, noise in space, size of errors."""
        shape = (*scene.survey.shape[:2], len(scene.survey.bands))
        if not (self.sets_aside or scene.survey.wild or scene.survey.bounds is not None):
            scene = _stabilised(scene, shape, run)
        noise, completion, strong = scene.survey.model, None, None
        bounds, stuck = scene.survey.bounds_over_noise, np.zeros((0, shape[2]))
        aside = self.sets_aside or scene.survey.wild
        if aside:
            stuck = stuck_values(partial(_measured, scene), shape, bounds)
        if aside or scene.survey.incomplete or bounds is not None:
            scaled: Block = partial(_scaled, scene, stuck)
            if whole:
                scaled = _held(scaled, shape, run)
            completion = learn_completion(scaled, shape, outliers=aside, run=run, bounds=bounds)
            completion = with_kept_noise(completion, scaled, shape, run)
            strong = completion.strong(None if noise.is_diagonal else _mixing(noise))
        block: Block = partial(_white, scene, completion, stuck)
        if whole:
            block = _held(block, shape, run)
        model = survey_subspace(
            block, shape, windows=self.windows, run=run, directions=strong,
            uncertainty=self.settings.uncertainty,
        )  # fmt: skip
        arrays = model.to_arrays() | ({} if completion is None else completion.to_arrays())
        arrays["stuck"] = stuck
        arrays |= scene.survey.learnt
        return Learnt(arrays, block, model.whole) if whole else arrays

    def learn_gaps(
        self, scene: Scene, run: ParallelMap, *, whole: bool
    ) -> Mapping[str, np.ndarray]:
        """Return what was learnt of a whole scene, for one of which a few elements are missing."""
        survey, arrays = scene.survey, {**scene.survey.learnt, "missing": np.array(True)}
        shape = (*survey.shape[:2], len(survey.bands))
        if not survey.learnt["missing"]:
            # A few scattered elements: what is left of their pixels tells nearly all of them.
            arrays["fillings"] = np.array(1)
        if not survey.model.is_diagonal and Completion.from_arrays(arrays) is None:
            found = learn_completion(
                partial(_scaled, scene, arrays["stuck"]), shape, outliers=False, run=run
            )
            arrays |= found.to_arrays()
        if not whole:
            return arrays
        block: Block = partial(_white, scene, Completion.from_arrays(arrays), arrays["stuck"])
        return Learnt(arrays, _held(block, shape, run), None)

    def threads(self, shape: tuple[int, int, int]) -> int | None:
        """Return how many threads pay for a cube; None for one per processor."""
        return None

    def extent(self, scene: Scene, rows: Span, cols: Span) -> tuple[slice, slice]:
        """Return the rows and columns that `solve` reads for a region."""
        holed = scene.survey.incomplete or self.sets_aside or scene.survey.wild
        halo = 2 * max(size for size, _ in self.windows) * (4 if holed else 1)
        halo += 0 if scene.survey.signal_noise is None else AROUND
        sides = [
            slice(max(first - halo, 0), min(stop + halo, length))
            for (first, stop), length in zip((rows, cols), scene.survey.shape, strict=False)
        ]
        return scene.extent(sides[0], sides[1])

    def tile_bytes(
        self, survey: Survey, tile: tuple[int, int], itemsize: int, keep_factors: bool = False
    ) -> float:
        """Return the memory that solving a tile (rows, cols) takes at most; measured.

        Windows over windows over the tile are fitted first; the tile's own bands come at the end.
        """
        bands, k = len(survey.bands), survey.learnt["basis"].shape[1]
        rank = min(4 * -(-3 * k // 16) + 2, k)  # three quarters of the subspace, padded
        around = max(size for size, _ in self.windows) + 2
        halo = around * (4 if survey.incomplete else 1)

        def pixels(margin: int) -> int:
            rows, cols = survey.shape[:2]
            return min(tile[0] + 2 * margin, rows) * min(tile[1] + 2 * margin, cols)

        def fits(margin: int, each: int) -> float:
            """Return bytes of the windows over the tile and a margin, ``each`` per coefficient."""
            total = 0.0
            for size, step in self.windows:
                sides = [min(size, length) for length in survey.shape[:2]]
                count = 1
                for n, side, length in zip(tile, sides, survey.shape, strict=False):
                    count *= (min(n + 2 * margin, length) + side) // step + 1
                n = sides[0] * sides[1]
                axes = 4 * min(n, k) ** 2 if survey.incomplete else 0  # from round to round
                total += count * (n * (rank * each + 8) + 4 * k * rank + axes)
            return total

        data = pixels(halo + around) * (bands * (itemsize + 9) + k * 12)
        coefficients = pixels(halo + around) * k * 12
        solving = max(data, coefficients + 1.15 * fits(around, 5))
        own = pixels(0) * (bands * (64 if survey.incomplete else 48) + k * 24)
        finishing = coefficients + fits(1, 6) + own
        return max(solving, finishing) + (fits(1, 4) if keep_factors else 0.0)

    def solve(
        self,
        scene: Scene,
        rows: Span,
        cols: Span,
        run: ParallelMap,
        progress: Progress | None = None,
    ) -> Region:
        """Return the result for some rows and columns, to the bit that of the whole scene."""
        learnt = scene.survey.learnt
        model, completion = SpatialModel.from_arrays(learnt), Completion.from_arrays(learnt)
        block: Block = partial(_white, scene, completion, learnt["stuck"])
        if isinstance(learnt, Learnt):
            model, block = replace(model, whole=learnt.whole), learnt.block
        told: ParallelMap = run
        if progress is not None:
            axes = (scene.survey.grid.rows, scene.survey.grid.cols)
            ends = [axis.windows_over(*span) for axis, span in zip(axes, (rows, cols), strict=True)]
            total = math.prod(stop - first for first, stop in ends)
            told = Reporting(run, progress, total)
        part = smooth_region(
            block, model, rows, cols, run=told, uncertainty=self.settings.uncertainty
        )
        if progress is not None:
            progress(total, total)
        held = block(slice(*rows), slice(*cols))[1] if isinstance(learnt, Learnt) else None
        return _region(scene, part, completion, rows, cols, run, held)


def _stabilised(scene: Scene, shape: tuple[int, int, int], run: ParallelMap) -> Scene:
    """Return the scene with the scale along which noise that grows with the signal is alike."""
    if scene.survey.signal_noise is None:
        return scene
    total, count, _ = gram(partial(_measured, scene), shape, run)
    learnt = {**scene.survey.learnt, STABLE: strong_directions(total, count)[:, :MOST_DIRECTIONS]}
    return replace(scene, survey=replace(scene.survey, learnt=learnt))


class Learnt(dict[str, np.ndarray]):
    """What was learnt of a scene that is in memory, with what its only region can take over."""

    def __init__(self, arrays: dict[str, np.ndarray], block: Block, whole: Whole | None) -> None:
        super().__init__(arrays)
        self.block, self.whole = block, whole


@dataclass(eq=False)
class Reporting:
    """A map that tells how far the rounds of a region are, in windows."""

    run: ParallelMap
    progress: Progress
    total: int
    rounds: int = 0

    def __call__(self, function: Callable[[Any], Any], items: Iterable, done: Any = None) -> list:
        """Map a function; each of the first three rounds is a part of the way."""
        items = list(items)

        def tell(ready: int) -> None:
            share = (self.rounds + ready / max(len(items), 1)) / ROUNDS
            self.progress(min(int(share * self.total), self.total - 1), self.total)

        results = self.run(function, items, tell)
        self.rounds += 1
        return results


def _there(block: SceneBlock, stuck: np.ndarray) -> np.ndarray | None:
    """Return (row, col, band) which values of a block are there and not stuck; None if all are."""
    if block.missing is None and block.valid.all() and not len(stuck):
        return None
    kept = np.broadcast_to(block.valid[..., None], (*block.valid.shape, len(block.bands)))
    kept = kept.copy() if block.missing is None else kept & ~block.missing
    measured = block.scaled(by_pixel=False)
    for values in stuck:
        kept &= measured != values
    return kept


def _measured(scene: Scene, rows: slice, cols: slice) -> tuple[np.ndarray, np.ndarray | None]:
    """Return a block over the noise of its bands, wherever a pixel lies."""
    block = scene.load(rows, cols)
    return block.scaled(by_pixel=False), _there(block, np.zeros((0, len(block.bands))))


def _scaled(
    scene: Scene, stuck: np.ndarray, rows: slice, cols: slice
) -> tuple[np.ndarray, np.ndarray | None]:
    """Return a block over its noise, without regard to the correlation of bands."""
    block = scene.load(rows, cols)
    return block.scaled(), _there(block, stuck)


def _white(
    scene: Scene, completion: Completion | None, stuck: np.ndarray, rows: slice, cols: slice
) -> tuple[np.ndarray, np.ndarray | None]:
    """Return a block of unit noise, zero where values are missing, and which are there."""
    block = scene.load(rows, cols)
    noise = block.noise
    if completion is None or (noise.is_diagonal and not completion.changes_values):
        return block.whitened(in_turn), _there(block, stuck)
    whole, kept = _completed(block, completion, stuck, cols.start)
    if not noise.is_diagonal:
        whole = project(whole, np.ascontiguousarray(_mixing(noise).T), cols.start)
    return np.where(kept, whole / completion.scale, 0.0), None if kept.all() else kept


def _held(block: Block, shape: tuple[int, int, int], run: ParallelMap) -> Block:
    """Return blocks of a scene that is held in memory, read strip by strip."""
    values = np.empty(shape)

    def fill(rows: slice) -> np.ndarray | None:
        values[rows], there = block(rows, slice(0, shape[1]))
        return there

    parts = strips(0, shape[0], STRIP)
    kept = run(fill, parts)
    if all(part is None for part in kept):
        return lambda rows, cols: (values[rows, cols], None)
    there = np.ones(shape, dtype=bool)
    for rows, part in zip(parts, kept, strict=True):
        there[rows] = True if part is None else part
    return lambda rows, cols: (values[rows, cols], there[rows, cols])


def _mixing(noise: Noise) -> np.ndarray:
    """Return (bands, bands) what whitens values that are over their noise std."""
    return noise.inverse_factor * noise.std


def _completed(
    block: SceneBlock, completion: Completion, stuck: np.ndarray, left: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return whole spectra over their noise, and which elements are their own."""
    there = _there(block, stuck)
    if there is None:
        there = np.ones((*block.valid.shape, len(block.bands)), dtype=bool)
    return completion.complete(block.scaled(), there, left)


def _region(
    scene: Scene,
    part: SpatialPart,
    completion: Completion | None,
    rows: Span,
    cols: Span,
    run: ParallelMap,
    kept: np.ndarray | None,
) -> Region:
    """Return a part in the units of the data; ``kept`` tells which values are, if it is known."""
    survey = scene.survey
    block = scene.load(slice(*rows), slice(*cols))
    scale = 1.0 if completion is None else completion.scale
    estimate = _estimate(scene, block, part, scale, run)
    slope = _slope(scene, estimate)
    errors = None
    if part.errors is not None:
        errors = ErrorsInUnits(
            part.errors, survey.model, survey.bands, survey.shape[2], block.pixel_scale,
            None if scale == 1 else np.full(survey.shape[2], scale), survey.grid, slope,
        )  # fmt: skip
    windows = survey.grid.rows.windows_over(*rows), survey.grid.cols.windows_over(*cols)
    ranks, ratio = _window_maps(part, windows)
    return Region(
        estimate=estimate,
        std=_std(block, part, scale, slope, run),
        errors=errors,
        errors_origin=(rows[0], cols[0]),
        grid=survey.grid.part(*windows),
        ranks=ranks,
        residual_ratio=ratio,
        noise_std=_noise_std(block, slope),
        noise_scale=block.pixel_scale if slope is None else _over_bands(slope),
        left_out=_left_out(survey, block, completion, cols[0], kept),
        unexplained=None if errors is None else np.array(part.unexplained, int).reshape(-1, 2),
    )


def _window_maps(part: SpatialPart, windows: tuple[Span, Span]) -> tuple[np.ndarray, np.ndarray]:
    """Return rank and residual ratio of the larger windows over a region."""
    (top, bottom), (left, right) = windows
    ranks = np.zeros((bottom - top, right - left), dtype=np.int64)
    ratio = np.full(ranks.shape, np.nan)
    i, j, rank = part.ranks[0].T
    mine = (i >= top) & (i < bottom) & (j >= left) & (j < right)
    ranks[i[mine] - top, j[mine] - left] = rank[mine]
    ratio[i[mine] - top, j[mine] - left] = part.residual_ratio[0][mine]
    return ranks, ratio


def _left_out(
    survey: Survey, block: SceneBlock, completion: Completion | None, left: int,
    kept: np.ndarray | None,
) -> np.ndarray | None:  # fmt: skip
    """Return (row, col, band) True for elements that were there and were left out.

    ``kept`` are those that were not, where that is known already.
    """
    if completion is None or not np.isfinite(completion.cut):
        return None
    if kept is None:
        kept = _completed(block, completion, survey.learnt["stuck"], left)[1]
    aside = ~kept & block.valid[..., None]
    if block.lacking is not None:  # striped values were there
        aside &= ~block.lacking
    return to_all_bands(aside, survey.bands, survey.shape[2])


def _estimate(
    scene: Scene, block: SceneBlock, part: SpatialPart, scale: float, run: ParallelMap
) -> np.ndarray:
    """Return the estimate in the units of the data."""
    stabiliser = scene.survey.stabiliser

    def in_units(rows: slice) -> np.ndarray:
        white = part.estimate[rows]
        estimate: np.ndarray = block.noise.unwhiten(white, out=white)
        estimate *= scale
        return estimate if stabiliser is None else stabiliser.inverse(estimate)

    # Nobody else holds the part; memory that was not touched before costs more than the product.
    same = part.estimate.dtype == block.dtype and len(block.bands) == block.n_bands
    return _output(block, in_units, part.estimate if same else None, run)


def _slope(scene: Scene, estimate: np.ndarray) -> np.ndarray | None:
    """Return (row, col, band with data) the noise of elements over that at the reference."""
    if scene.survey.stabiliser is None:
        return None
    known = of_bands(estimate, scene.survey.bands)
    return scene.survey.stabiliser.slope(np.nan_to_num(known)).astype(np.float32)


def _over_bands(slope: np.ndarray) -> np.ndarray:
    """Return (row, col) the root mean square over bands."""
    return np.asarray(np.sqrt(np.mean(np.square(slope, dtype=np.float64), axis=2)))


def _noise_std(block: SceneBlock, slope: np.ndarray | None) -> np.ndarray:
    """Return (band,) or (row, col, band) noise std on all bands, NaN for those without data."""
    if slope is None:
        return block.std_of_elements()
    std = np.full((*slope.shape[:2], block.n_bands), np.nan)
    std[..., block.bands] = slope * block.noise.std
    return std


def _std(
    block: SceneBlock, part: SpatialPart, scale: float, slope: np.ndarray | None, run: ParallelMap
) -> np.ndarray | None:
    """Return the standard deviation in the units of the data."""
    if part.variance is None or part.errors is None:
        return None

    def sloped(std: np.ndarray, rows: slice) -> np.ndarray:
        return std if slope is None else std * slope[rows]

    variance, noise = part.variance, scale * block.noise.std
    if block.noise.is_diagonal:
        return _output(
            block,
            lambda rows: sloped(
                np.multiply(np.sqrt(variance[rows]), noise, dtype=block.dtype), rows
            ),
            None,
            run,
        )
    factor = block.noise.factor
    variance = part.errors.band_covariance(factor, factor, run)
    if part.growth is not None:
        variance *= part.growth
    return _output(
        block,
        lambda rows: sloped(np.sqrt(np.maximum(variance[rows], 0)) * scale, rows),
        None,
        run,
    )


def _output(
    block: SceneBlock,
    values: Callable[[slice], np.ndarray],
    out: np.ndarray | None,
    run: ParallelMap,
) -> np.ndarray:
    """Return values of rows as the output has them, see `SceneBlock.to_output`; in ``out``."""
    shape = (*block.valid.shape, block.n_bands)
    whole = np.empty(shape, dtype=block.dtype) if out is None else out

    def fill(rows: slice) -> None:
        whole[rows] = block.to_output(values(rows), (rows, slice(None)))

    run(fill, strips(0, shape[0], STRIP))
    return whole
