"""Solve all windows of a scene with one solver."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from sigmacube.core.lowrank.factors import Factors, Kept, Window
from sigmacube.core.lowrank.solvers.base import PatchSolution, Solver, traits_of
from sigmacube.core.lowrank.solvers.m_estimate import fill_bands
from sigmacube.core.parallel import ParallelMap
from sigmacube.core.whitening import Noise
from sigmacube.core.windows import WindowGrid

# Filling missing values around a solver that knows nothing of them: how often at most, and the
# root mean square change, in noise std, at which they stay.
MAX_FILLS = 50
FILL_TOLERANCE = 2e-3


def solve_windows(
    white: np.ndarray,
    valid: np.ndarray,
    grid: WindowGrid,
    noise: Noise,
    solver: Solver,
    run: ParallelMap,
    progress: Callable[[int, int], None] | None = None,
    missing: np.ndarray | None = None,
    *,
    finite_noise: bool = True,
    weighting: str = "precision",
) -> Factors:
    """Solve every window of a whitened cube.

    Parameters
    ----------
    white
        (row, col, band) cube of unit noise, zero at masked pixels.
    valid
        (row, col) True for pixels that are not masked.
    grid
        The windows.
    noise
        What the cube was whitened by.
    solver
        Called with one patch (pixels, bands); masked pixels leave it beforehand.
    run
        Parallel map over rows of windows.
    progress
        Called as ``progress(done, total)``, in windows.
    missing
        (row, col, band) True for missing values of valid pixels, or None.
    finite_noise, weighting
        As in `Factors`.
    """
    n_rows, n_cols, n_layers = grid.shape

    def solve_row(i: int) -> list[list[PatchSolution]]:
        # Small products of BLAS raise flags for what they pad; solutions are checked themselves.
        with np.errstate(invalid="ignore"):
            return [
                [
                    _solve_patch(white, valid, missing, grid, solver, (i, j, k))
                    for j in range(n_cols)
                ]
                for k in range(n_layers)
            ]

    def report(done: int) -> None:
        if progress is not None:
            progress(done * n_cols * n_layers, n_rows * n_cols * n_layers)

    solutions = run(solve_row, range(n_rows), done=report)
    counts = [[int(np.count_nonzero(valid[grid.slices(i, j)[:2]])) for j in range(n_cols)]
              for i in range(n_rows)]  # fmt: skip
    spectra = [white[..., grid.bands.slice(k)] for k in range(n_layers)]
    energy = np.stack([np.einsum("rcv,rcv->rc", part, part) for part in spectra], axis=-1)
    left, right, values, residual, kept = _stacked(solutions, grid, noise)
    return Factors(
        grid, noise, left, right, values, residual, energy, np.array(counts), finite_noise,
        weighting, kept=kept,
    )  # fmt: skip


def _stacked(
    solutions: list[list[list[PatchSolution]]], grid: WindowGrid, noise: Noise
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[Window, Kept]]:
    """Return U, V, d and residual of all windows, and what they rest on, see `Factors`.

    Solutions are given as [window row][band window][window col].
    """
    rows, cols, bands = grid.window
    shape = (grid.shape[0], grid.shape[2], grid.shape[1])
    kept: dict[Window, Kept] = {}
    most = max(1, *(s.rank for row in solutions for line in row for s in line))
    left, right = np.zeros((*shape, most, rows, cols)), np.zeros((*shape, most, bands))
    values, residual = np.zeros((*shape, most)), np.empty(shape)
    for i, k, j in np.ndindex(shape):
        solution = solutions[i][k][j]
        r, own = solution.rank, Kept.of(solution)
        left[i, k, j, :r] = solution.left.T.reshape(r, rows, cols)
        right[i, k, j, :r] = solution.right.T
        values[i, k, j, :r] = solution.singular_values
        residual[i, k, j] = solution.residual
        if own is not None:
            kept[i, k, j] = own
            if noise.is_diagonal:
                right[i, k, j][:, ~own.known_bands()] = 0
    return left, right, values, residual, kept


def _solve_patch(
    white: np.ndarray,
    valid: np.ndarray,
    missing: np.ndarray | None,
    grid: WindowGrid,
    solver: Solver,
    window: tuple[int, int, int],
) -> PatchSolution:
    """Solve one window; masked pixels leave the patch and come back as rows of zeros."""
    rows, cols, bands = grid.slices(*window)
    keep = valid[rows, cols].ravel()
    # In one order, whatever part of the scene this is: BLAS rounds differently in another.
    patch = np.ascontiguousarray(white[rows, cols, bands].reshape(len(keep), -1))
    gone = None
    if missing is not None and missing[rows, cols, bands].any():
        gone = missing[rows, cols, bands].reshape(patch.shape)
        keep = keep & ~gone.all(axis=1)
    if not keep.any():
        empty = np.empty(0)
        return PatchSolution(np.empty((len(keep), 0)), empty, np.empty((patch.shape[1], 0)), 0.0)
    everything = keep.all()
    kept = patch if everything else patch[keep]
    if gone is None:
        solution = check_solution(solver(kept), kept)
    else:
        solution = solve_incomplete(solver, kept, gone if everything else gone[keep])
    return solution if everything else _with_masked_pixels(solution, keep)


def _with_masked_pixels(solution: PatchSolution, keep: np.ndarray) -> PatchSolution:
    """Return the solution of the pixels to keep with rows of zeros for the others."""

    def spread(array: np.ndarray | None) -> np.ndarray | None:
        if array is None:
            return None
        whole = np.zeros((len(keep), *array.shape[1:]), dtype=array.dtype)
        whole[keep] = array
        return whole

    left = np.zeros((len(keep), solution.rank))
    left[keep] = solution.left
    return replace(solution, left=left, kept=spread(solution.kept), loss=spread(solution.loss))


def solve_incomplete(solver: Solver, patch: np.ndarray, missing: np.ndarray) -> PatchSolution:
    """Solve a patch with missing values by a solver that may or may not know of them.

    For one that does not, missing values are filled with its own estimate until that stays
    (expectation maximisation).
    """
    if traits_of(solver).takes_missing:
        return check_solution(solver(patch, missing=missing), patch)  # type: ignore[call-arg]
    filled = fill_bands(patch, missing)
    for _ in range(MAX_FILLS):
        solution = solver(filled)
        values = solution.estimate[missing]
        change = np.sqrt(np.sum(np.square(values - filled[missing])) / missing.size)
        filled[missing] = values
        if change <= FILL_TOLERANCE:
            break
    kept = ~missing if solution.kept is None else solution.kept & ~missing
    left_over = np.where(missing, 0, patch - solution.estimate)
    return replace(
        check_solution(solution, patch),
        kept=kept,
        residual=float(np.vdot(left_over, left_over)),
        level=solution.level * float(np.sqrt(missing.size / np.count_nonzero(~missing))),
        loss=np.einsum("nv,nv->n", left_over, left_over),
    )


def check_solution(solution: PatchSolution, patch: np.ndarray) -> PatchSolution:
    """Refuse what a solver must not return, and fill in the residual if it is missing."""
    n, p, r = *patch.shape, solution.rank
    shapes = (solution.left.shape, solution.right.shape)
    if shapes != ((n, r), (p, r)):
        raise ValueError(
            f"Invalid solution with factors of shapes {shapes[0]} and {shapes[1]}. For a patch "
            f"{patch.shape} and rank {r} they must be {(n, r)} and {(p, r)}."
        )
    if np.isnan(solution.residual):
        return replace(solution, residual=float(np.sum((patch - solution.estimate) ** 2)))
    return solution
