"""The recommended solver for impulses, dead lines and missing data: soft start, hard finish."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from sigmacube.core.solvers.base import PatchSolution
from sigmacube.core.solvers.low_rank import LowRank, rms, working_precision
from sigmacube.core.solvers.m_estimate import (
    MEstimate,
    correction,
    full_influence,
    rank_again,
    settle,
    to_solution,
)
from sigmacube.core.solvers.ssgodec import soft_influence
from sigmacube.core.solvers.stuck import Repeats
from sigmacube.core.solvers.weighted import alternate

__all__ = ["RobustSolver"]

SOFT_CUT = 1.5
# The hard cut lies where an element is as likely an impulse as noise, between these.
SMALLEST_CUT, LARGEST_CUT = 2.0, 4.0
# Residuals from here to there tell how dense impulses are beside the noise.
TAIL = (3.0, 6.0)
MAX_SELECTIONS = 20
TOLERANCE = 2e-3


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

    def __call__(self, patch: np.ndarray, *, missing: np.ndarray | None = None) -> PatchSolution:
        """Solve one patch (pixels, bands) of unit noise."""
        work = working_precision(patch)
        repeats = Repeats.find(work if missing is None else np.where(missing, np.nan, work))
        gone = missing
        if repeats is not None:
            stuck = repeats.certain(work)
            gone = stuck if missing is None else stuck | missing
        state = settle(work, gone, soft_influence(SOFT_CUT), self.rank, 0.02)
        selection = self._select(work, gone, state, repeats)
        if self.rank == "auto":  # weak components rise above the edge once impulses are out
            low = rank_again(work, ~selection.kept, selection.state, full_influence, margin=1.0)
            if low.rank > selection.state.low.rank:
                grown = MEstimate(low, low.matrix(), np.inf)
                selection = self._select(work, gone, grown, repeats)
        kept, cut = selection.kept, selection.cut
        low = alternate(work, kept, selection.state.low, self.tolerance)
        residual = np.abs(work - low.matrix())
        density = _density_at(residual if gone is None else residual[~gone], cut)
        spread = float(np.sum(np.square(residual), where=kept, dtype=np.float64))
        return to_solution(patch, missing, low, kept, spread, 1 - cut * density)

    def _select(
        self,
        patch: np.ndarray,
        gone: np.ndarray | None,
        state: MEstimate,
        repeats: Repeats | None,
    ) -> _Selection:
        """Alternate between the elements to keep and a step towards the fit to them."""
        kept, cut = np.ones(patch.shape, dtype=bool), LARGEST_CUT
        for _ in range(MAX_SELECTIONS):
            size = np.abs(patch - state.matrix)
            if repeats is not None:
                likely = repeats.likely(patch, state.matrix)
                out = likely if gone is None else likely | gone
            else:
                out = gone
            cut = even_odds_cut(size if out is None else size[~out])
            chosen = size <= cut
            if out is not None:
                chosen &= ~out
            moved = np.count_nonzero(chosen != kept)
            kept = chosen
            low = state.low.step(correction(patch, ~kept, state.matrix, full_influence))
            matrix = low.matrix()
            change = rms(matrix - state.matrix)
            state = MEstimate(low, matrix, change)
            if change <= 5 * self.tolerance or moved == 0:
                break
        return _Selection(state, kept, cut)


@dataclass(frozen=True, eq=False)
class _Selection:
    state: MEstimate
    kept: np.ndarray
    cut: float


def even_odds_cut(size: np.ndarray) -> float:
    """Return the residual at which noise and impulses are equally likely.

    The density of impulses is taken as what lies between 3 and 6 noise std beyond what the noise
    puts there.

    Examples
    --------
    >>> import numpy as np
    >>> noise = np.abs(np.random.default_rng(0).normal(size=100_000))
    >>> even_odds_cut(noise)
    4.0
    >>> noise[:20_000] *= 20
    >>> bool(2 < even_odds_cut(noise) < 3.5)
    True
    """
    low, high = TAIL
    inside = np.count_nonzero((size > low) & (size < high)) / max(size.size, 1)
    density = (inside - math.erfc(low / math.sqrt(2))) / (2 * (high - low))
    if density <= 0:
        return LARGEST_CUT
    odds = 1 / (math.sqrt(2 * math.pi) * density)
    return float(np.clip(math.sqrt(2 * math.log(max(odds, 1.0))), SMALLEST_CUT, LARGEST_CUT))


def _density_at(size: np.ndarray, cut: float, half_width: float = 0.25) -> float:
    """Return the density of residual sizes at the cut, per kept element."""
    near = np.count_nonzero(np.abs(size - cut) < half_width)
    return near / max(np.count_nonzero(size <= cut), 1) / (2 * half_width)
