"""The whole path from a noisy cube to an estimate with its standard deviation, in data order."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from sigmacube._version import __version__
from sigmacube.check.leave_one_out import SolvedScene, band_spread, leave_one_out
from sigmacube.core.lowrank.combine import Combined, combine
from sigmacube.core.lowrank.errors import LowRankErrors
from sigmacube.core.lowrank.factors import Factors
from sigmacube.core.lowrank.kept_noise import pool_noise_correlation, sampled_regions
from sigmacube.core.lowrank.solve import solve_windows, spectral_energy
from sigmacube.core.lowrank.solvers import (
    CorrelatedSolver,
    GoDecSolver,
    RobustSolver,
    RpcaSolver,
    SemiSoftGoDecSolver,
    Solver,
    SvdSolver,
)
from sigmacube.core.parallel import ParallelMap, parallel
from sigmacube.core.validity import broadcast_mask, mean_spectrum, to_all_bands, valid_elements
from sigmacube.core.whitening import SEGMENT
from sigmacube.core.windows import Block, WindowGrid, WindowSpec
from sigmacube.cube import Cube
from sigmacube.noise.advice import advice_on_impulses, advice_on_ranks
from sigmacube.noise.signal_noise import SignalNoise
from sigmacube.noise.stripes import striped_lines
from sigmacube.result import DenoisedCube
from sigmacube.scene import Scene
from sigmacube.survey import (
    Coverage,
    Read,
    SettledNoise,
    Survey,
    find_coverage,
    noise_sample,
    reader,
)

if TYPE_CHECKING:
    import xarray as xr

__all__ = [
    "Options",
    "Part",
    "denoise",
    "extent",
    "keeps_noise",
    "part_grid",
    "pixel_scales",
    "pool_correlation",
    "solve_part",
    "take_survey",
]

Progress = Callable[[int, int], None]

# Elements of a window from which on a second thread pays.
SMALL_WINDOW = 12_000

SOLVERS: dict[str, Callable[[int | str], Solver]] = {
    "svd": SvdSolver,
    "robust": RobustSolver,
    "godec": GoDecSolver,
    "ssgodec": SemiSoftGoDecSolver,
    "rpca": RpcaSolver,
}


def denoise(
    cube: Cube | np.ndarray | xr.DataArray,
    noise: float | np.ndarray | str | SignalNoise | None = None,
    *,
    window: WindowSpec = 20,
    step: WindowSpec = 4,
    rank: int | str = "auto",
    solver: str | Solver = "svd",
    overlap: str = "exact",
    weights: str = "precision",
    finite_noise: bool = True,
    mask: np.ndarray | None = None,
    uncertainty: bool = True,
    calibrate: bool = False,
    workers: int | None = None,
    progress: Progress | None = None,
) -> DenoisedCube:
    """Denoise a cube by low-rank windows and give every value its standard deviation.

    Each window is unrolled to a matrix (pixels × bands) and replaced by its truncated SVD;
    overlapping windows are averaged. The standard deviation is the noise propagated through all of
    this, exact to first order for overlapping windows.

    Parameters
    ----------
    cube
        (row, col, band) values: a `Cube`, an array of any real type, or an `xarray.DataArray`. If
        the latter holds a Dask array, so does the result: one pass over the data is made at once,
        the rest when values are asked for.
    noise
        Standard deviation of the noise (one, or one per band), its (bands, bands) covariance, a
        `SignalNoise` whose variance grows with the signal, or the name of an estimator:
        ``"regression"``, ``"differences"``, ``"residual"``. None estimates it by the last two
        together; ``result.settings["noise_source"]`` says what was used.
    window, step
        Size of the windows and their distance: an int (square, all bands) or per axis
        ``(rows, cols, bands)`` with None for all bands.
    rank
        ``"auto"`` keeps what rises above the noise edge; an int keeps so many components.
    solver
        ``"svd"``; ``"robust"`` where there are impulses, dead lines or stripes; ``"godec"``,
        ``"ssgodec"``, ``"rpca"`` for comparison; or a callable that takes one patch (pixels,
        bands) of unit noise and returns a `PatchSolution`.
    overlap
        ``"exact"`` covariance of overlapping windows, or ``"ratio"`` for the form of Song et al.
        (2021), which takes it as proportional to the share of common elements.
    weights
        ``"precision"`` leans on the windows with the smallest variance; ``"uniform"`` is the plain
        mean.
    finite_noise
        Correct the variance of components near and below the noise edge. False gives the pure
        first-order form; so does ``overlap="ratio"``.
    mask
        True where values are valid; (row, col) or (row, col, band). Values that are not finite
        are masked anyway. Missing values of a pixel are estimated from its other bands and
        other pixels, with a larger standard deviation. A pixel without any valid value is NaN in
        the result, and so is a band that no window over a pixel has seen.
    uncertainty
        False computes the estimate alone; ``std`` is then None.
    calibrate
        Scale the standard deviation of every band by what leaving elements out shows (see
        `sigmacube.check.holdout`), and record the factors in ``settings["calibration"]``.
    workers
        Threads; by default the number of processors, but one where windows are so small that
        more would be in each other's way. The result is the same for any number, to the last bit.
    progress
        Called as ``progress(done, total)``, counted in windows.

    Returns
    -------
    DenoisedCube
        Estimate, standard deviation, ranks and what else they rest on.

    Notes
    -----
    The standard deviation holds the noise that passes the estimator. It does not hold the bias of
    the low-rank model: signal too weak to rise above the noise edge in its window. The map
    ``residual_ratio`` shows where the model does not fit.

    Examples
    --------
    >>> import numpy as np, sigmacube as sc
    >>> truth = sc.synthetic.scene((24, 30, 40), rng=1).values
    >>> noisy = truth + np.random.default_rng(2).normal(scale=0.05, size=truth.shape)
    >>> result = sc.denoise(noisy, 0.05, window=12)
    >>> bool(np.std(result.estimate - truth) < 0.5 * 0.05)
    True
    >>> inside = np.abs(result.estimate - truth) <= 1.96 * result.std
    >>> bool(0.9 < inside.mean() < 0.99)
    True
    """
    options = Options(window, step, rank, solver, overlap, weights, finite_noise, uncertainty)
    if getattr(cube, "chunks", None) is not None:
        # Not an import: tiles are built upon this module.
        if calibrate:
            raise ValueError("Invalid calibrate with a Dask array. It needs a cube in memory.")
        lazy: DenoisedCube = import_module("sigmacube.tiles.lazy").denoise_lazily(
            cube, noise, options, mask=mask
        )
        return lazy
    source = as_cube(cube)
    mask = joint_mask(source, mask)
    read = reader(source.values, mask)
    with parallel(_threads(workers, options, source.shape)) as run:
        survey = take_survey(read, source.shape, noise, options, run, workers=workers)
        part = solve_part(read, survey, options, run, progress=progress)
    settings = options.described(survey)
    if sets_aside(options) and part.left_out is not None:
        settings["rejected_share"] = float(part.left_out.mean())
    if options.solver == "svd":
        advice = advice_on_impulses(
            source.values, part.estimate, part.noise_std
        ) or advice_on_ranks(_few_patches(read, survey), part.factors.ranks, survey.grid)
        settings |= {} if advice is None else {"advice": advice}
    result = DenoisedCube(
        estimate=part.estimate,
        std=part.std,
        ranks=per_window(part.factors.ranks),
        noise=survey.noise,
        noise_scale=part.noise_scale,
        residual_ratio=per_window(part.factors.residual_ratio),
        wavelengths=source.wavelengths,
        metadata=source.metadata,
        rejected=part.left_out if sets_aside(options) else None,
        settings=settings,
        error_model=LowRankErrors(
            part.factors,
            part.noise_variance,
            survey.bands,
            source.shape[2],
            part.noise_scale,
            gap_factor=part.gap_factor,
        ),
    )
    return _calibrated(result, source.values, mask) if calibrate else result


def _threads(workers: int | None, options: Options, shape: tuple[int, ...]) -> int | None:
    """Return the number of threads: one by default where windows are small.

    Their steps are so short that threads spend more time on handing over the interpreter lock than
    a second processor gains.
    """
    if workers is not None or options.solver != "svd" or len(shape) != 3:
        return workers
    grid = WindowGrid.create(shape, window=options.window, step=options.step)
    return 1 if math.prod(grid.window) < SMALL_WINDOW else None


def _calibrated(result: DenoisedCube, values: np.ndarray, mask: np.ndarray | None) -> DenoisedCube:
    """Return the result with σ of every band scaled by what leaving elements out shows."""
    errors = result.error_model
    if errors is None:
        return result
    scene = SolvedScene.create(values, result.estimate, errors, result.rejected, mask=mask)
    factors = np.full(errors.n_bands, np.nan)
    factors[errors.bands] = band_spread(leave_one_out(scene))
    return result.calibrated(factors)


@dataclass(frozen=True)
class Options:
    """How to solve a scene; the names and meanings are those of `denoise`."""

    window: WindowSpec = 20
    step: WindowSpec = 4
    rank: int | str = "auto"
    solver: str | Solver = "svd"
    overlap: str = "exact"
    weights: str = "precision"
    finite_noise: bool = True
    uncertainty: bool = True

    def __post_init__(self) -> None:
        _check_choice("overlap", self.overlap, ("exact", "ratio"))
        _check_choice("weights", self.weights, ("precision", "uniform"))

    def described(self, survey: Survey) -> dict[str, Any]:
        """Return the settings that go with a result."""
        solver, grid = self.solver, survey.grid
        return {
            "window": list(grid.window),
            "step": [axis.step for axis in (grid.rows, grid.cols, grid.bands)],
            "rank": self.rank,
            "solver": solver if isinstance(solver, str) else getattr(solver, "__name__", "custom"),
            "overlap": self.overlap,
            "weights": self.weights,
            "finite_noise": self.finite_noise,
            "noise_source": survey.settled.source,
            "noise_model": dict(survey.settled.description),
            "version": __version__,
        }


@dataclass(frozen=True, eq=False)
class Part:
    """The result for some rows and columns of a scene."""

    estimate: np.ndarray
    """(row, col, band) of these rows and columns."""
    std: np.ndarray | None
    factors: Factors
    """Of all windows that cover them."""
    noise_variance: np.ndarray | None
    """(row, col, band cell) of the pixels that the factors cover."""
    noise_scale: np.ndarray | None
    """(row, col) factor of every pixel of these rows and columns on its noise."""
    noise_std: np.ndarray
    """(band,) or (row, col, band) noise of these rows and columns."""
    left_out: np.ndarray | None
    """(row, col, band) True for elements that were there and were left out; None without any."""
    gap_factor: np.ndarray | None
    """(row, col, band with data) factor on σ for what the windows lack, where factors cover."""


def take_survey(
    read: Read,
    shape: tuple[int, int, int],
    noise: float | np.ndarray | str | SignalNoise | SettledNoise | None,
    options: Options,
    run: ParallelMap,
    *,
    coverage: Coverage | None = None,
    workers: int | None = None,
) -> Survey:
    """Learn what the parts of a scene need to know of the whole, in bounded memory.

    ``coverage`` tells which values are there, where that has been looked at (`find_coverage`).
    """
    if coverage is None:
        coverage = find_coverage(read, shape)
    if not isinstance(noise, SettledNoise):
        noise = settle_noise(
            read, shape, noise, window=options.window, workers=workers, impulses=is_robust(options)
        )
    survey = Survey(shape, coverage, noise, options.window, options.step)
    make_solver(options.solver, options.rank, survey.grid)  # refuses a rank beyond the windows
    return find_striped(read, survey) if is_robust(options) else survey


def find_striped(read: Read, survey: Survey) -> Survey:
    """Add striped columns and rows to a survey."""
    n_rows, n_cols, _ = survey.shape
    n_bands = len(survey.bands)

    def block(rows: slice, cols: slice) -> tuple[np.ndarray, np.ndarray]:
        scene = _load_block(read, survey, rows, cols)
        there = scene.valid[..., None]
        return scene.scaled(), there if scene.missing is None else there & ~scene.missing

    def of_rows(part: slice, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        values, there = block(slice(start, stop), part)
        return values.swapaxes(0, 1), there.swapaxes(0, 1)

    columns = striped_lines(
        n_cols, n_rows, n_bands, lambda part, start, stop: block(part, slice(start, stop))
    )
    rows = striped_lines(n_rows, n_cols, n_bands, of_rows)
    return replace(survey, stripes=(columns, rows)) if columns.any() or rows.any() else survey


def pool_correlation(read: Read, survey: Survey, options: Options, run: ParallelMap) -> Survey:
    """Add what the survey must know of kept noise, from regions solved for that purpose."""
    if not keeps_noise(options, survey):
        return survey
    parts = (
        _solve(read, survey, options, survey.grid.part(*region), run)[0]
        for region in sampled_regions(survey.grid)
    )
    return replace(survey, correlation=pool_noise_correlation(parts, run))


def solve_part(
    read: Read,
    survey: Survey,
    options: Options,
    run: ParallelMap,
    *,
    rows: tuple[int, int] | None = None,
    cols: tuple[int, int] | None = None,
    progress: Progress | None = None,
) -> Part:
    """Solve some rows and columns of a scene; all of them by default.

    All windows that cover them are solved, so that the result is that of the whole scene, to the
    last bit. The survey of a part must hold the correlation of kept noise (`pool_correlation`).
    """
    rows, cols = rows or (0, survey.shape[0]), cols or (0, survey.shape[1])
    blocks = survey.grid.blocks(rows, cols)
    grid = part_grid(survey, rows, cols)
    is_whole = grid is survey.grid

    factors, scene = _solve(read, survey, options, grid, run, progress)
    correlation = survey.correlation
    if is_whole and correlation is None and keeps_noise(options, survey):
        regions = (factors.select(*region) for region in sampled_regions(grid))
        correlation = pool_noise_correlation(regions, run)
    combined = combine(
        factors,
        overlap=options.overlap,
        uncertainty=options.uncertainty,
        run=run,
        correlation=correlation,
        blocks=blocks,
        dtype=scene.output_dtype,
    )
    rows_here, cols_here = (
        slice(part[0] - origin, part[1] - origin)
        for part, origin in zip((rows, cols), grid.origin, strict=True)
    )
    return _part(survey, scene, factors, combined, (rows_here, cols_here), run)


def _part(
    survey: Survey,
    scene: Scene,
    factors: Factors,
    combined: Combined,
    here: tuple[slice, slice],
    run: ParallelMap,
) -> Part:
    """Return what was combined, cut to some rows and columns and in the units of the data."""
    std = None
    if combined.variance is not None:
        variance = combined.variance[here]

        def to_std(rows: np.ndarray) -> None:
            np.maximum(rows, 0, out=rows)  # masked pixels: zero but for rounding
            np.sqrt(rows, out=rows)
            np.multiply(rows, scene.noise.std, out=rows, casting="same_kind")

        run(to_std, np.array_split(variance, 8))
        std = scene.to_output(variance, here)
    scale, noise_std = scene.pixel_scale, scene.std_of_elements()
    left_out = combined.left_out
    if left_out is not None:
        left_out = left_out[here]
        if scene.lacking is not None:  # striped values were there
            left_out = left_out & ~scene.lacking[here]
        left_out = to_all_bands(left_out, survey.bands, survey.shape[2])
    return Part(
        estimate=scene.to_output(combined.estimate[here], here),
        std=std,
        factors=factors,
        noise_variance=combined.noise_variance,
        noise_scale=None if scale is None else scale[here],
        noise_std=noise_std if noise_std.ndim == 1 else noise_std[here],
        left_out=left_out,
        gap_factor=combined.gap_factor,
    )


def part_grid(survey: Survey, rows: tuple[int, int], cols: tuple[int, int]) -> WindowGrid:
    """Return the windows that some rows and columns need: all that cover the blocks they meet."""
    whole = survey.grid
    blocks = whole.blocks(rows, cols)
    hull = Block((blocks[0].rows[0], blocks[-1].rows[1]), (blocks[0].cols[0], blocks[-1].cols[1]))
    windows = hull.windows(whole)
    is_whole = windows == ((0, whole.shape[0]), (0, whole.shape[1]))
    return whole if is_whole else whole.part(*windows)


def extent(survey: Survey, grid: WindowGrid) -> tuple[slice, slice]:
    """Return the rows and columns that are read for the windows of a grid."""
    (top, side), (rows, cols, _) = grid.origin, grid.cube_shape
    return slice(top, top + rows), _segments(survey, slice(side, side + cols))


def _segments(survey: Survey, cols: slice) -> slice:
    """Return columns, extended to whole segments where whitening must round alike."""
    if survey.model.is_diagonal and survey.signal_noise is None:
        return cols
    left = cols.start - cols.start % SEGMENT
    return slice(left, min(cols.stop + -cols.stop % SEGMENT, survey.shape[1]))


def _solve(
    read: Read,
    survey: Survey,
    options: Options,
    grid: WindowGrid,
    run: ParallelMap,
    progress: Progress | None = None,
) -> tuple[Factors, Scene]:
    """Solve the windows of a grid, the whole scene's or a part of it."""
    scene = _load(read, survey, grid)
    solver = make_solver(options.solver, options.rank, survey.grid)
    solver = _for_noise(solver, options.rank, survey)
    white = scene.scaled() if isinstance(solver, CorrelatedSolver) else scene.whitened(run)
    solved = solve_windows(white, scene.valid, grid, solver, run, progress, scene.missing)
    factors = Factors.stack(
        grid,
        scene.noise,
        solved.solutions,
        spectral_energy(white, grid),
        solved.n_valid,
        finite_noise=options.finite_noise and options.overlap == "exact",
        weighting=options.weights,
        run=run,
    )
    return factors, scene


