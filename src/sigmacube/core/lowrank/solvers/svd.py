"""Exact truncated singular value decomposition of a patch, by way of its Gram matrix."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from sigmacube.core.lowrank.solvers.base import PatchSolution
from sigmacube.core.lowrank.solvers.low_rank import GRAM_RESOLUTION, working_precision
from sigmacube.core.lowrank.solvers.m_estimate import Observed, full_influence, settle, to_solution
from sigmacube.core.lowrank.solvers.weighted import alternate
from sigmacube.core.rank import count_signal, leading_eigenpairs, noise_edge

__all__ = ["SvdSolver"]

# A fit around missing values has settled when a step moves it by less than so many noise std.
MISSING_TOLERANCE = 1e-3


@dataclass(frozen=True)
class SvdSolver:
    """Truncated SVD with the rank from the noise edge, or a fixed one.

    Parameters
    ----------
    rank
        ``"auto"`` or a fixed number of components.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> signal = 30 * np.outer(rng.normal(size=60), rng.normal(size=20)) / 60**0.5
    >>> SvdSolver()(signal + rng.normal(size=(60, 20))).rank
    1
    """

    rank: int | str = "auto"

    takes_missing = True

    @property
    def keeps_noise(self) -> bool:
        """Whether components below the noise edge are kept: not with an automatic rank."""
        return self.rank != "auto"

    def __call__(self, patch: np.ndarray, *, missing: np.ndarray | None = None) -> PatchSolution:
        """Solve one patch (pixels, bands) of unit noise.

        Parameters
        ----------
        patch
            The patch.
        missing
            (pixels, bands) True where a value is missing; the others are then fitted by least
            squares.
        """
        if missing is not None:
            return self._incomplete(patch, missing)
        n, p = patch.shape
        energy, edge = float(np.vdot(patch, patch)), noise_edge(n, p)
        if energy == 0.0 or edge**2 < GRAM_RESOLUTION * energy:
            return self._by_patch(patch, edge)
        # The smaller of the two Gram matrices has the same eigenvalues.
        values, vectors = self._leading(patch.T @ patch if n >= p else patch @ patch.T, edge)
        d = np.sqrt(values)
        residual = max(energy - float(values.sum()), 0.0)
        if n >= p:
            return PatchSolution(patch @ (vectors / d), d, vectors, residual)
        return PatchSolution(vectors, d, patch.T @ (vectors / d), residual)

    def _leading(self, gram: np.ndarray, edge: float) -> tuple[np.ndarray, np.ndarray]:
        if self.rank == "auto":
            return leading_eigenpairs(gram, floor=edge**2)
        values, vectors = leading_eigenpairs(gram, count=min(int(self.rank), len(gram)))
        real = values > 1e-14 * values[0]  # a patch of lower rank than asked for
        return values[real], vectors[:, real]

    def _incomplete(self, patch: np.ndarray, missing: np.ndarray) -> PatchSolution:
        work, kept = working_precision(patch), ~missing
        data = Observed.create(work, missing)
        state = settle(data, full_influence, self.rank, 10 * MISSING_TOLERANCE)
        low = alternate(work, kept, state.low, MISSING_TOLERANCE)
        solution = to_solution(patch, missing, low, kept, 0.0, 1.0, bound=np.inf)
        share = np.count_nonzero(kept) / kept.size
        return replace(solution, sandwich=1.0, level=float(1 / np.sqrt(share)))

    def _by_patch(self, patch: np.ndarray, edge: float) -> PatchSolution:
        if not patch.any():
            none = np.empty((len(patch), 0)), np.empty(0), np.empty((patch.shape[1], 0))
            return PatchSolution(*none, 0.0)
        left, d, right = np.linalg.svd(patch, full_matrices=False)
        rank = count_signal(d, edge) if self.rank == "auto" else int(self.rank)
        residual = float(np.sum(d[rank:] ** 2))
        return PatchSolution(left[:, :rank], d[:rank], right[:rank].T, residual)
