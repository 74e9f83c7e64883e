"""Estimate, variance and error model of one region of a scene."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sigmacube.core.parallel import in_turn
from sigmacube.core.spatial.errors import SpatialErrors
from sigmacube.core.spatial.fit import cut
from sigmacube.core.spatial.gap_errors import graded
from sigmacube.core.spatial.gap_growth import growth_by_band
from sigmacube.core.spatial.geometry import Block, Box, covering_box, grow
from sigmacube.core.spatial.holes import Holes, find_holes
from sigmacube.core.spatial.localised import lost_at
from sigmacube.core.spatial.missing import (
    FEW,
    HALO,
    filled_near,
    filled_power,
    filling_boxes,
    less_seen,
    told_around,
)
from sigmacube.core.spatial.smoothing import Nearby, Plan, Run, Smoothed, second_round
from sigmacube.core.spatial.subspace import project, squares
from sigmacube.core.spatial.survey import SpatialModel
from sigmacube.core.spatial.unexplained import (
    Apart,
    GivenBack,
    alone,
    apart,
    given_back,
    lines,
)
from sigmacube.core.spatial.unexplained import inside as given_inside
from sigmacube.core.spatial.views import View, claimed, look, scaled, sights, variance_along

__all__ = ["SpatialPart", "smooth_region"]


@dataclass(frozen=True, eq=False)
class SpatialPart:
    """Estimate and error of a region, in units of the noise."""

    estimate: np.ndarray
    """(row, col, P)."""
    variance: np.ndarray | None
    """(row, col, P), None where no uncertainty was asked for."""
    ranks: tuple[np.ndarray, ...]
    """Per size of window, (windows, 3): row and column in the grid of that size, and rank."""
    residual_ratio: tuple[np.ndarray, ...]
    """Per size of window, (windows,): what it leaves over, over what the noise predicts."""
    unexplained: list[tuple[int, int]]
    """(row, col) in the scene of pixels that no window explains."""
    errors: SpatialErrors | None
    """Error model of the region."""
    growth: np.ndarray | None = None
    """(row, col, P) by how much the variance grew where bands are missing; None if none are."""


@dataclass(frozen=True, eq=False)
class _Data:
    """Coefficients of a part of the scene."""

    box: Box
    z: np.ndarray
    holes: Holes | None
    outside: np.ndarray
    """(row, col) mean square outside the subspace, unit noise."""
    there: tuple[np.ndarray, Box] | None = None
    """(row, col, P) which values are there, and the box that this is known on, with holes."""
    near: Nearby | None = None
    """Axes of windows of almost the same coefficients."""


def smooth_region(
    block: Block,
    model: SpatialModel,
    rows: tuple[int, int],
    cols: tuple[int, int],
    *,
    run: Run,
    uncertainty: bool = True,
) -> SpatialPart:
    """Return the estimate of a region of the scene, and its error.

    Parameters
    ----------
    block
        Whitened values of any part of the scene, see `Block`. A halo around the region is read.
    model
        What the whole scene knows, by `survey`.
    rows, cols
        First and last + 1 of the region.
    run
        ``run(function, items)``, a map that may run in parallel and keeps the order.
    uncertainty
        False leaves out variance and error model, and does not look for unexplained pixels.

    Returns
    -------
    SpatialPart
        Equal to the last bit however the scene is cut into regions.
    """
    core = Box(*rows, *cols)
    wide = grow(core, 1, model.shape[:2])
    plan = Plan(model.sizes, model.noise_power, model.edges)
    whole = model.whole if wide.shape == model.shape[:2] else None
    if whole is not None:
        z, smoothed = whole.z, whole.smoothed
        data = _Data(wide, z, None, whole.outside / max(model.shape[2] - z.shape[2], 1))
    else:
        data = _coefficients(block, model, plan, wide, run)
        smoothed = second_round(data.z, data.box, wide, plan, run, data.near)
    windows = _windows(smoothed, data, model)
    inside = core.within(wide)
    if not uncertainty:
        estimate = _bands(smoothed.estimate[inside], model, core, run)
        return SpatialPart(estimate, None, *windows, [], None)
    through = sights(smoothed, wide, plan) if whole is None else whole.sights
    views = _views(model, look(through, plan, model.risk, run), smoothed, data, wide, core, run)
    seen = (apart(smoothed.estimate) if whole is None else whole.apart).within(inside)
    own = alone(seen, smoothed.leverage[inside])
    return _finish(
        block, model, core, data, smoothed.estimate[inside], seen, own, views, windows, run
    )


def _finish(
    block: Block,
    model: SpatialModel,
    core: Box,
    data: _Data,
    coefficients: np.ndarray,
    seen: Apart,
    single: np.ndarray,
    views: list[View],
    windows: tuple[tuple[np.ndarray, ...], tuple[np.ndarray, ...]],
    run: Run,
) -> SpatialPart:
    """Return the part with what no window explains given back."""
    basis, gain = model.basis, model.risk.gain
    z = data.z[core.within(data.box)]
    y, kept = _read(block, core)
    found, f_out, part, odd = _shares(model, core, views, z - coefficients, data, kept, seen, run)
    more = found.leading - found.every
    views = scaled(views, core, 1 - found.every - more * part)
    share = found.every[..., None] + more[..., None] * (np.arange(len(gain)) < model.leading)
    coefficients = coefficients + share * (z - coefficients)
    estimate = _bands(coefficients, model, core, run)
    _give_back(estimate, f_out, y, kept, z, basis)
    loading = coefficients * np.sqrt(model.strength)
    if model.localised > 0:
        loading *= _more_lost(block, model, core, loading, run)[..., None]
    loading *= np.sqrt(1 - f_out)[..., None]
    alien = f_out + model.faint * (1 - f_out)
    beyond = np.einsum("yxk,yxk->yx", loading, loading) + alien
    own, own_leading = found.own(single)
    profiles = [(own, model.band_share), (beyond, 1 - model.band_share)]
    profiles += [(own_leading, np.sum(basis[:, : model.leading] ** 2, axis=1))]
    rows = basis * np.sqrt(gain)
    variance = variance_along(views, core, rows, rows, run, profiles)
    np.maximum(variance, np.float32(1e-12), out=variance)
    growth = None
    if data.holes is not None:
        claim = claimed(views, core, gain, run)
        growth = _growth(model, data, core, claim, run)
        variance *= growth
    restored = lines(y, estimate, kept, run)
    at = tuple(restored.T)
    estimate[at], variance[at] = y[at], 1.0
    errors = SpatialErrors(
        core, basis, gain, views, loading, own, own_leading, model.leading, alien, restored
    )
    listed = [(int(r) + core.top, int(c) + core.left) for r, c in np.argwhere(odd)]
    return SpatialPart(estimate, variance, *windows, listed, errors, growth)


def _more_lost(
    block: Block, model: SpatialModel, core: Box, loading: np.ndarray, run: Run
) -> np.ndarray:
    """Return (row, col) by how much the error outside B grows where signal surely is lost."""
    lost = lost_at(block, core, model.shape, model.basis, model.values, run)
    lost *= model.localised / (model.shape[2] - model.basis.shape[1])
    size = np.einsum("yxk,yxk->yx", loading, loading)
    return np.asarray(np.sqrt(1 + lost / np.maximum(size, 1e-12)))


def _growth(model: SpatialModel, data: _Data, core: Box, claim: np.ndarray, run: Run) -> np.ndarray:
    """Return (row, col, P) by how much the variance grows where some of a pixel is missing."""
    assert data.holes is not None
    assert data.there is not None
    own = np.clip(claim / model.basis.shape[1], 0, 1)
    growth = growth_by_band(*data.there, core, model.basis, own, run)
    inside = core.within(data.box)
    partly = data.holes.where[inside] & (data.holes.share[inside] > FEW)
    growth[partly] *= np.float32(model.gap_factor)
    return growth


def _give_back(
    estimate: np.ndarray,
    share: np.ndarray,
    y: np.ndarray,
    kept: np.ndarray | None,
    z: np.ndarray,
    basis: np.ndarray,
) -> None:
    """Add a share of what lies outside the subspace to the estimate, where there is any."""
    at = np.nonzero(share)
    residual = y[at] - np.matmul(z[at][:, None], basis.T)[:, 0]
    if kept is not None:
        residual *= kept[at]
    estimate[at] += share[at][:, None] * residual


def _shares(
    model: SpatialModel,
    core: Box,
    views: list[View],
    residual: np.ndarray,
    data: _Data,
    kept: np.ndarray | None,
    standing: Apart,
    run: Run,
) -> tuple[GivenBack, np.ndarray, np.ndarray, np.ndarray]:
    """Return shares of the residual inside and outside B to give back, and who is listed.

    Third comes the share of what is claimed inside B that leading directions have.
    """
    bands, k = model.basis.shape
    gain, leading = model.risk.gain, model.leading
    claim = claimed(views, core, gain, run)
    along = claimed(views, core, np.where(np.arange(k) < leading, gain, 0), run)
    seen = np.ones(core.shape) if kept is None else kept.mean(axis=2)
    power, lost = filled_power(seen), seen < 0.2
    freedom = np.maximum(k * power - claim, 0.5), np.maximum(leading * power - along, 0.5)
    residual = np.where(lost[..., None], 0, residual)
    found = given_inside(residual, freedom, leading, model.residual_scale[:2], standing.out)
    f_out, odd = np.zeros(core.shape), found.listed
    if bands > k:
        square = np.where(lost, 0, data.outside[core.within(data.box)] * ((bands - k) * seen))
        free = np.maximum((bands - k) * seen, 0.5)
        f_out, also = given_back(square, free, model.residual_scale[2], standing.out)
        f_out = f_out * np.maximum(1 - free / np.maximum(square, 1e-12), 0)
        odd = odd | also
    return found, f_out, along / np.maximum(claim, 1e-12), odd


def _views(
    model: SpatialModel,
    views: list[View],
    smoothed: Smoothed,
    data: _Data,
    wide: Box,
    core: Box,
    run: Run,
) -> list[View]:
    """Return the views of a region, scaled by what windows claim and by what is missing."""
    views = model.risk.located(views, wide, smoothed, run)
    inside = np.zeros(wide.shape)
    inside[core.within(wide)] = 1.0
    views = scaled(views, wide, inside)
    if data.holes is None:
        return views
    views = less_seen(views, data.box, data.holes.share, model.hole_factor)
    share = data.holes.share[core.within(data.box)]
    return graded(views, core, share, model.hole_classes, model.risk.gain, run)


def _coefficients(block: Block, model: SpatialModel, plan: Plan, wide: Box, run: Run) -> _Data:
    """Return z on all windows that are needed, missing elements filled."""
    need = covering_box(plan.sizes, covering_box(plan.sizes, wide))
    boxes = filling_boxes(plan, need, model.fillings) if model.missing else [need]
    outer = grow(boxes[-1], HALO, model.shape[:2]) if model.missing else need
    y, kept = _read(block, outer)
    seen = project(y, model.basis, outer.left, run)
    inner = need.within(outer)
    if kept is None:
        z = np.ascontiguousarray(seen[inner])
        return _Data(need, z, None, _outside(y[inner], z, None, model, need, run))
    holes = find_holes(kept, model.basis)
    told = told_around(kept)
    z, axes = filled_near(seen, holes, told, model.power, outer, boxes, plan, run)
    outside = _outside(y[inner], z, kept[inner], model, need, run)
    # Where one round of filling is enough, data hardly change in it.
    near = axes[0] if len(axes) == 1 else None
    return _Data(need, z, holes.part(inner), outside, (kept, outer), near)


def _outside(
    y: np.ndarray,
    z: np.ndarray,
    kept: np.ndarray | None,
    model: SpatialModel,
    box: Box,
    run: Run,
) -> np.ndarray:
    """Return (row, col) the mean square of the data outside the subspace; one if all is in it."""
    bands, k = model.basis.shape
    if bands == k:
        return np.ones(z.shape[:2])
    if not model.missing:
        return np.asarray((squares(y, run) - squares(z, run)) / (bands - k))
    # The scene decides the form, not the region: one without gaps must round like the others.
    kept = np.ones(y.shape, dtype=bool) if kept is None else kept
    rest = (y - _bands(z, model, box, run)) * kept
    seen = kept.mean(axis=2) * (bands - k)
    left = np.einsum("yxp,yxp->yx", rest, rest)
    return np.divide(left, seen, out=np.ones(z.shape[:2]), where=seen > 0)


def _read(block: Block, box: Box) -> tuple[np.ndarray, np.ndarray | None]:
    y, kept = block(*box.slices)
    return y, None if kept is None or kept.all() else kept


def _bands(
    coefficients: np.ndarray, model: SpatialModel, box: Box, run: Run = in_turn
) -> np.ndarray:
    """Return ẑ Bᵀ (row, col, P), in products of one shape."""
    return project(coefficients, np.ascontiguousarray(model.basis.T), box.left, run)


def _windows(
    smoothed: Smoothed, data: _Data, model: SpatialModel
) -> tuple[tuple[np.ndarray, ...], tuple[np.ndarray, ...]]:
    """Return ranks and residual ratios of windows by size, see `SpatialPart`.

    A window leaves over its dropped directions, and what lies outside the subspace.
    """
    bands, k = model.basis.shape
    sizes = len(model.sizes)
    ranks: list[list[np.ndarray]] = [[] for _ in range(sizes)]
    ratios: list[list[np.ndarray]] = [[] for _ in range(sizes)]
    for fits in smoothed.fits:
        n = fits.side[0] * fits.side[1]
        local = fits.corner - (data.box.top, data.box.left)
        outside = cut(data.outside[..., None], local, fits.side).mean(axis=(1, 2, 3))
        dropped = (k - fits.rank) * fits.left * (n - 1)
        expected = (k - fits.rank) * (n - 1 - fits.rank) + (bands - k) * n
        total = dropped + (bands - k) * n * outside
        ratios[fits.size].append(np.where(expected > 0, total / np.maximum(expected, 1), np.nan))
        ranks[fits.size].append(np.column_stack([fits.index, fits.rank]))
    return tuple(map(np.concatenate, ranks)), tuple(map(np.concatenate, ratios))
