"""The paper's family: every window a low-rank matrix, windows averaged (``prior=None``)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from sigmacube.core.lowrank.combine import (
    Combined,
    combine,
    pool_noise_correlation,
    sampled_regions,
)
from sigmacube.core.lowrank.errors import LowRankErrors, WindowErrors
from sigmacube.core.lowrank.factors import Factors
from sigmacube.core.lowrank.solve import solve_windows
from sigmacube.core.lowrank.solvers import Solver, fit_for_noise, make_solver, traits_of
from sigmacube.core.parallel import ParallelMap
from sigmacube.core.validity import to_all_bands
from sigmacube.core.windows import BLOCK, Axis, Block, Span, WindowGrid
from sigmacube.estimators import Progress, Region
from sigmacube.settings import Settings
from sigmacube.survey import Scene, SceneBlock, Survey

# Elements of a window from which on a second thread pays: below it threads spend more time on
# handing over the interpreter lock than a second processor gains.
SMALL_WINDOW = 12_000


@dataclass(frozen=True)
class LowRankEstimator:
    """Truncated SVDs of windows and the exact covariance of those that overlap."""

    settings: Settings

    @property
    def sets_aside(self) -> bool:
        """Whether elements may be set aside as outliers."""
        return traits_of(make_solver(self.settings.solver)).sets_aside

    @property
    def lists_unexplained(self) -> bool:
        """Whether pixels that no window explains are looked for: no."""
        return False

    def noise_power(self, survey: Survey) -> np.ndarray | None:
        """Return None: noise of different pixels is taken for independent."""
        return None

    def learn(self, scene: Scene, run: ParallelMap, *, whole: bool) -> Mapping[str, np.ndarray]:
        """Return how kept components of pure noise are correlated, where there are any."""
        survey = scene.survey
        self._solver(survey.grid)  # refuses a rank beyond the windows
        parts = (
            self._solved(scene, survey.grid.part(*region), run)[0]
            for region in sampled_regions(survey.grid)
        )
        found = None if whole else self._correlation(survey, parts, run)
        return {} if found is None else {"correlation": found}

    def learn_gaps(
        self, scene: Scene, run: ParallelMap, *, whole: bool
    ) -> Mapping[str, np.ndarray]:
        """Return what was learnt, learnt again: windows in memory know of the gaps as well."""
        if not scene.survey.learnt:
            return {}
        anew = replace(scene, survey=replace(scene.survey, learnt={}))
        return self.learn(anew, run, whole=False)

    def threads(self, shape: tuple[int, int, int]) -> int | None:
        """Return how many threads pay for a cube; None for one per processor."""
        grid = WindowGrid.create(shape, window=self.settings.window, step=self.settings.step)
        small = self.settings.solver == "svd" and math.prod(grid.window) < SMALL_WINDOW
        return 1 if small else None

    def extent(self, scene: Scene, rows: Span, cols: Span) -> tuple[slice, slice]:
        """Return the rows and columns that `solve` reads for a region."""
        return scene.extent(*_windows_over(scene.survey.grid, rows, cols).pixels)

    def tile_bytes(
        self, survey: Survey, tile: tuple[int, int], itemsize: int, keep_factors: bool = False
    ) -> float:
        """Return the memory that solving a tile (rows, cols) takes at most; measured."""
        grid, bands, rank = survey.grid, survey.grid.cube_shape[2], survey.settings.rank
        if not isinstance(rank, int):  # what most windows will not exceed
            smaller = min(grid.rows.size * grid.cols.size, grid.bands.size)
            rank = max(smaller // 8, min(smaller, 10))
        sides = [
            _extent(axis, side) for axis, side in zip((grid.rows, grid.cols), tile, strict=True)
        ]
        pixels, windows = sides[0][0] * sides[1][0], sides[0][1] * sides[1][1] * grid.shape[2]
        window = grid.rows.size * grid.cols.size
        source = pixels * survey.shape[2] * (itemsize + 1)
        factors = windows * rank * (window + grid.bands.size) * 8
        solving = source + pixels * bands * 8 + 2 * factors
        block = [_extent(axis, 1) for axis in (grid.rows, grid.cols)]
        in_block = min(block[0][1], sides[0][1]) * min(block[1][1], sides[1][1]) * grid.shape[2]
        lines = (grid.rows.reach + 1) * (2 * grid.cols.reach + 1)
        pairs = in_block * lines * (rank**2 + bands) * 4
        copies = in_block * (rank * (window + grid.bands.size) * 4 + 2 * window * 8)
        combining = source + factors + pixels * bands * 12 + pairs + copies
        output = tile[0] * tile[1] * survey.shape[2] * 16
        writing = factors * 5 / 2 + windows * window * 12 + copies if keep_factors else 0.0
        return max(solving, combining, writing) + output

    def solve(
        self,
        scene: Scene,
        rows: Span,
        cols: Span,
        run: ParallelMap,
        progress: Progress | None = None,
    ) -> Region:
        """Return the result for some rows and columns, to the bit that of the whole scene."""
        survey = scene.survey
        grid = _windows_over(survey.grid, rows, cols)
        factors, block = self._solved(scene, grid, run, progress)
        sampled = (factors.select(*region) for region in sampled_regions(grid))
        combined = combine(
            factors,
            overlap=self.settings.overlap,
            uncertainty=self.settings.uncertainty,
            run=run,
            correlation=self._correlation(survey, sampled, run),
            blocks=survey.grid.blocks(rows, cols),
            dtype=block.dtype,
        )
        here = tuple(
            slice(part[0] - origin, part[1] - origin)
            for part, origin in zip((rows, cols), grid.origin, strict=True)
        )
        return _region(survey, block, factors, combined, (here[0], here[1]))

    def _solved(
        self, scene: Scene, grid: WindowGrid, run: ParallelMap, progress: Progress | None = None
    ) -> tuple[Factors, SceneBlock]:
        """Solve the windows of a grid, the whole scene's or a part of it."""
        survey, block = scene.survey, scene.load(*grid.pixels)
        solver = fit_for_noise(
            self._solver(survey.grid), self.settings.rank, survey.model,
            incomplete=survey.incomplete,
        )  # fmt: skip
        white = block.scaled() if traits_of(solver).scaled else block.whitened(run)
        factors = solve_windows(
            white, block.valid, grid, block.noise, solver, run, progress, block.missing,
            finite_noise=self.settings.finite_noise and self.settings.overlap == "exact",
            weighting=self.settings.weights,
        )  # fmt: skip
        return factors, block

    def _correlation(
        self, survey: Survey, parts: Iterable[Factors], run: ParallelMap
    ) -> np.ndarray | None:
        """Return how kept pure noise is correlated between windows; None if σ counts none.

        From some parts of the scene, unless the whole scene was asked before.
        """
        if "correlation" in survey.learnt:
            return survey.learnt["correlation"]
        keeps = survey.incomplete or traits_of(self._solver(survey.grid)).keeps_noise
        counts = self.settings.uncertainty and self.settings.overlap == "exact"
        return pool_noise_correlation(parts, run) if keeps and counts else None

    def _solver(self, grid: WindowGrid) -> Solver:
        """Return the solver, with the rank checked against the windows."""
        rank, solver = self.settings.rank, self.settings.solver
        rows, cols, bands = grid.window
        most = min(rows * cols, bands)
        if rank != "auto" and (isinstance(rank, str | bool | float) or not 1 <= rank <= most):
            raise ValueError(
                f"Invalid rank {rank!r}. It must be 'auto' or an int from 1 to {most}, the smaller "
                f"side of a {rows * cols}×{bands} window."
            )
        return make_solver(solver, rank)


