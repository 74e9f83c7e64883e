"""The paper's family: every window is replaced by a matrix of low rank, overlapping ones averaged.

What others need of it: `solve_windows` solves a grid of windows, `Factors` holds what they gave,
`combine` makes the estimate and its variance of them, and `LowRankErrors` answers all questions
about the error.
"""

from sigmacube.core.lowrank.combine import Combined, combine
from sigmacube.core.lowrank.errors import LowRankErrors
from sigmacube.core.lowrank.factors import Factors
from sigmacube.core.lowrank.solve import solve_windows

__all__ = ["Combined", "Factors", "LowRankErrors", "combine", "solve_windows"]