def _load(read: Read, survey: Survey, grid: WindowGrid) -> Scene:
    """Read the block of a scene that a grid covers."""
    (top, side), (height, width, _) = grid.origin, grid.cube_shape
    scene = _load_block(read, survey, slice(top, top + height), slice(side, side + width))
    return replace(scene, grid=grid)


def _load_block(read: Read, survey: Survey, rows: slice, cols: slice) -> Scene:
    """Read a block of a scene, with whole segments of columns where these matter."""
    wide = _segments(survey, cols)
    values, mask = read(rows, wide)
    side = cols.start - wide.start
    return Scene.create(
        values,
        mask,
        bands=survey.bands,
        noise=survey.model,
        grid=survey.grid,
        cols=slice(side, side + cols.stop - cols.start),
        signal_noise=survey.signal_noise,
        striped=survey.striped(rows, wide),
    )


def pixel_scales(read: Read, survey: Survey) -> Read | None:
    """Return what reads (row, col, 1) factors of pixels on their noise; None where all are one."""
    if survey.signal_noise is None:
        return None

    def scales(rows: slice, cols: slice) -> tuple[np.ndarray, np.ndarray | None]:
        found = _load_block(read, survey, rows, cols).pixel_scale
        assert found is not None
        return found[..., None], None

    return scales


