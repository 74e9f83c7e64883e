"""Solvers: one patch in, one `PatchSolution` out. A solver knows nothing of the window grid."""

from sigmacube.core.solvers.base import PatchSolution, Solver
from sigmacube.core.solvers.correlated import CorrelatedSolver
from sigmacube.core.solvers.godec import GoDecSolver
from sigmacube.core.solvers.robust import RobustSolver
from sigmacube.core.solvers.rpca import RpcaSolver
from sigmacube.core.solvers.ssgodec import SemiSoftGoDecSolver
from sigmacube.core.solvers.svd import SvdSolver

__all__ = [
    "CorrelatedSolver",
    "GoDecSolver",
    "PatchSolution",
    "RobustSolver",
    "RpcaSolver",
    "SemiSoftGoDecSolver",
    "Solver",
    "SvdSolver",
]
