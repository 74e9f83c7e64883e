"""Solvers where noise is correlated between bands and elements are missing or to be set aside.

Whitening mixes the bands, so that one missing or wild element would touch a whole spectrum. Which
elements to set aside is therefore settled on patches that are only scaled to unit noise; the fit
to the others is made in whitened space, with the left-out elements at their conditional mean.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from sigmacube.core.lowrank.solvers.base import PatchSolution, Solver, traits_of
from sigmacube.core.lowrank.solvers.m_estimate import fill_bands
from sigmacube.core.lowrank.solvers.svd import SvdSolver
from sigmacube.core.whitening import Noise

MAX_FILLS = 200
TOLERANCE = 2e-3
# Below one, so that the fill of neighbouring elements settles where their noise is alike.
DAMPING = 0.5


@dataclass(frozen=True, eq=False)
class CorrelatedSolver:
    """Set elements aside on scaled patches, fit the others in whitened space.

    Parameters
    ----------
    noise
        Noise with a covariance between bands.
    fit
        Solver of whitened, complete patches.
    select
        Solver of scaled patches that decides which elements to keep; None keeps all that are
        there.
    start
        Solver of scaled patches whose estimate missing elements start from; those of the band's
        mean would rise above the noise edge and stay.
    """

    noise: Noise
    fit: Solver
    select: Solver | None = None
    start: SvdSolver | None = None

    takes_missing = True
    scaled = True

    @property
    def sets_aside(self) -> bool:
        """Whether elements are set aside that are there."""
        return self.select is not None

    @cached_property
    def _to_white(self) -> np.ndarray:
        return np.linalg.solve(self.noise.factor, np.diag(self.noise.std))

    @cached_property
    def _precision(self) -> np.ndarray:
        """Inverse correlation matrix of the noise, over its own diagonal."""
        inverse = self._to_white.T @ self._to_white
        return inverse / np.diag(inverse)

    def __call__(self, patch: np.ndarray, *, missing: np.ndarray | None = None) -> PatchSolution:
        """Solve one patch (pixels, bands), each band scaled to unit noise."""
        kept, filled = np.ones(patch.shape, dtype=bool), patch
        if missing is not None:
            kept, filled = ~missing, fill_bands(patch, missing)
            if self.start is not None:
                filled = np.where(missing, self.start(patch, missing=missing).estimate, patch)
        if self.select is not None:
            options = {} if missing is None else {"missing": missing}
            chosen = self.select(patch, **options)
            if chosen.kept is not None:
                kept = kept & chosen.kept
                filled = np.where(kept, patch, chosen.estimate)
        solution = self.fit(filled @ self._to_white.T)
        out = ~kept
        from_white = np.linalg.inv(self._to_white)
        for _ in range(MAX_FILLS if out.any() else 0):
            estimate = solution.estimate @ from_white.T
            residual = filled - estimate
            expected = residual[out] - DAMPING * (residual @ self._precision)[out]
            filled = filled.copy()
            moved = estimate[out] + expected - filled[out]
            filled[out] += moved
            solution = self.fit(filled @ self._to_white.T)
            if np.sqrt(np.sum(moved**2) / out.size) <= TOLERANCE:
                break
        left_over = filled @ self._to_white.T - solution.estimate
        return replace(
            solution,
            residual=float(np.vdot(left_over, left_over)),
            kept=kept,
            level=float(1 / np.sqrt(max(np.count_nonzero(kept) / kept.size, 1e-3))),
            loss=np.einsum("nv,nv->n", left_over, left_over),
        )


def fit_for_noise(solver: Solver, rank: int | str, noise: Noise, *, incomplete: bool) -> Solver:
    """Return the solver as it is, or made fit for noise that is correlated between bands.

    It is, where values are missing (``incomplete``) or the solver sets some aside.
    """
    aside = traits_of(solver).sets_aside
    if noise.is_diagonal or not (incomplete or aside):
        return solver
    if aside:
        return CorrelatedSolver(noise, fit=SvdSolver(rank), select=solver)
    start = SvdSolver(solver.rank) if isinstance(solver, SvdSolver) else None
    return CorrelatedSolver(noise, fit=solver, start=start)
