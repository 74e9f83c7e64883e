"""Estimate and variance of one region of a scene."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sigmacube.core.spatial.geometry import Block, Box, covering_box, grow
from sigmacube.core.spatial.model import SpatialModel
from sigmacube.core.spatial.risk import smooth_spread
from sigmacube.core.spatial.smoothing import Plan, Run, second_round
from sigmacube.core.spatial.subspace import SEGMENT, project
from sigmacube.core.spatial.variance import element_variance
from sigmacube.core.spatial.views import View, look, scaled

__all__ = ["SpatialPart", "smooth_region"]


@dataclass(frozen=True, eq=False)
class SpatialPart:
    """Estimate and error of a region, in units of the noise."""

    estimate: np.ndarray
    """(row, col, P)."""
    variance: np.ndarray | None
    """(row, col, P)."""
    views: list[View]


def smooth_region(
    block: Block,
    model: SpatialModel,
    rows: tuple[int, int],
    cols: tuple[int, int],
    *,
    run: Run,
    uncertainty: bool = True,
) -> SpatialPart:
    """Return the estimate of a region, and its error."""
    shape = model.shape[:2]
    core = Box(*rows, *cols)
    wide = grow(core, 1, shape)
    plan = Plan(model.sizes, model.noise_power, model.edges)
    box = covering_box(plan.sizes, covering_box(plan.sizes, wide))
    z = _coefficients(block, model, box)
    smoothed = second_round(z, box, wide, plan, run)
    estimate = _to_bands(smoothed.estimate, model.basis, wide, core)
    if not uncertainty:
        return SpatialPart(estimate, None, [])
    views = look(smoothed, wide, plan.sizes, model.noise_power, model.risk)
    label = np.searchsorted(model.spread_bounds, smooth_spread(smoothed.spread))
    views = scaled(views, wide, model.spread_factor[label])
    inner = np.zeros(wide.shape, dtype=np.float32)
    inner[core.within(wide)] = 1
    views = scaled(views, wide, inner)
    own = z[core.within(box)]
    beyond = (own * own) @ model.strength
    variance = element_variance(views, core, model.basis, beyond, run)
    return SpatialPart(estimate, variance, views)


def _aligned(box: Box, shape: tuple[int, int]) -> Box:
    """Return a box that starts and ends at segments of the scene's columns."""
    left = box.left // SEGMENT * SEGMENT
    right = min(-(-box.right // SEGMENT) * SEGMENT, shape[1])
    return Box(box.top, box.bottom, left, right)


def _coefficients(block: Block, model: SpatialModel, box: Box) -> np.ndarray:
    outer = _aligned(box, model.shape[:2])
    y, _ = block(*outer.slices)
    return np.ascontiguousarray(project(y, model.basis, outer.left)[box.within(outer)])


def _to_bands(estimate: np.ndarray, basis: np.ndarray, wide: Box, core: Box) -> np.ndarray:
    """Return ẑ Bᵀ on ``core``, pixel by pixel of the same shape of product."""
    part = estimate[core.within(wide)]
    return np.matmul(part[:, :, None, :], basis.T)[:, :, 0]


