"""The recommended solver for impulses, dead lines and missing data: soft start, hard finish."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from sigmacube.core.lowrank.solvers.base import PatchSolution
from sigmacube.core.lowrank.solvers.low_rank import (
    MEstimate,
    Observed,
    correction,
    full_influence,
    iterate,
    rms,
    working_precision,
)
from sigmacube.core.lowrank.solvers.m_estimate import density_at, grown, settle, to_solution
from sigmacube.core.lowrank.solvers.repeated import Repeats
from sigmacube.core.lowrank.solvers.ssgodec import soft_influence
from sigmacube.core.lowrank.solvers.weighted import alternate

SOFT_CUT = 1.5
# The hard cut lies where an element is as likely an impulse as noise, between these.
SMALLEST_CUT, LARGEST_CUT = 2.0, 4.0
# Residuals from here to there tell how dense impulses are beside the noise.
TAIL = (3.0, 6.0)
MAX_SELECTIONS = 20
TOLERANCE = 2e-3
# The soft stage need not be exact, nor the selection: the fit to the kept elements is.
SOFT_TOLERANCE = 0.02
SETTLED = 5


@dataclass(frozen=True)
class RobustSolver:
    """Low-rank fit that sets impulses aside and treats them as missing.

    1. Elements whose value repeats exactly where noise cannot (zeros, saturation) are missing.
    2. *Soft stage*: residuals are clipped at 1.5 noise std; the rank follows from the noise edge.
    3. *Hard stage*: elements beyond a cut are set aside, and L is the least-squares fit to the
       others. The cut is where the mixture of noise and impulses has even odds.

    Parameters
    ----------
    rank
        ``"auto"`` or a fixed number of components.
    tolerance
        L has settled when a step moves it by less than this root mean square, in noise std.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> signal = 60 * np.outer(rng.normal(size=60), rng.normal(size=40)) / 60**0.5
    >>> patch = signal + rng.normal(size=signal.shape)
    >>> patch[rng.random(patch.shape) < 0.1] += 30
    >>> solution = RobustSolver()(patch)
    >>> solution.rank, bool(np.std(solution.estimate - signal) < 0.3)
    (1, True)
    """

    rank: int | str = "auto"
    tolerance: float = TOLERANCE

    takes_missing = True
    sets_aside = True

    def __call__(self, patch: np.ndarray, *, missing: np.ndarray | None = None) -> PatchSolution:
        """Solve one patch (pixels, bands) of unit noise."""
        work = working_precision(patch)
        gone, doubtful = _stuck(work, missing)
        data = Observed.create(work, gone)
        soft = soft_influence(SOFT_CUT)
        state = settle(data, soft, self.rank, SOFT_TOLERANCE, proof=False)
        near, kept, cut = self._select(data, state, doubtful)
        if self.rank == "auto":  # weak components rise above the edge once impulses are out
            low = grown(Observed.create(work, ~kept), near, full_influence, margin=1.0)
            if low.rank > near.low.rank:
                state = iterate(data, low, soft, SOFT_TOLERANCE)
                near, kept, cut = self._select(data, state, doubtful)
        low = alternate(work, kept, near.low, self.tolerance)
        size = np.abs(data.residual(low.matrix()))
        density = density_at(size, cut, int(np.count_nonzero(kept)))
        spread = float(np.sum(np.square(size * kept), dtype=np.float64))
        return to_solution(patch, missing, low, kept, spread, 1 - cut * density)

    def _select(
        self, data: Observed, state: MEstimate, doubtful: Repeats | None
    ) -> tuple[MEstimate, np.ndarray, float]:
        """Alternate between the elements to keep and a step towards the fit; also the cut."""
        there = np.ones(data.values.shape, bool) if data.present is None else data.present > 0
        kept, cut = there, LARGEST_CUT
        for _ in range(MAX_SELECTIONS):
            size = np.abs(data.residual(state.matrix))
            allowed = there
            if doubtful is not None:
                allowed = there & ~doubtful.likely(data.values, state.matrix)
                size *= allowed
            cut = even_odds_cut(size, int(np.count_nonzero(allowed)))
            chosen = (size <= cut) & allowed
            moved = np.count_nonzero(chosen != kept)
            kept = chosen
            fit = Observed.create(data.values, ~kept)
            low = state.low.step(correction(fit, state.matrix, full_influence))
            matrix = low.matrix()
            change = rms(matrix - state.matrix)
            state = MEstimate(low, matrix)
            if change <= SETTLED * self.tolerance or (moved == 0 and change <= SOFT_TOLERANCE):
                break
        return state, kept, cut


def _stuck(
    patch: np.ndarray, missing: np.ndarray | None
) -> tuple[np.ndarray | None, Repeats | None]:
    """Return what is missing or stuck for certain, and repeated values that are in doubt."""
    repeats = Repeats.find(patch if missing is None else np.where(missing, np.nan, patch))
    if repeats is None:
        return missing, None
    stuck = repeats.certain(patch)
    return stuck if missing is None else stuck | missing, repeats.uncertain()


def even_odds_cut(size: np.ndarray, count: int) -> float:
    """Return the residual at which noise and impulses are equally likely.

    The density of impulses is taken as what lies between 3 and 6 noise std beyond what the noise
    puts there.

    Parameters
    ----------
    size
        Absolute residuals in noise std, zero for elements that do not count.
    count
        Number of elements that do.

    Examples
    --------
    >>> import numpy as np
    >>> noise = np.abs(np.random.default_rng(0).normal(size=100_000))
    >>> even_odds_cut(noise, noise.size)
    4.0
    >>> noise[:20_000] *= 20
    >>> bool(2 < even_odds_cut(noise, noise.size) < 3.5)
    True
    """
    low, high = TAIL
    inside = np.count_nonzero((size > low) & (size < high)) / max(count, 1)
    density = (inside - math.erfc(low / math.sqrt(2))) / (2 * (high - low))
    if density <= 0:
        return LARGEST_CUT
    odds = 1 / (math.sqrt(2 * math.pi) * density)
    return float(np.clip(math.sqrt(2 * math.log(max(odds, 1.0))), SMALLEST_CUT, LARGEST_CUT))
