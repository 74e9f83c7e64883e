"""Solvers: one patch in, one `PatchSolution` out. A solver knows nothing of the window grid."""

from sigmacube.core.solvers.base import PatchSolution, Solver
from sigmacube.core.solvers.svd import SvdSolver

__all__ = ["PatchSolution", "Solver", "SvdSolver"]
