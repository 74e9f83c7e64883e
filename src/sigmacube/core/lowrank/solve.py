"""Solve all windows of a scene with one solver."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from sigmacube.core.lowrank.solvers import PatchSolution, Solver, SvdSolver, traits_of
from sigmacube.core.lowrank.solvers.m_estimate import fill_bands
from sigmacube.core.parallel import ParallelMap
from sigmacube.core.windows import Axis, WindowGrid

__all__ = ["SolvedWindows", "solve_windows", "spectral_energy"]

# Filling missing values around a solver that knows nothing of them: how often at most, and the
# root mean square change, in noise std, at which they stay.
MAX_FILLS = 50
FILL_TOLERANCE = 2e-3


@dataclass(frozen=True, eq=False)
class SolvedWindows:
    """Solutions of all windows."""

    solutions: list[list[list[PatchSolution]]]
    """[window row][band window][window col]."""
    n_valid: np.ndarray
    """(window rows, window cols) pixels that are not masked."""


def solve_windows(
    white: np.ndarray,
    valid: np.ndarray,
    grid: WindowGrid,
    solver: Solver,
    run: ParallelMap,
    progress: Callable[[int, int], None] | None = None,
    missing: np.ndarray | None = None,
) -> SolvedWindows:
    """Solve every window of a whitened cube.

    Parameters
    ----------
    white
        (row, col, band) cube of unit noise, zero at masked pixels.
    valid
        (row, col) True for pixels that are not masked.
    grid
        The windows.
    solver
        Called with one patch (pixels, bands); masked pixels leave it beforehand.
    run
        Parallel map over rows of windows.
    progress
        Called as ``progress(done, total)``, in windows.
    missing
        (row, col, band) True for missing values of valid pixels, or None.
    """
    n_cols = grid.shape[1]
    per_row = n_cols * grid.shape[2]
    total = grid.shape[0] * per_row

    def solve_row(i: int) -> list[list[PatchSolution]]:
        if isinstance(solver, SvdSolver) and _grams_pay(grid):
            return [_row_by_grams(white, valid, missing, grid, solver, i)]
        return [
            [_solve_patch(white, valid, missing, grid, solver, (i, j, k)) for j in range(n_cols)]
            for k in range(grid.shape[2])
        ]

    def report(n_rows: int) -> None:
        if progress is not None:
            progress(n_rows * per_row, total)

    solutions = run(solve_row, range(grid.shape[0]), done=report)
    counts = [[int(np.count_nonzero(valid[grid.slices(i, j)[:2]])) for j in range(grid.shape[1])]
              for i in range(grid.shape[0])]  # fmt: skip
    return SolvedWindows(solutions, np.array(counts))


def _grams_pay(grid: WindowGrid) -> bool:
    """Tell whether the bands × bands Gram matrix is the smaller one, and of all bands."""
    rows, cols, bands = grid.window
    return len(grid.bands) == 1 and rows * cols >= bands


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


def _row_by_grams(
    white: np.ndarray,
    valid: np.ndarray,
    missing: np.ndarray | None,
    grid: WindowGrid,
    solver: SvdSolver,
    i: int,
) -> list[PatchSolution]:
    """Solve one row of windows from Gram matrices that neighbours share."""
    rows = grid.slices(i, 0)[0]
    line = []
    for j, gram in enumerate(_grams_along(white[rows], grid.cols)):
        cols = grid.slices(i, j)[1]
        if missing is not None and missing[rows, cols].any():
            line.append(_solve_patch(white, valid, missing, grid, solver, (i, j, 0)))
        else:
            n_valid = int(np.count_nonzero(valid[rows, cols]))
            line.append(solver.from_gram(white[rows, cols], gram, n_valid))
    return line


def _grams_along(strip: np.ndarray, axis: Axis) -> Iterator[np.ndarray]:
    """Yield patchᵀ patch of the windows along a strip (rows, cols, bands).

    Windows overlap, so the matrix of each cell is computed once and added to all that cover it.
    """
    held: deque[tuple[int, np.ndarray]] = deque()
    cells = iter(axis.cells())
    for start in axis.starts.tolist():
        while held and held[0][0] < start:
            held.popleft()
        while not held or held[-1][0] < start + axis.size - 1:
            cell = next(cells)
            part = strip[:, cell.elements].reshape(-1, strip.shape[2])
            # Of one and the same array NumPy would compute a triangle and mirror it, which takes
            # twice as long.
            held.append((cell.elements.stop - 1, part.T @ part.copy()))
        total = held[0][1].copy()
        for _, gram in list(held)[1:]:
            total += gram
        yield total


def spectral_energy(white: np.ndarray, grid: WindowGrid) -> np.ndarray:
    """Return (rows, cols, band windows) the sum of squares of every spectrum."""
    parts = (white[..., s : s + grid.bands.size] for s in grid.bands.starts)
    return np.stack([np.einsum("rcv,rcv->rc", part, part) for part in parts], axis=-1)
