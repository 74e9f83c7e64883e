"""GoDec: low rank plus a sparse part that takes the largest residuals whole."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sigmacube.core.lowrank.solvers.base import PatchSolution
from sigmacube.core.lowrank.solvers.low_rank import Observed, iterate, working_precision
from sigmacube.core.lowrank.solvers.m_estimate import density_at, settle, to_solution
from sigmacube.core.lowrank.solvers.ssgodec import soft_influence

SOFT_START = 1.5


@dataclass(frozen=True)
class GoDecSolver:
    """Alternate L = low-rank part of Y − S and S = the largest entries of Y − L.

    The sparse part S holds either a fixed share of the elements (the cardinality of the GoDec
    paper) or those beyond a threshold. The iteration starts from the semi-soft solution, and the
    rank is held from there: a hard threshold has many fixed points, and setting whole signals
    aside is one of them.

    Parameters
    ----------
    rank
        ``"auto"`` or a fixed number of components.
    threshold
        Residuals beyond this many noise std go to S. Not used with ``cardinality``.
    cardinality
        Share of the elements that go to S, or None for the threshold.
    tolerance
        L has settled when a step moves it by less than this root mean square, in noise std.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> signal = 60 * np.outer(rng.normal(size=60), rng.normal(size=40)) / 60**0.5
    >>> patch = signal + rng.normal(size=signal.shape)
    >>> patch[rng.random(patch.shape) < 0.05] += 30
    >>> solution = GoDecSolver(cardinality=0.06)(patch)
    >>> solution.rank, round(1 - float(solution.kept.mean()), 2)
    (1, 0.06)
    """

    rank: int | str = "auto"
    threshold: float = 3.0
    cardinality: float | None = None
    tolerance: float = 2e-3

    takes_missing = True
    sets_aside = True

    def __post_init__(self) -> None:
        if self.threshold <= 0:
            raise ValueError(f"Invalid threshold {self.threshold}. It must be above zero.")
        if self.cardinality is not None and not 0 <= self.cardinality < 1:
            raise ValueError(
                f"Invalid cardinality {self.cardinality}. It must be a share from 0 to below 1."
            )

    def __call__(self, patch: np.ndarray, *, missing: np.ndarray | None = None) -> PatchSolution:
        """Solve one patch (pixels, bands) of unit noise."""
        work = working_precision(patch)
        data = Observed.create(work, missing)

        def influence(residual: np.ndarray) -> tuple[np.ndarray, float]:
            size = np.abs(residual)
            inside = size <= self._cut(size)
            residual *= inside
            return residual, np.count_nonzero(inside) / inside.size

        soft = settle(data, soft_influence(SOFT_START), self.rank, 10 * self.tolerance)
        low = iterate(data, soft.low, influence, self.tolerance).low
        size = np.abs(data.residual(low.matrix()))
        cut = self._cut(size)
        kept = size <= cut
        near = density_at(size, cut, int(np.count_nonzero(kept)))
        if missing is not None:
            kept &= ~missing
        spread = float(np.sum(np.square(size), where=kept, dtype=np.float64))
        return to_solution(patch, missing, low, kept, spread, 1 - cut * near)

    def _cut(self, size: np.ndarray) -> float:
        """Return the residual beyond which elements go to S."""
        if self.cardinality is None:
            return self.threshold
        n_kept = size.size - round(self.cardinality * size.size)
        return float(np.partition(size, n_kept - 1, axis=None)[n_kept - 1])
