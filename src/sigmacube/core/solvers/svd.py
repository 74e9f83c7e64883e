"""Exact truncated singular value decomposition of a patch, by way of its Gram matrix."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from sigmacube.core.eigen import leading_eigenpairs
from sigmacube.core.rank import count_signal, noise_edge
from sigmacube.core.solvers.base import PatchSolution
from sigmacube.core.solvers.low_rank import working_precision
from sigmacube.core.solvers.m_estimate import Observed, full_influence, settle, to_solution
from sigmacube.core.solvers.weighted import alternate

__all__ = ["SvdSolver"]

# The square of the noise edge, relative to the sum of all squares, below which a float64 Gram
# matrix no longer resolves the noise floor and the patch itself is decomposed.
GRAM_RESOLUTION = 1e-11
# A fit around missing values has settled when a step moves it by less than so many noise std.
MISSING_TOLERANCE = 1e-3


@dataclass(frozen=True)
class SvdSolver:
    """Truncated SVD with the rank from the noise edge, or a fixed one.

    Parameters
    ----------
    rank
        ``"auto"`` or a fixed number of components.
    start
        (bands, k) orthonormal directions that dominate the scene: only a help to the
        eigensolver. None means LAPACK for every window.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> signal = 30 * np.outer(rng.normal(size=60), rng.normal(size=20)) / 60**0.5
    >>> SvdSolver()(signal + rng.normal(size=(60, 20))).rank
    1
    """

    rank: int | str = "auto"
    start: np.ndarray | None = None

    takes_missing = True

    def __call__(
        self,
        patch: np.ndarray,
        *,
        missing: np.ndarray | None = None,
        gram: np.ndarray | None = None,
        n_valid: int | None = None,
    ) -> PatchSolution:
        """Solve one patch (pixels, bands) of unit noise.

        Parameters
        ----------
        patch
            The patch; masked pixels are rows of zeros.
        missing
            (pixels, bands) True where a value is missing; the others are then fitted by least
            squares. ``gram`` and ``n_valid`` play no part in that.
        gram
            patchᵀ patch, where neighbouring windows share its computation.
        n_valid
            How many pixels are not masked; all of them by default.
        """
        if missing is not None:
            return self._incomplete(patch, missing)
        energy = float(np.vdot(patch, patch)) if gram is None else float(np.trace(gram))
        edge = noise_edge(len(patch) if n_valid is None else n_valid, patch.shape[1])
        if energy == 0.0:
            return _solution(patch, np.empty(0), np.empty((patch.shape[1], 0)), energy)
        if edge**2 < GRAM_RESOLUTION * energy:
            return self._by_patch(patch, edge, energy)
        if patch.shape[0] < patch.shape[1]:
            values, left = self._pairs(patch @ patch.T, edge)
            right = patch.T @ (left / np.sqrt(values))
            return PatchSolution(left, np.sqrt(values), right, energy - float(values.sum()))
        if gram is None:
            gram = patch.T @ patch
        return _solution(patch, *self._pairs(gram, edge), energy)

    def _pairs(self, gram: np.ndarray, edge: float) -> tuple[np.ndarray, np.ndarray]:
        if self.rank == "auto":
            start = self.start if self.start is not None and len(self.start) == len(gram) else None
            return leading_eigenpairs(gram, floor=edge**2, start=start)
        values, vectors = leading_eigenpairs(gram, count=int(self.rank))
        real = values > 1e-14 * values[0]  # a patch of lower rank than asked for
        return values[real], vectors[:, real]

    def _incomplete(self, patch: np.ndarray, missing: np.ndarray) -> PatchSolution:
        work, kept = working_precision(patch), ~missing
        data = Observed.create(work, missing)
        state = settle(data, full_influence, self.rank, 10 * MISSING_TOLERANCE)
        low = alternate(work, kept, state.low, MISSING_TOLERANCE)
        solution = to_solution(patch, missing, low, kept, 0.0, 1.0, bound=np.inf)
        share = np.count_nonzero(kept) / kept.size
        return replace(solution, inflation=1.0, level=float(1 / np.sqrt(share)))

    def _by_patch(self, patch: np.ndarray, edge: float, energy: float) -> PatchSolution:
        left, d, right = np.linalg.svd(patch, full_matrices=False)
        rank = count_signal(d, edge) if self.rank == "auto" else int(self.rank)
        residual = float(np.sum(d[rank:] ** 2))
        return PatchSolution(left[:, :rank], d[:rank], right[:rank].T, residual)


def _solution(
    patch: np.ndarray, values: np.ndarray, right: np.ndarray, energy: float
) -> PatchSolution:
    d = np.sqrt(values)
    left = ((right / d).T @ patch.T).T  # components contiguous, as they are stacked later
    return PatchSolution(left, d, right, max(energy - float(values.sum()), 0.0))