def _few_patches(read: Read, survey: Survey) -> Iterator[np.ndarray]:
    """Yield (pixel, band) values over their noise of three windows across the scene."""
    rows, cols = (np.linspace(0, n - 1, 3).astype(int).tolist() for n in survey.grid.shape[:2])
    for i, j in zip(rows, cols, strict=True):
        scene = _load(read, survey, survey.grid.part((i, i + 1), (j, j + 1)))
        yield scene.scaled()[scene.valid]


def keeps_noise(options: Options, survey: Survey) -> bool:
    """Tell whether windows may keep components of pure noise, and the variance counts them."""
    solver = make_solver(options.solver, options.rank, survey.grid)
    only_signal = isinstance(solver, SvdSolver) and solver.rank == "auto" and not survey.incomplete
    return options.uncertainty and options.overlap == "exact" and not only_signal


def is_robust(options: Options) -> bool:
    """Tell whether impulses and stripes are to be set aside by the recommended solver."""
    return options.solver == "robust" or isinstance(options.solver, RobustSolver)


def sets_aside(options: Options) -> bool:
    """Tell whether the solver sets elements aside."""
    solver = options.solver
    if isinstance(solver, str):
        return solver != "svd"
    return isinstance(solver, GoDecSolver | RobustSolver | RpcaSolver | SemiSoftGoDecSolver)


