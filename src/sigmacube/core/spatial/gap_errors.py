"""How large errors are where values are missing: measured on gaps, real ones and made ones."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import numpy as np

from sigmacube.core.spatial.geometry import Block, Box
from sigmacube.core.spatial.holes import find_holes
from sigmacube.core.spatial.missing import (
    FEW,
    band_growth,
    filled_near,
    filling_boxes,
    hidden_lines,
    less_seen,
)
from sigmacube.core.spatial.risk import BIAS, RESPONSE, STEP, SURELY, Trial, capped, drawn
from sigmacube.core.spatial.smoothing import Plan, Run, both_rounds
from sigmacube.core.spatial.subspace import batches, blocks, project
from sigmacube.core.spatial.views import RiskTable, View, claimed, look, scaled, sights

__all__ = ["gap_factor", "graded", "hole_factor", "most_gaps"]

LOOKED_AT = 16
# Pixels with gaps that a factor is measured on at least, and how far it may go. The response to
# noise does not see what is made up in a hole: errors are less than claimed only where gaps are
# scattered over most pixels.
FEWEST = 50
LEAST, MOST = 0.5, 10.0
SCATTERED = 0.6
# Noise of filled pixels over that of whole ones, from which on it rises above the windows' edges.
NOISY = 1.5
# Shares of hidden pixels that bound the classes of their claim, and the largest and least factor.
CLASSES = (0.4, 0.6, 0.75, 0.85, 0.93)
HIGHEST, LEAST_OWN = 100.0, 0.1


def most_gaps(block: Block, shape: tuple[int, int, int], run: Run) -> Box:
    """Return the block of the scene, of some, that has most pixels with gaps."""
    every = blocks(shape[:2])
    chosen = every[:: max(-(-len(every) // LOOKED_AT), 1)]
    counts = [n for batch in batches(chosen) for n in run(partial(_gaps_in, block), batch)]
    return chosen[int(np.argmax(counts))]


def _gaps_in(block: Block, box: Box) -> int:
    kept = block(*box.slices)[1]
    return 0 if kept is None else int(np.count_nonzero(kept.any(axis=2) & ~kept.all(axis=2)))


def gap_factor(
    y: np.ndarray,
    kept: np.ndarray | None,
    basis: np.ndarray,
    power: np.ndarray,
    plan: Plan,
    table: RiskTable,
    run: Run,
) -> float:
    """Return how much larger errors of pixels with gaps are than is claimed, on a patch.

    The patch is filled and smoothed with and without a little more noise on what was observed. What
    was claimed is that of a whole pixel, times what `band_growth` makes of the noise that its kept
    bands bring.

    Parameters
    ----------
    y, kept
        (rows, cols, P) of unit noise, zero where missing, and what is there.
    power
        (k,) of the scene along each direction.
    """
    if kept is None:
        return 1.0
    holes, box = find_holes(kept, basis), Box(0, y.shape[0], 0, y.shape[1])
    where = holes.where & (holes.share > FEW)
    if np.count_nonzero(where) < FEWEST:
        return 1.0
    probe = np.random.default_rng(17).standard_normal(y.shape)
    boxes = filling_boxes(plan, box)
    own, moved = (
        project(np.where(kept, part, 0.0), basis, 0, run) for part in (y, y + STEP * probe)
    )
    z, axes = filled_near(own, holes, power, box, boxes, plan, run)
    nearby, _ = filled_near(moved, holes, power, box, boxes, plan, run, axes)
    smoothed, again = both_rounds(z, nearby, box, plan, run)
    response = (again.estimate - smoothed.estimate) / STEP
    residual, claim = smoothed.estimate - z, smoothed.claim
    actual = _error_there(residual, (nearby - z) / STEP, response, claim, where)
    # No response shows signal that no window sees.
    seen = replace(table, lost=np.zeros_like(table.lost))
    views = look(sights(smoothed, box, plan), plan, table, run)
    views = less_seen(seen.located(views, box, smoothed, run), box, holes.share, 1.0)
    claim = claimed(views, box, table.gain, run)
    share = np.sum(basis**2, axis=1)
    whole = slice(0, y.shape[0]), slice(0, y.shape[1])
    claim = claim * (np.maximum(band_growth(holes, basis, whole, run), 1) @ share / share.sum())
    lost = float(table.lost_signal(smoothed)[where].mean())
    actual += lost
    least = LEAST if where.mean() > SCATTERED else 1.0
    claimed_ = float(claim[where].mean()) + lost
    return float(np.clip(actual / max(claimed_, 1e-9), least, MOST))


def _error_there(
    residual: np.ndarray,
    probe: np.ndarray,
    response: np.ndarray,
    claim: np.ndarray,
    where: np.ndarray,
) -> float:
    """Return the squared error of a pixel of those in question, mean over all of them.

    Pixels that were filled by little have more noise than windows reckon with: what rises above
    their edges is noise that was kept, and responds by more than it errs. The identity, with the
    probe's own power in place of the noise's, knows of that; it scatters, and counts as far as it
    surely finds less than the response.
    """
    expected = BIAS * np.square(capped(response, claim)).sum(axis=2)[where].mean()
    power, across = (np.einsum("yxk,yxk->yx", probe, part)[where] for part in (probe, response))
    if power.mean() < NOISY * residual.shape[2]:
        return float(expected)
    found = np.square(residual).sum(axis=2)[where] - power + 2 * across
    scatter = SURELY * float(np.std(found)) / math.sqrt(len(found))
    found = drawn(found.mean(), np.asarray(expected), np.asarray(scatter))
    return float(np.clip(found, LEAST * RESPONSE * expected, expected))


def hole_factor(
    trial: Trial, table: RiskTable, noise: np.ndarray, run: Run
) -> tuple[float, np.ndarray]:
    """Return how much larger errors of pixels that were not observed are than is claimed.

    Some columns of a patch are hidden and filled; what was hidden is the estimate plus its error
    plus noise. Errors at borders are larger by more than in the middle of fields: beside the factor
    in all, (2, classes) by claim with it: the class's upper bound, and a factor of its own.
    """
    z = trial.z
    smoothed, share, where = hidden_lines(z, trial.plan, run)
    if not where.any():  # narrower than the distance of hidden columns
        return 1.0, np.array([[np.inf], [1.0]])
    views = look(sights(smoothed, trial.box, trial.plan), trial.plan, table, run)
    views = table.located(views, trial.box, smoothed, run)
    actual = np.sum((smoothed.estimate - z)[where] ** 2, axis=1) - noise.sum()
    claim = claimed(less_seen(views, trial.box, share, 1.0), trial.box, table.gain, run)[where]
    factor = float(np.clip(actual.sum() / max(claim.sum(), 1e-9), 1.0, HIGHEST))
    claim = claimed(less_seen(views, trial.box, share, factor), trial.box, table.gain, run)[where]
    bounds = np.append(np.quantile(claim, CLASSES), np.inf)
    label = np.searchsorted(bounds, claim)
    sums = [np.bincount(label, part, minlength=len(bounds)) for part in (actual, claim)]
    own = np.clip(sums[0] / np.maximum(sums[1], 1e-9), LEAST_OWN, HIGHEST)
    return factor, np.array([bounds, own])


def graded(
    views: list[View],
    core: Box,
    share: np.ndarray,
    classes: np.ndarray,
    gain: np.ndarray,
    run: Run,
) -> list[View]:
    """Return views with the factor of its class at every pixel of which hardly any was seen.

    Parameters
    ----------
    share
        (rows, cols) of ``core``, how much of a pixel was observed.
    classes
        See `hole_factor`.
    """
    if not np.any(share <= FEW):
        return views
    label = np.searchsorted(classes[0, :-1], claimed(views, core, gain, run))
    return scaled(views, core, np.where(share <= FEW, classes[1, label], 1.0))
