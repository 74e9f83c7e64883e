"""The whole path from a noisy cube to an estimate with its standard deviation, in data order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from sigmacube._version import __version__
from sigmacube.core.factors import Factors
from sigmacube.core.functionals import ErrorModel
from sigmacube.core.leave_one_out import SolvedScene, band_spread, leave_one_out
from sigmacube.core.noise import SEGMENT
from sigmacube.core.overlap import (
    Block,
    blocks_over,
    combine,
    pool_noise_correlation,
    sampled_regions,
)
from sigmacube.core.parallel import ParallelMap, parallel
from sigmacube.core.scene import Scene, broadcast_mask, mean_spectrum, valid_parts
from sigmacube.core.signal_noise import SignalNoise
from sigmacube.core.solve import (
    dominant_directions,
    pilot_windows,
    solve_windows,
    spectral_energy,
)
from sigmacube.core.solvers import Solver, SvdSolver
from sigmacube.core.survey import (
    Read,
    SettledNoise,
    Survey,
    find_bands,
    noise_sample,
    reader,
)
from sigmacube.core.windows import WindowGrid, WindowSpec
from sigmacube.cube import Cube
from sigmacube.result import DenoisedCube

if TYPE_CHECKING:
    import xarray as xr

__all__ = [
    "Options",
    "Part",
    "denoise",
    "extent",
    "keeps_noise",
    "part_grid",
    "pool_correlation",
    "solve_part",
    "take_survey",
]

Progress = Callable[[int, int], None]


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
        ``"svd"``, or a callable that takes one patch (pixels, bands) of unit noise and returns a
        `PatchSolution`.
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
        are masked anyway. A band without any valid value is set aside; a pixel without a valid
        value in every other band leaves the windows. Both are NaN in the result.
    uncertainty
        False computes the estimate alone; ``std`` is then None.
    calibrate
        Scale the standard deviation of every band by what leaving elements out shows (see
        `sigmacube.validation`), and record the factors in ``settings["calibration"]``.
    workers
        Threads; the number of processors by default. The result is the same for any number, to
        the last bit.
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
        lazy: DenoisedCube = import_module("sigmacube.scale.lazy").denoise_lazily(
            cube, noise, options, mask=mask
        )
        return lazy
    source = as_cube(cube)
    mask = _joint_mask(source, mask)
    read = reader(source.values, mask)
    with parallel(workers) as run:
        survey = take_survey(read, source.shape, noise, options, run, workers=workers)
        part = solve_part(read, survey, options, run, progress=progress)
    result = DenoisedCube(
        estimate=part.estimate,
        std=part.std,
        ranks=per_window(part.factors.ranks),
        noise=survey.noise,
        noise_scale=part.noise_scale,
        residual_ratio=per_window(part.factors.residual_ratio),
        wavelengths=source.wavelengths,
        metadata=source.metadata,
        settings=options.described(survey),
        error_model=ErrorModel(
            part.factors, part.noise_variance, survey.bands, source.shape[2], part.noise_scale
        ),
    )
    return _calibrated(result, source.values) if calibrate else result


def _calibrated(result: DenoisedCube, values: np.ndarray) -> DenoisedCube:
    """Return the result with σ of every band scaled by what leaving elements out shows."""
    errors = result.error_model
    if errors is None:
        return result
    scene = SolvedScene.create(values, result.estimate, errors, result.rejected)
    factors = np.full(errors.n_bands, np.nan)
    factors[errors.bands] = band_spread(leave_one_out(scene).z)
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


def take_survey(
    read: Read,
    shape: tuple[int, int, int],
    noise: float | np.ndarray | str | SignalNoise | SettledNoise | None,
    options: Options,
    run: ParallelMap,
    *,
    bands: np.ndarray | None = None,
    workers: int | None = None,
) -> Survey:
    """Learn what the parts of a scene need to know of the whole: one pass, in bounded memory.

    ``bands`` are those that hold data, where they have been looked for already (`find_bands`).
    """
    if bands is None:
        bands = find_bands(read, shape)
    if not isinstance(noise, SettledNoise):
        noise = settle_noise(read, shape, noise, window=options.window, workers=workers)
    survey = Survey(shape, bands, noise, options.window, options.step)
    solver = make_solver(options.solver, options.rank, survey.grid)
    if isinstance(solver, SvdSolver) and solver.rank == "auto":
        patches = [
            _load(read, survey, survey.grid.part((i, i + 1), (j, j + 1))).whitened()
            for i, j in pilot_windows(survey.grid)
        ]
        flat = [patch.reshape(-1, patch.shape[2]) for patch in patches]
        survey = replace(survey, start=dominant_directions(flat, run))
    return survey


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
    blocks = blocks_over(survey.grid, rows, cols)
    grid = part_grid(survey, rows, cols)
    is_whole = grid is survey.grid

    factors, scene = _solve(read, survey, options, grid, run, progress)
    correlation = survey.correlation
    if is_whole and correlation is None and keeps_noise(options, survey):
        regions = (factors.select(*region) for region in sampled_regions(grid))
        correlation = pool_noise_correlation(regions, run)
    estimate, variance, noise_variance = combine(
        factors,
        overlap=options.overlap,
        uncertainty=options.uncertainty,
        run=run,
        correlation=correlation,
        blocks=blocks,
    )
    here = tuple(
        slice(part[0] - origin, part[1] - origin)
        for part, origin in zip((rows, cols), grid.origin, strict=True)
    )
    std = None
    if variance is not None:
        spread = np.sqrt(variance[here], out=variance[here])
        std = scene.to_output(spread * scene.noise.std, here)
    scale = None if scene.pixel_scale is None else scene.pixel_scale[here]
    return Part(scene.to_output(estimate[here], here), std, factors, noise_variance, scale)


def part_grid(survey: Survey, rows: tuple[int, int], cols: tuple[int, int]) -> WindowGrid:
    """Return the windows that some rows and columns need: all that cover the blocks they meet."""
    whole = survey.grid
    blocks = blocks_over(whole, rows, cols)
    hull = Block((blocks[0].rows[0], blocks[-1].rows[1]), (blocks[0].cols[0], blocks[-1].cols[1]))
    windows = hull.windows(whole)
    is_whole = windows == ((0, whole.shape[0]), (0, whole.shape[1]))
    return whole if is_whole else whole.part(*windows)


def extent(survey: Survey, grid: WindowGrid) -> tuple[slice, slice]:
    """Return the rows and columns that are read for the windows of a grid."""
    top, side = grid.origin
    rows, cols, _ = grid.cube_shape
    left, right = side, side + cols
    if not survey.model.is_diagonal or survey.signal_noise is not None:
        # whole segments, so that whitening rounds alike
        left -= left % SEGMENT
        right = min(right + -right % SEGMENT, survey.shape[1])
    return slice(top, top + rows), slice(left, right)


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
    if survey.start is not None and isinstance(solver, SvdSolver):
        solver = replace(solver, start=survey.start)
    white = scene.whitened()
    solved = solve_windows(white, scene.valid, grid, solver, run, progress)
    factors = Factors.stack(
        grid,
        scene.noise,
        solved.solutions,
        spectral_energy(white, grid),
        solved.n_valid,
        finite_noise=options.finite_noise and options.overlap == "exact",
        weighting=options.weights,
    )
    return factors, scene


def _load(read: Read, survey: Survey, grid: WindowGrid) -> Scene:
    """Read the block of a scene that a grid covers."""
    rows, cols = extent(survey, grid)
    values, mask = read(rows, cols)
    side = grid.origin[1] - cols.start
    return Scene.create(
        values,
        mask,
        bands=survey.bands,
        noise=survey.model,
        grid=grid,
        cols=slice(side, side + grid.cube_shape[1]),
        signal_noise=survey.signal_noise,
    )


def keeps_noise(options: Options, survey: Survey) -> bool:
    """Tell whether windows may keep components of pure noise, and the variance counts them."""
    solver = make_solver(options.solver, options.rank, survey.grid)
    only_signal = isinstance(solver, SvdSolver) and solver.rank == "auto"
    return options.uncertainty and options.overlap == "exact" and not only_signal


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
    _check_choice("solver", solver, ("svd",))
    return SvdSolver(rank)


def settle_noise(
    read: Read,
    shape: tuple[int, int, int],
    noise: float | np.ndarray | str | SignalNoise | None,
    *,
    window: WindowSpec = 20,
    workers: int | None = None,
) -> SettledNoise:
    """Return the noise to use, estimating it where it is not given.

    Large scenes are looked at in part, see `noise_sample`.
    """
    if noise is not None and not isinstance(noise, str | SignalNoise):
        value = np.asarray(noise, dtype=np.float64)
        return SettledNoise(float(value) if value.ndim == 0 else value.copy(), "given")
    values, mask = noise_sample(read, shape)
    if isinstance(noise, SignalNoise):
        noise = noise.at(mean_spectrum(values, valid_parts(values, mask)[1]))
        return SettledNoise(noise, "given", {"kind": "signal-dependent"})
    from sigmacube.core.noise_estimation import fit_noise

    found = fit_noise(values, noise, mask=mask, workers=workers)
    if isinstance(window, tuple) and len(window) == 3 and window[2] not in (None, shape[2]):
        found = found.independent()
    return SettledNoise(found.model, found.source, found.summary())


def _joint_mask(cube: Cube, mask: np.ndarray | None) -> np.ndarray | None:
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