def as_cube(cube: Cube | np.ndarray | Any) -> Cube:
    """Return any accepted input as a `Cube`."""
    if isinstance(cube, Cube):
        return cube
    if isinstance(cube, np.ndarray):
        return Cube(cube)
    if hasattr(cube, "dims") and hasattr(cube, "coords"):
        from sigmacube.io.dataset import from_dataarray

        return from_dataarray(cube)
    return Cube(np.asarray(cube))


def make_solver(solver: str | Solver, rank: int | str, grid: WindowGrid) -> Solver:
    """Return the solver for a name, with the rank checked against the windows."""
    rows, cols, bands = grid.window
    most = min(rows * cols, bands)
    if rank != "auto" and (isinstance(rank, str | bool | float) or not 1 <= rank <= most):
        raise ValueError(
            f"Invalid rank {rank!r}. It must be 'auto' or an int from 1 to {most}, the smaller "
            f"side of a {rows * cols}×{bands} window."
        )
    if callable(solver):
        return solver
    _check_choice("solver", solver, tuple(SOLVERS))
    return SOLVERS[solver](rank)


def _for_noise(solve: Solver, rank: int | str, survey: Survey) -> Solver:
    """Return the solver as it is, or made fit for noise that is correlated between bands."""
    aside = isinstance(solve, GoDecSolver | RobustSolver | RpcaSolver | SemiSoftGoDecSolver)
    if survey.model.is_diagonal or (not survey.incomplete and not aside):
        return solve
    if aside:
        return CorrelatedSolver(survey.model, fit=SvdSolver(rank), select=solve)
    start = SvdSolver(solve.rank) if isinstance(solve, SvdSolver) else None
    return CorrelatedSolver(survey.model, fit=solve, start=start)


