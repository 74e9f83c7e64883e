"""Exact truncated singular value decomposition of a patch, by way of its Gram matrix."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sigmacube.core.lowrank.solvers.base import PatchSolution
from sigmacube.core.lowrank.solvers.low_rank import (
    Observed,
    components,
    full_influence,
    resolves,
    working_precision,
)
from sigmacube.core.lowrank.solvers.m_estimate import settle, to_solution
from sigmacube.core.lowrank.solvers.weighted import alternate
from sigmacube.core.rank import noise_edge

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
        """Solve one patch (pixels, bands) of unit noise, by least squares where some is missing."""
        if missing is not None:
            return self._incomplete(patch, missing)
        (n, p), energy = patch.shape, float(np.vdot(patch, patch))
        wanted: dict[str, Any] = {"floor": noise_edge(n, p)}
        if self.rank != "auto":
            wanted = {"count": min(int(self.rank), n, p)}
        # The rest of the squares, unless rounding would drown it: then it is summed by itself.
        precise = energy == 0 or resolves(energy, patch.shape)
        if n >= p:
            d, right = components(patch, **wanted)
            left = patch @ (right / d)
        else:  # the smaller of the two Gram matrices
            d, left = components(patch.T, **wanted)
            right = patch.T @ (left / d)
        residual = max(energy - float(np.sum(d**2)), 0.0) if precise else np.nan
        return PatchSolution(left, d, right, residual)

    def _incomplete(self, patch: np.ndarray, missing: np.ndarray) -> PatchSolution:
        work, kept = working_precision(patch), ~missing
        data = Observed.create(work, missing)
        state = settle(data, full_influence, self.rank, 10 * MISSING_TOLERANCE)
        low = alternate(work, kept, state.low, MISSING_TOLERANCE)
        solution = to_solution(patch, missing, low, kept, 0.0, 1.0, bound=np.inf)
        share = np.count_nonzero(kept) / kept.size
        return replace(solution, sandwich=1.0, level=float(1 / np.sqrt(share)))
