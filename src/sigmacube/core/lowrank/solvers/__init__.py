"""Solvers: one patch in, one `PatchSolution` out. A solver knows nothing of the window grid."""

from sigmacube.core.lowrank.solvers.base import PatchSolution, Solver
from sigmacube.core.lowrank.solvers.correlated import CorrelatedSolver
from sigmacube.core.lowrank.solvers.godec import GoDecSolver
from sigmacube.core.lowrank.solvers.robust import RobustSolver
from sigmacube.core.lowrank.solvers.rpca import RpcaSolver
from sigmacube.core.lowrank.solvers.ssgodec import SemiSoftGoDecSolver
from sigmacube.core.lowrank.solvers.svd import SvdSolver

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