def _windows_over(whole: WindowGrid, rows: Span, cols: Span) -> WindowGrid:
    """Return the windows that some rows and columns need: all that cover the blocks they meet."""
    blocks = whole.blocks(rows, cols)
    hull = Block((blocks[0].rows[0], blocks[-1].rows[1]), (blocks[0].cols[0], blocks[-1].cols[1]))
    windows = hull.windows(whole)
    is_whole = windows == ((0, whole.shape[0]), (0, whole.shape[1]))
    return whole if is_whole else whole.part(*windows)


def _region(
    survey: Survey,
    block: SceneBlock,
    factors: Factors,
    combined: Combined,
    here: tuple[slice, slice],
) -> Region:
    """Return what was combined, cut to some rows and columns and in the units of the data."""
    scale, noise_std = block.pixel_scale, block.std_of_elements()
    errors = LowRankErrors(
        WindowErrors(factors, combined.noise_variance), block.noise, survey.bands, survey.shape[2],
        scale, gap_factor=combined.gap_factor,
    )  # fmt: skip
    std, left_out = None, combined.left_out
    if combined.variance is not None:  # in place: masked pixels are zero but for rounding
        std = np.maximum(combined.variance[here], 0, out=combined.variance[here])
        np.multiply(np.sqrt(std, out=std), block.noise.std, out=std, casting="same_kind")
    if left_out is not None:
        left_out = left_out[here]
        if block.lacking is not None:  # striped values were there
            left_out = left_out & ~block.lacking[here]
        left_out = to_all_bands(left_out, survey.bands, survey.shape[2])
    estimate = block.to_output(combined.estimate[here], here)
    std = None if std is None else block.to_output(std, here)
    if combined.left_out is not None:
        _give_back(block, here, estimate, std)
    ranks, ratio = (np.moveaxis(a, 1, 2) for a in (factors.ranks, factors.residual_ratio))
    if ranks.shape[2] == 1:  # (window row, window col), with a third axis if bands are cut
        ranks, ratio = ranks[..., 0], ratio[..., 0]
    return Region(
        estimate=estimate,
        std=std,
        errors=errors,
        errors_origin=factors.grid.origin,
        grid=factors.grid,
        ranks=ranks,
        residual_ratio=ratio,
        noise_std=noise_std if noise_std.ndim == 1 else noise_std[here],
        noise_scale=None if scale is None else scale[here],
        left_out=left_out,
    )


def _give_back(
    block: SceneBlock, here: tuple[slice, slice], estimate: np.ndarray, std: np.ndarray | None
) -> None:
    """Fill in what no window kept, though it was observed: its value, and σ no less than that.

    A robust solver may set aside all values of a pixel, or of a band. Nothing else is known of
    them then, and a value that was set aside is no measurement.
    """
    there = np.broadcast_to(block.valid[here][..., None], (*estimate.shape[:2], len(block.bands)))
    if block.missing is not None:
        there = there & ~block.missing[here]
    rows, cols, band = np.nonzero(there & ~np.isfinite(estimate[..., block.bands]))
    if not len(rows):
        return
    values = block.spectra[:, block.cols][here][rows, cols, band].astype(np.float64)
    estimate[rows, cols, block.bands[band]] = values
    if std is not None:
        scale = 1.0 if block.pixel_scale is None else block.pixel_scale[here][rows, cols]
        level = block.noise.std[band] * scale
        std[rows, cols, block.bands[band]] = np.hypot(level, values)


def _extent(axis: Axis, side: int) -> tuple[int, int]:
    """Return the pixels and windows that a tile needs along an axis, wherever it lies."""
    block = max(BLOCK * axis.size // axis.step, 1) * axis.step
    span = min(-(-side // block) * block + 2 * (axis.size - 1), axis.length)
    return span, min((span - axis.size) // axis.step + 2, len(axis))
