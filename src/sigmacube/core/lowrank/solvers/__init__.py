"""Solvers: one patch in, one `PatchSolution` out. A solver knows nothing of the window grid.

A new solver is one file with a class, and one row of `SOLVERS` (`sigmacube.core.tables`).
"""

from __future__ import annotations

from sigmacube.core.lowrank.solvers.base import PatchSolution, Solver, Traits, traits_of
from sigmacube.core.lowrank.solvers.correlated import CorrelatedSolver
from sigmacube.core.lowrank.solvers.godec import GoDecSolver
from sigmacube.core.lowrank.solvers.robust import RobustSolver
from sigmacube.core.lowrank.solvers.rpca import RpcaSolver
from sigmacube.core.lowrank.solvers.ssgodec import SemiSoftGoDecSolver
from sigmacube.core.lowrank.solvers.svd import SvdSolver
from sigmacube.core.tables import SOLVERS, load
from sigmacube.core.whitening import Noise

__all__ = [
    "SOLVERS",
    "CorrelatedSolver",
    "GoDecSolver",
    "PatchSolution",
    "RobustSolver",
    "RpcaSolver",
    "SemiSoftGoDecSolver",
    "Solver",
    "SvdSolver",
    "Traits",
    "fit_for_noise",
    "make_solver",
    "traits_of",
]


def make_solver(solver: str | Solver, rank: int | str = "auto") -> Solver:
    """Return the solver of a name with a rank; one that is given already as it is.

    Parameters
    ----------
    solver
        A row of `SOLVERS`, or a callable that takes one patch and returns a `PatchSolution`.
    rank
        ``"auto"`` or a number of components.

    Examples
    --------
    >>> make_solver("svd", 3)
    SvdSolver(rank=3)
    """
    if callable(solver):
        return solver
    if solver not in SOLVERS:
        choices = ", ".join(repr(name) for name in SOLVERS)
        raise ValueError(f"Invalid solver {solver!r}. It must be one of {choices}.")
    made: Solver = load(SOLVERS[solver])(rank)
    return made


def fit_for_noise(solver: Solver, rank: int | str, noise: Noise, *, incomplete: bool) -> Solver:
    """Return the solver as it is, or made fit for noise that is correlated between bands.

    Parameters
    ----------
    solver
        Solver of patches of unit noise.
    rank
        As for `make_solver`.
    noise
        Noise of the bands.
    incomplete
        Whether values are missing.
    """
    aside = traits_of(solver).sets_aside
    if noise.is_diagonal or not (incomplete or aside):
        return solver
    if aside:
        return CorrelatedSolver(noise, fit=SvdSolver(rank), select=solver)
    start = SvdSolver(solver.rank) if isinstance(solver, SvdSolver) else None
    return CorrelatedSolver(noise, fit=solver, start=start)
