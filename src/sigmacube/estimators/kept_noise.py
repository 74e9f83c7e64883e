"""The noise that is left where values far out are set aside.

A fit to kept values errs by more than their spread says: values near the cut are kept on the side
that the fit errs to, so that an error feeds itself. With density p of residuals at the cut c on
either side it grows by 1 / (1 − 2 c p).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from sigmacube.core.lowrank.solvers.m_estimate import density_at
from sigmacube.core.parallel import ParallelMap
from sigmacube.core.spatial import Block
from sigmacube.core.spatial.completing import Completion
from sigmacube.core.spatial.geometry import Box
from sigmacube.core.spatial.subspace import blocks

__all__ = ["with_kept_noise"]

# Blocks that are looked at, at most.
MOST_BLOCKS = 4
# A band that the directions tell by more than this does not show its own noise.
MOST_LEVERAGE = 0.8
SMALLEST_SLOPE = 0.25


def with_kept_noise(
    found: Completion, block: Block, shape: tuple[int, int, int], run: ParallelMap
) -> Completion:
    """Return it with the noise that fits to kept values have; at least what it was.

    Parameters
    ----------
    found
        What the scene knows about spectra.
    block
        Values over their noise, of any part of the scene.
    shape
        Rows, columns and bands of the scene.
    run
        Parallel map.
    """
    told = found.unit == 1  # a softened band shows what directions do not explain
    told &= np.sum(found.directions**2, axis=1) < MOST_LEVERAGE
    if not np.isfinite(found.cut) or np.isfinite(found.bounds).any() or not told.any():
        return found
    every = blocks(shape[:2])
    chosen = every[:: max(-(-len(every) // MOST_BLOCKS), 1)]
    looks = run(partial(_look, found, block, told), chosen)
    there, kept, square = (sum(getattr(look, n) for look in looks) for n in _SUMS)
    if not kept:
        return found
    leverage = float(np.mean(np.sum(found.directions[told] ** 2, axis=1)))
    share, taken = kept / there, leverage * there / kept
    cut = found.cut / max(1 - taken, 1 - MOST_LEVERAGE)
    size = np.concatenate([look.size for look in looks])
    slope = max(1 - cut * density_at(size, cut, kept), SMALLEST_SLOPE)
    # The fit takes its own error, grown as it is, from the squares that are left.
    spread = square / kept / max(1 - leverage / (slope**2 * share), 1 - MOST_LEVERAGE)
    return replace(found, scale=max(float(np.sqrt(spread) / slope), found.scale))


@dataclass(frozen=True, eq=False)
class _Look:
    """What a block shows; sums over its elements."""

    there: int
    kept: int
    square: float
    """Squares of what the fit leaves of kept values."""
    size: np.ndarray
    """How far every value lies from what the others of its pixel say."""


_SUMS = ("there", "kept", "square")


def _look(found: Completion, block: Block, told: np.ndarray, box: Box) -> _Look:
    """Compare values of a block with fits to those that are kept."""
    y, there = block(*box.slices)
    there = np.ones(y.shape, dtype=bool) if there is None else there
    whole, kept = found.complete(y, there, box.left)
    directions, mean = found.directions, found.mean
    fit = mean + ((whole / found.unit - mean) @ directions) @ directions.T
    left = (y / found.unit - fit)[..., told]
    there, kept = there[..., told], kept[..., told]
    share = max(float(np.mean(kept)), 1e-3)
    own = np.minimum(np.sum(directions[told] ** 2, axis=1) / share, MOST_LEVERAGE)
    size = np.abs(np.where(kept, left / (1 - own), left))[there].astype(np.float32)
    square = float(np.sum(np.square(left), where=kept))
    return _Look(int(there.sum()), int(kept.sum()), square, size)
