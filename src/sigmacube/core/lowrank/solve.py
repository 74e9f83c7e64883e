"""Solve all windows of a scene with one solver."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from sigmacube.core.lowrank.eigen import leading_eigenpairs
from sigmacube.core.lowrank.solvers import PatchSolution, Solver, SvdSolver
from sigmacube.core.lowrank.solvers.m_estimate import fill_bands
from sigmacube.core.parallel import ParallelMap
from sigmacube.core.rank import noise_edge
from sigmacube.core.windows import Axis, WindowGrid

__all__ = ["dominant_directions", "pilot_windows", "solve_windows", "spectral_energy"]

# Windows that are looked at to learn how many components the scene's windows need, per axis.
PILOTS = 3
# Directions beyond the wanted ones, at least, and what their number is a multiple of: products of
# matrices are fastest there.
GUARDS = 3
MULTIPLE = 4
# Blocks of rows that symmetric matrices are computed in, each up to the diagonal.
STAIRS = 4
# Beyond this share of the bands a block of directions costs more than LAPACK.
LARGEST_BLOCK = 1 / 12
# Bytes of the Gram matrices of windows that are solved together. More of them leave the processor's
# cache; fewer are small steps, and threads wait for each other between them.
STACK = 5_000_000
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
    per_row = grid.shape[1] * grid.shape[2]
    total = grid.shape[0] * per_row

    def solve_row(i: int) -> list[list[PatchSolution]]:
        if isinstance(solver, SvdSolver) and _grams_pay(grid):
            return _row_by_grams(white, valid, missing, grid, solver, i)
        return _row_by_patches(white, valid, missing, grid, solver, i)

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


def _row_by_patches(
    white: np.ndarray,
    valid: np.ndarray,
    missing: np.ndarray | None,
    grid: WindowGrid,
    solver: Solver,
    i: int,
) -> list[list[PatchSolution]]:
    """Solve one row of windows, patch by patch."""
    return [
        [_solve_patch(white, valid, missing, grid, solver, (i, j, k)) for j in range(grid.shape[1])]
        for k in range(grid.shape[2])
    ]


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
    if getattr(solver, "takes_missing", False):
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
) -> list[list[PatchSolution]]:
    """Solve one row of windows from Gram matrices that neighbours share."""
    rows = grid.slices(i, 0)[0]
    strip = white[rows]
    line: list[PatchSolution | None] = [None] * grid.shape[1]
    whole = []
    for j in range(grid.shape[1]):
        cols = grid.slices(i, j)[1]
        if missing is not None and missing[rows, cols].any():
            line[j] = _solve_patch(white, valid, missing, grid, solver, (i, j, 0))
        else:
            whole.append(j)
    grams = _WindowGrams(strip, grid.cols)
    together = max(STACK // (8 * grid.bands.size**2), 1)
    for start in range(0, len(whole), together):
        windows = whole[start : start + together]
        parts = [grid.slices(i, j)[1] for j in windows]
        solutions = solver.solve_stack(
            [strip[:, part] for part in parts],
            grams.of(windows),
            np.array([np.count_nonzero(valid[rows, part]) for part in parts]),
        )
        for j, solution in zip(windows, solutions, strict=True):
            line[j] = solution
    return [line]  # type: ignore[list-item]


class _WindowGrams:
    """patchᵀ patch of the windows along a strip (rows, cols, bands).

    Windows overlap, so the matrix of each cell is computed once and added to all that cover it. Of
    the symmetric matrices only a staircase below the diagonal is computed: blocks of rows up to the
    diagonal, which lie one after the other.
    """

    def __init__(self, strip: np.ndarray, axis: Axis) -> None:
        self.strip, self.axis = strip, axis
        cuts = [step * strip.shape[2] // STAIRS for step in range(STAIRS + 1)]
        self.steps = list(pairwise(cuts))
        self.ends = np.cumsum([0] + [(stop - start) * stop for start, stop in self.steps]).tolist()
        self.first, self.cells = 0, np.empty((0, self.ends[-1]))

    def of(self, windows: Sequence[int]) -> np.ndarray:
        """Return (windows, bands, bands); windows must come in ascending order."""
        starts = self.axis.starts[windows]
        first, last = np.searchsorted(self.axis.edges, (starts, starts + self.axis.size))
        self._move_to(first[0], last[-1])
        n_bands, total = self.strip.shape[2], np.empty(self.cells.shape[1])
        grams = np.empty((len(windows), n_bands, n_bands))
        for gram, start, stop in zip(grams, first - first[0], last - first[0], strict=True):
            np.add.reduce(self.cells[start:stop], axis=0, out=total)
            for (top, bottom), part in self._stairs(total):
                gram[top:bottom, :bottom] = part
                gram[:top, top:bottom] = part[:, :top].T
        return grams

    def _stairs(self, packed: np.ndarray) -> Iterator[tuple[tuple[int, int], np.ndarray]]:
        """Yield rows (top, bottom) and views (..., rows, columns to the diagonal) of matrices."""
        for (top, bottom), start, stop in zip(self.steps, self.ends, self.ends[1:], strict=False):
            part = packed[..., start:stop]
            yield (top, bottom), part.reshape(*part.shape[:-1], bottom - top, bottom)

    def _move_to(self, first: int, last: int) -> None:
        """Hold the matrices of the cells from first to last, of which some may be known."""
        known = self.cells[first - self.first :]
        self.cells = np.empty((last - first, *known.shape[1:]))
        self.cells[: len(known)], self.first = known, first
        edges = self.axis.edges[first + len(known) : last + 1]
        new = self.cells[len(known) :]
        breaks = np.flatnonzero(np.diff(edges, 2)) + 1  # where cells of another width follow
        for run in np.split(np.arange(len(new)), breaks):
            self._write_cells(edges[run[0]], edges[run[-1] + 1], new[run[0] : run[-1] + 1])

    def _write_cells(self, start: int, stop: int, out: np.ndarray) -> None:
        """Write the matrices of neighbouring cells of equal width."""
        rows, _, n_bands = self.strip.shape
        by_row = self.strip[:, start:stop].reshape(rows, len(out), -1, n_bands)
        parts = by_row.swapaxes(0, 1).reshape(len(out), -1, n_bands)
        # Of one and the same array NumPy would compute a triangle and mirror it, which takes twice
        # as long.
        turned, other = parts.swapaxes(1, 2), parts.copy()
        for (top, bottom), part in self._stairs(out):
            np.matmul(turned[:, top:bottom], other[..., :bottom], out=part)


def spectral_energy(white: np.ndarray, grid: WindowGrid) -> np.ndarray:
    """Return (rows, cols, band windows) the sum of squares of every spectrum."""
    parts = (white[..., s : s + grid.bands.size] for s in grid.bands.starts)
    return np.stack([np.einsum("rcv,rcv->rc", part, part) for part in parts], axis=-1)


def pilot_windows(grid: WindowGrid) -> list[tuple[int, int]]:
    """Return a few windows (row, col) spread over the scene; none where LAPACK is faster anyway."""
    if not _grams_pay(grid):
        return []
    rows, cols = (np.unique(np.linspace(0, n - 1, PILOTS).astype(int)) for n in grid.shape[:2])
    return [(int(i), int(j)) for i in rows for j in cols]


def dominant_directions(patches: Sequence[np.ndarray], run: ParallelMap) -> np.ndarray | None:
    """Return the directions that dominate the scene, as a start for the eigensolver.

    Whitened patches (pixels, bands) of a few windows tell how many components windows need. None
    where that is a large share of the bands, and LAPACK is the faster way.
    """
    if not patches:
        return None
    floor = noise_edge(*patches[0].shape) ** 2

    def look(patch: np.ndarray) -> tuple[np.ndarray, int]:
        gram = patch.T @ patch
        return gram, len(leading_eigenpairs(gram, floor=floor)[0])

    pilots = run(look, patches)
    block = max(rank for _, rank in pilots) + GUARDS
    block += -block % MULTIPLE
    if block > LARGEST_BLOCK * patches[0].shape[1]:
        return None
    return leading_eigenpairs(sum(gram for gram, _ in pilots), count=block)[1]
