"""The whole path from a noisy cube to an estimate with its standard deviation, in data order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from sigmacube._version import __version__
from sigmacube.core.factors import Factors
from sigmacube.core.functionals import ErrorModel
from sigmacube.core.impulses import advice_on_impulses, advice_on_ranks
from sigmacube.core.incomplete import Incompleteness, incompleteness
from sigmacube.core.leave_one_out import SolvedScene, band_spread, leave_one_out
from sigmacube.core.overlap import combine
from sigmacube.core.parallel import ParallelMap, parallel
from sigmacube.core.scene import Scene, to_all_bands
from sigmacube.core.signal_noise import SignalNoise
from sigmacube.core.solve import dominant_directions, solve_windows, spectral_energy
from sigmacube.core.solvers import (
    CorrelatedSolver,
    GoDecSolver,
    RobustSolver,
    RpcaSolver,
    SemiSoftGoDecSolver,
    Solver,
    SvdSolver,
)
from sigmacube.core.windows import WindowGrid, WindowSpec
from sigmacube.cube import Cube
from sigmacube.result import DenoisedCube

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["denoise"]

Progress = Callable[[int, int], None]

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
        (row, col, band) values: a `Cube`, an array of any real type, or an `xarray.DataArray`.
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
    source = as_cube(cube)
    _check_choice("overlap", overlap, ("exact", "ratio"))
    _check_choice("weights", weights, ("precision", "uniform"))
    mask = _joint_mask(source, mask)
    robust = solver == "robust" or isinstance(solver, RobustSolver)
    settled = settle_noise(
        source.values, noise, mask, window=window, workers=workers, impulses=robust
    )
    scene = Scene.create(source.values, settled.model, mask=mask, window=window, step=step)
    noise_value, missing = settled.value(scene.mean_spectrum), scene.missing
    solve = make_solver(solver, rank, scene.grid)
    if robust:
        scene = scene.without_stripes()
    solve = _for_noise(solve, rank, scene)

    with parallel(workers) as run:
        correlated = isinstance(solve, CorrelatedSolver)
        white = scene.scaled() if correlated else scene.whitened()
        solve = _with_start(solve, white, scene.grid, run)
        solved = solve_windows(
            white, scene.valid, scene.grid, solve, run, progress, missing=scene.missing
        )
        factors = Factors.stack(
            scene.grid,
            scene.noise,
            solved.solutions,
            spectral_energy(white, scene.grid),
            solved.n_valid,
            finite_noise=finite_noise and overlap == "exact",
            weighting=weights,
        )
        del white, solved
        estimate, variance, noise_variance = combine(
            factors, overlap=overlap, uncertainty=uncertainty, run=run
        )
        incomplete = incompleteness(factors, run, uncertainty=uncertainty)
        if incomplete is not None:
            incomplete.apply(estimate, variance, noise_variance, np.diff(scene.grid.bands.edges))

    std = None
    if variance is not None:
        std = scene.to_output(np.sqrt(variance, out=variance) * scene.noise.std)
    settings: dict[str, Any] = {
        "window": list(scene.grid.window),
        "step": [axis.step for axis in (scene.grid.rows, scene.grid.cols, scene.grid.bands)],
        "rank": rank,
        "solver": solver if isinstance(solver, str) else getattr(solver, "__name__", "custom"),
        "overlap": overlap,
        "weights": weights,
        "finite_noise": finite_noise,
        "noise_source": settled.source,
        "noise_model": settled.description,
        "version": __version__,
    }
    estimate = scene.to_output(estimate)
    if isinstance(solve, SvdSolver):
        advice = advice_on_impulses(
            source.values, estimate, scene.std_of_elements()
        ) or advice_on_ranks(scene, factors.ranks)
        settings |= {} if advice is None else {"advice": advice}
    rejected = _rejected(scene, missing, incomplete, solve)
    if rejected is not None:
        settings["rejected_share"] = float(rejected.mean())
    result = DenoisedCube(
        estimate=estimate,
        std=std,
        ranks=_per_window(factors.ranks),
        noise=noise_value,
        noise_scale=scene.pixel_scale,
        residual_ratio=_per_window(factors.residual_ratio),
        wavelengths=source.wavelengths,
        metadata=source.metadata,
        rejected=rejected,
        settings=settings,
        error_model=ErrorModel(
            factors,
            noise_variance,
            scene.bands,
            source.shape[2],
            scene.pixel_scale,
            inflation=None if incomplete is None else incomplete.inflation,
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


def _for_noise(solve: Solver, rank: int | str, scene: Scene) -> Solver:
    """Return the solver as it is, or made fit for noise that is correlated between bands."""
    sets_aside = isinstance(solve, GoDecSolver | RobustSolver | RpcaSolver | SemiSoftGoDecSolver)
    if scene.noise.is_diagonal or (scene.missing is None and not sets_aside):
        return solve
    if sets_aside:
        return CorrelatedSolver(scene.noise, fit=SvdSolver(rank), select=solve)
    return CorrelatedSolver(scene.noise, fit=solve)


def _rejected(
    scene: Scene, missing: np.ndarray | None, incomplete: Incompleteness | None, solve: Solver
) -> np.ndarray | None:
    """Return the elements set aside; None for a solver that sets none aside."""
    if incomplete is None or isinstance(solve, SvdSolver):
        return None
    if isinstance(solve, CorrelatedSolver) and solve.select is None:
        return None
    return to_all_bands(incomplete.rejected(missing), scene.bands, scene.values.shape[2])


@dataclass(frozen=True, eq=False)
class SettledNoise:
    """The noise to use and where it comes from."""

    model: float | np.ndarray | SignalNoise
    """What `denoise` takes as ``noise``."""
    source: str
    """``"given"`` or the estimator's name."""
    description: dict[str, Any] = field(default_factory=dict)
    """JSON-like: kind of noise, and what was found along the way."""

    def value(self, spectrum: np.ndarray) -> float | np.ndarray:
        """Return the noise as a scalar, stds or a covariance, at a spectrum if it needs one."""
        if isinstance(self.model, SignalNoise):
            return self.model.at(spectrum).value
        return self.model