def settle_noise(
    read: Read,
    shape: tuple[int, int, int],
    noise: float | np.ndarray | str | SignalNoise | None,
    *,
    window: WindowSpec = 20,
    workers: int | None = None,
    impulses: bool = False,
) -> SettledNoise:
    """Return the noise to use, estimating it where it is not given.

    Large scenes are looked at in part, see `noise_sample`. Estimators know whole spectra only:
    missing values, and with ``impulses`` whatever stands out from its neighbours, are filled with
    neighbouring values for them.
    """
    if noise is not None and not isinstance(noise, str | SignalNoise):
        value = np.asarray(noise, dtype=np.float64)
        return SettledNoise(float(value) if value.ndim == 0 else value.copy(), "given")
    values, mask = noise_sample(read, shape)
    if isinstance(noise, SignalNoise):
        noise = noise.at(mean_spectrum(values, np.any(valid_elements(values, mask), axis=2)))
        return SettledNoise(noise, "given", {"kind": "signal-dependent"})
    from sigmacube.noise.estimation import fit_noise
    from sigmacube.noise.filling import whole_spectra

    values, mask = whole_spectra(values, mask, impulses=impulses)
    found = fit_noise(values, noise, mask=mask, workers=workers)
    if isinstance(window, tuple) and len(window) == 3 and window[2] not in (None, shape[2]):
        found = found.independent()
    return SettledNoise(found.model, found.source, found.summary())


def joint_mask(cube: Cube, mask: np.ndarray | None) -> np.ndarray | None:
    """Return the cube's own mask and the user's, as one."""
    if mask is None:
        return cube.mask
    mask = broadcast_mask(mask, cube.shape)
    return mask if cube.mask is None else cube.mask & mask


def _check_choice(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        choices = ", ".join(repr(choice) for choice in allowed)
        raise ValueError(f"Invalid {name} {value!r}. It must be one of {choices}.")


def per_window(array: np.ndarray) -> np.ndarray:
    """Return (window rows, band windows, window cols) as (rows, cols) or (rows, cols, bands)."""
    array = np.moveaxis(array, 1, 2)
    return array[..., 0] if array.shape[2] == 1 else array
