"""Principal component pursuit by the inexact augmented Lagrange multiplier method."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sigmacube.core.lowrank.solvers.base import PatchSolution
from sigmacube.core.lowrank.solvers.low_rank import LowRank
from sigmacube.core.lowrank.solvers.m_estimate import fill_bands, to_solution

MAX_STEPS = 500


@dataclass(frozen=True)
class RpcaSolver:
    """Minimise ‖L‖_* + λ‖S‖₁ subject to L + S = Y, then keep the components above the noise.

    The programme has no place for dense noise: at its solution the noise is spread over L and S,
    and the rank is full. L is therefore cut at the edge of the noise that is left in it, or at
    the rank that was asked for.

    Parameters
    ----------
    rank
        ``"auto"`` or a fixed number of components.
    weight
        λ; None takes 1/√max(pixels, bands).
    tolerance
        Stop when ‖Y − L − S‖ falls below this share of ‖Y‖.
    growth
        Factor of the penalty from step to step.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> signal = 60 * np.outer(rng.normal(size=60), rng.normal(size=40)) / 60**0.5
    >>> patch = signal + rng.normal(size=signal.shape)
    >>> patch[rng.random(patch.shape) < 0.05] += 30
    >>> RpcaSolver()(patch).rank
    1
    """

    rank: int | str = "auto"
    weight: float | None = None
    tolerance: float = 1e-6
    growth: float = 1.5

    takes_missing = True
    sets_aside = True

    def __call__(self, patch: np.ndarray, *, missing: np.ndarray | None = None) -> PatchSolution:
        """Solve one patch (pixels, bands) of unit noise."""
        filled = patch if missing is None else fill_bands(patch, missing)
        full, sparse = self._pursue(filled, missing)
        if self.rank == "auto":
            low = LowRank.above_noise(full)
        else:
            low = LowRank.leading(full, int(self.rank))
        noise = full - low.matrix()  # what is left of a residual once its sparse part is out
        if missing is not None:
            noise[missing] = 0
        spread = float(np.vdot(noise, noise))
        return to_solution(patch, missing, low, sparse == 0, spread, 1.0)

    def _pursue(
        self, patch: np.ndarray, missing: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return L and S; missing elements may differ from Y at no cost."""
        n, p = patch.shape
        weight = 1 / np.sqrt(max(n, p)) if self.weight is None else self.weight
        size = float(np.linalg.norm(patch))
        if size == 0.0:
            return np.zeros_like(patch), np.zeros_like(patch)
        largest = float(np.linalg.norm(patch, 2))
        multiplier = patch / max(largest, float(np.abs(patch).max()) / weight)
        if missing is not None:
            multiplier[missing] = 0
        penalty = 1.25 / largest
        low, sparse = np.zeros_like(patch), np.zeros_like(patch)
        for _ in range(MAX_STEPS):
            low = _shrink_values(patch - sparse + multiplier / penalty, 1 / penalty)
            rest = patch - low + multiplier / penalty
            sparse = rest - np.clip(rest, -weight / penalty, weight / penalty)
            if missing is not None:
                sparse[missing] = (patch - low)[missing]
            gap = patch - low - sparse
            multiplier += penalty * gap
            penalty *= self.growth
            if np.linalg.norm(gap) <= self.tolerance * size:
                break
        return low, sparse


def _shrink_values(matrix: np.ndarray, threshold: float) -> np.ndarray:
    """Return the matrix with its singular values reduced by a threshold, by its Gram matrix."""
    tall = matrix.shape[0] >= matrix.shape[1]
    side = matrix if tall else matrix.T
    values, vectors = np.linalg.eigh(side.T @ side)
    keep = values > threshold**2
    d, v = np.sqrt(values[keep]), vectors[:, keep]
    shrunk = ((side @ v) * ((d - threshold) / d)) @ v.T
    return shrunk if tall else shrunk.T
