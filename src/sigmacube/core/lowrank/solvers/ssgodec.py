"""Semi-soft GoDec: low rank plus a soft-thresholded sparse part."""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import numpy as np

from sigmacube.core.lowrank.solvers.base import PatchSolution
from sigmacube.core.lowrank.solvers.low_rank import Influence, LowRank, Observed, working_precision
from sigmacube.core.lowrank.solvers.m_estimate import fill_bands, settle, to_solution

# Iterations of the published code, whose own criterion is never met on noisy data.
PUBLISHED_STEPS = 101
# The lower quartile of |noise| is 0.32; with a third of impulses among the elements, 0.5.
EXPLAINED_QUARTILE = 0.5
# Every so many elements are looked at for it; a prime, so that all bands and pixels are.
SAMPLE_STRIDE = 61
FEWEST_SAMPLES = 40


@dataclass(frozen=True)
class SemiSoftGoDecSolver:
    """Alternate L = low-rank part of Y − S and S = soft threshold of Y − L.

    Y − S is L plus the residual clipped at the threshold, so this is low-rank M-estimation with
    Huber's function.

    Parameters
    ----------
    rank
        ``"auto"`` or a fixed number of components.
    threshold
        Soft threshold, in noise std.
    projection
        ``"exact"``: converge to the fixed point. ``"random"``: as the public LRMR code does, 101
        steps, each with a fresh random projection of exactly ``rank`` columns; it needs a fixed
        rank, and what it returns is random too.
    tolerance
        L has settled when a step moves it by less than this root mean square, in noise std.
    seed
        Of the random projections, together with the patch itself.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> signal = 60 * np.outer(rng.normal(size=60), rng.normal(size=40)) / 60**0.5
    >>> patch = signal + rng.normal(size=signal.shape)
    >>> patch[rng.random(patch.shape) < 0.05] += 30
    >>> SemiSoftGoDecSolver()(patch).rank
    1
    """

    rank: int | str = "auto"
    threshold: float = 1.5
    projection: str = "exact"
    tolerance: float = 2e-3
    seed: int = 0

    takes_missing = True
    sets_aside = True

    def __post_init__(self) -> None:
        if self.projection not in ("exact", "random"):
            raise ValueError(
                f"Invalid projection {self.projection!r}. It must be 'exact' or 'random'."
            )
        if self.projection == "random" and self.rank == "auto":
            raise ValueError("Invalid rank 'auto' with random projections. It must be an int.")
        if self.threshold <= 0:
            raise ValueError(f"Invalid threshold {self.threshold}. It must be above zero.")

    def __call__(self, patch: np.ndarray, *, missing: np.ndarray | None = None) -> PatchSolution:
        """Solve one patch (pixels, bands) of unit noise."""
        work = working_precision(patch)
        if self.projection == "random":
            low = self._published(work, missing)
        else:
            data = Observed.create(work, missing)
            low = settle(data, soft_influence(self.threshold), self.rank, self.tolerance).low
        residual = work - low.matrix()
        kept = np.abs(residual) <= self.threshold
        clipped = np.clip(residual, -self.threshold, self.threshold)
        if missing is not None:
            clipped[missing] = 0
        spread = float(np.vdot(clipped, clipped))
        return to_solution(patch, missing, low, kept, spread, 1.0)

    def _published(self, patch: np.ndarray, missing: np.ndarray | None) -> LowRank:
        """Return L after the published number of random projections."""
        # Projections of different windows must be independent, or their mean gains nothing; the
        # patch itself is the one thing that tells windows apart, in any order of solving them.
        rng = np.random.default_rng([self.seed, zlib.crc32(patch.tobytes())])
        rank = min(int(self.rank), *patch.shape)
        target = patch if missing is None else fill_bands(patch, missing)
        for _ in range(PUBLISHED_STEPS):
            probe = rng.standard_normal((patch.shape[1], rank), dtype=np.float32)
            image = target @ probe.astype(patch.dtype)
            right = np.linalg.qr((image.T @ target).T)[0]
            left = target @ right
            target = left @ right.T
            residual = patch - target
            np.clip(residual, -self.threshold, self.threshold, out=residual)
            if missing is not None:
                residual[missing] = 0
            target += residual
        return LowRank(left, right)


def soft_influence(threshold: float) -> Influence:
    """Return Huber's function: residuals clipped at ± threshold.

    While residuals are far above the noise, because components are still to be found, the
    threshold is wider in proportion: clipped at the noise, L would take hundreds of steps to reach
    signals of hundreds of noise std. Where L has settled the threshold is what it says.
    """

    def influence(residual: np.ndarray) -> tuple[np.ndarray, float]:
        width = threshold * _excess_scale(residual)
        inside = np.count_nonzero(np.abs(residual) < width) / residual.size
        return np.clip(residual, -width, width, out=residual), inside

    return influence


def _excess_scale(residual: np.ndarray) -> float:
    """Return how far the lower quartile of residual sizes is above what impulses explain."""
    sample = np.abs(residual.reshape(-1)[::SAMPLE_STRIDE])
    sample = sample[sample > 0]  # zero where values are missing
    if sample.size < FEWEST_SAMPLES:
        return 1.0
    place = sample.size // 4
    return max(1.0, float(np.partition(sample, place)[place]) / EXPLAINED_QUARTILE)
