"""Solvers: one patch in, one `PatchSolution` out. A solver knows nothing of the window grid.

A new solver is one file with a class, and one row of `SOLVERS` (`sigmacube.core.tables`).
"""

from __future__ import annotations

from sigmacube.core.lowrank.solvers.base import (
    PatchSolution,
    Solver,
    Traits,
    make_solver,
    traits_of,
)
from sigmacube.core.lowrank.solvers.correlated import CorrelatedSolver, fit_for_noise
from sigmacube.core.lowrank.solvers.godec import GoDecSolver
from sigmacube.core.lowrank.solvers.robust import RobustSolver
from sigmacube.core.lowrank.solvers.rpca import RpcaSolver
from sigmacube.core.lowrank.solvers.ssgodec import SemiSoftGoDecSolver
from sigmacube.core.lowrank.solvers.svd import SvdSolver
from sigmacube.core.tables import SOLVERS

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