def settle_noise(
    values: np.ndarray,
    noise: float | np.ndarray | str | SignalNoise | None,
    mask: np.ndarray | None,
    *,
    window: WindowSpec = 20,
    workers: int | None = None,
    impulses: bool = False,
) -> SettledNoise:
    """Return the noise to use, estimating it where it is not given.

    Estimators know whole spectra only: missing values, and with ``impulses`` whatever stands out
    from its neighbours, are filled with neighbouring values for them.

    Tiles of one scene must share what this returns for the whole of it: pass ``.model`` on as
    ``noise``.
    """
    if isinstance(noise, SignalNoise):
        return SettledNoise(noise, "given", {"kind": "signal-dependent"})
    if noise is not None and not isinstance(noise, str):
        value = np.asarray(noise, dtype=np.float64)
        return SettledNoise(float(value) if value.ndim == 0 else value.copy(), "given")
    from sigmacube.core.filling import whole_spectra
    from sigmacube.core.noise_estimation import fit_noise

    values, mask = whole_spectra(values, mask, impulses=impulses)
    found = fit_noise(values, noise, mask=mask, workers=workers)
    if isinstance(window, tuple) and len(window) == 3 and window[2] not in (None, values.shape[2]):
        found = found.independent()
    return SettledNoise(found.model, found.source, found.summary())


def _with_start(solve: Solver, white: np.ndarray, grid: WindowGrid, run: ParallelMap) -> Solver:
    """Give the SVD solver the scene's dominant directions to start from."""
    if isinstance(solve, SvdSolver) and solve.rank == "auto":
        return SvdSolver(solve.rank, start=dominant_directions(white, grid, run))
    return solve


def _joint_mask(cube: Cube, mask: np.ndarray | None) -> np.ndarray | None:
    """Return the cube's own mask and the user's, as one."""
    if mask is None or cube.mask is None:
        return cube.mask if mask is None else np.asarray(mask)
    mask = np.asarray(mask)
    return cube.mask & (mask[..., None] if mask.ndim == 2 else mask)


def _check_choice(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        choices = ", ".join(repr(choice) for choice in allowed)
        raise ValueError(f"Invalid {name} {value!r}. It must be one of {choices}.")


def _per_window(array: np.ndarray) -> np.ndarray:
    """Return (window rows, band windows, window cols) as (rows, cols) or (rows, cols, bands)."""
    array = np.moveaxis(array, 1, 2)
    return array[..., 0] if array.shape[2] == 1 else array
