r"""The error of the final estimate, as windows see it.

Every window a looks at the same error, that of the final average, in its own coordinates: ρ_i(f)
along its kept directions, d(f) along the others,

.. math:: S_a = \sum_i Φ^T diag(N ρ_i) Φ ⊗ v_i v_i^T + Φ^T diag(N d) Φ ⊗ (I - V V^T)

and the covariance of the error is :math:`\sum_a E_a^T S_a E_a`, with :math:`E_a = \sqrt{ω_a}` on
the window and :math:`\sum_a ω_a(u) = 1` at every pixel. No pairs of windows, and positive definite.
The largest windows are looked through: errors reach further than the small ones do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from itertools import chain
from typing import Any

import numpy as np

from sigmacube.core.parallel import in_turn, strips
from sigmacube.core.spatial.fit import Fits
from sigmacube.core.spatial.geometry import Box
from sigmacube.core.spatial.smoothing import Plan, Run, Smoothed
from sigmacube.core.spatial.transform import forward, gathered, inverse, rings, spread

__all__ = ["RiskTable", "Sight", "View", "by_windows", "claimed", "error_sample",
           "functional_features", "look", "merged", "pixel_sum", "scaled", "shares", "sights",
           "support_shares", "total_along", "variance_along", "white_draws"]  # fmt: skip

# Rows of the scene that variances are computed for at a time, anchored to the scene.
BAND_ROWS = 20
# Elements of the stacks that supports are handled in.
MOST = 4_000_000
# Windows that are worked on at a time.
TOGETHER = 16

Shares = tuple["View", np.ndarray, np.ndarray, np.ndarray, np.ndarray]


@dataclass(frozen=True, eq=False)
class RiskTable:
    """Mean squared error of the final estimate, as windows see it."""

    kept: np.ndarray
    """(rings · bins,) per coefficient of a kept direction, by class."""
    dropped: np.ndarray
    """(levels, rings) per coefficient of a direction below the window's edge."""
    levels: np.ndarray
    """(levels − 1,) bounds of what is left in dropped directions, per coefficient."""
    gain: np.ndarray
    """(k,) what the variance along each direction of B is multiplied by."""
    bounds: np.ndarray
    """(classes − 1,) bounds of what windows claim at a pixel."""
    factor: np.ndarray
    """(classes,) squared error of a pixel over what windows claim there, by class of claim."""
    contrasts: np.ndarray
    """(places − 1,) bounds of how much a pixel differs from its neighbours, see `contrast`."""
    lost: np.ndarray
    """(places,) squared error of a pixel beside that, signal that no window sees, by contrast."""
    unsure: np.ndarray
    """() standard error of all this, relative: by what Stein's identity scatters on the scene."""

    @classmethod
    def unknown(cls, k: int) -> RiskTable:
        """Return an empty table of k directions, where errors were not measured."""
        none, one = np.zeros(0), np.ones(1)
        return cls(none, np.zeros((1, 0)), none, np.ones(k), none, one, none, np.zeros(1),
                   np.zeros(()))  # fmt: skip

    def pixel_error(self, smoothed: Smoothed) -> np.ndarray:
        """Return the squared error (rows, cols) of a pixel's k coefficients."""
        return self.noise_error(smoothed.claim) + self.lost_signal(smoothed)

    def noise_error(self, claim: np.ndarray) -> np.ndarray:
        """Return the part of it that goes with what windows claim (rows, cols)."""
        return np.asarray(self.factor[np.searchsorted(self.bounds, claim)] * claim)

    def lost_signal(self, smoothed: Smoothed) -> np.ndarray:
        """Return the part of it (rows, cols) that is signal that no window sees."""
        return np.asarray(self.lost[np.searchsorted(self.contrasts, smoothed.contrast)])

    def located(
        self, views: list[View], core: Box, smoothed: Smoothed, run: Run = in_turn
    ) -> list[View]:
        """Return views whose squared error is `pixel_error` at every pixel of ``core``."""
        seen = np.maximum(claimed(views, core, self.gain, run), 1e-12)
        return scaled(views, core, self.pixel_error(smoothed) / seen)


@dataclass(frozen=True, eq=False)
class View:
    """Some windows that the error is seen through, ranks padded to the same R."""

    corner: np.ndarray
    """(windows, 2) first pixel in the scene."""
    directions: np.ndarray
    """(windows, k, R) V, float32, zero beyond the rank."""
    rank: np.ndarray
    """(windows,) kept directions."""
    kept: np.ndarray
    """(windows, R, rows, cols) N ρ, float32."""
    dropped: np.ndarray
    """(windows, rows, cols) N d, float32."""
    weight: np.ndarray
    """(windows, rows, cols) ω, float32, zero outside the region."""

    @property
    def side(self) -> tuple[int, int]:
        """Rows and columns of a window."""
        r, c = self.weight.shape[1:]
        return r, c

    def part(self, chosen: slice) -> View:
        """Return some of the windows."""
        return View(*(getattr(self, field.name)[chosen] for field in fields(self)))


@dataclass(frozen=True, eq=False)
class Sight:
    """Windows that the error model looks through, ranks padded to the same R."""

    fits: Fits
    weight: np.ndarray
    """(windows, rows, cols) weights that sum to one over all windows at every pixel."""

    @property
    def corner(self) -> np.ndarray:
        """(windows, 2) first pixel in the scene."""
        return self.fits.corner

    @property
    def side(self) -> tuple[int, int]:
        """Rows and columns of a window."""
        return self.fits.side


def sights(smoothed: Smoothed, core: Box, plan: Plan) -> list[Sight]:
    """Return the windows that the error model looks through, by padded rank.

    Windows of one rank come in the order of the scene, however it is cut into regions.
    """
    rows, cols = plan.sizes[0].views()
    groups: dict[int, list[tuple[Fits, np.ndarray]]] = {}
    for fits, omega in zip(smoothed.fits, smoothed.weights, strict=True):
        if fits.size == 0:
            chosen = rows[fits.index[:, 0]] & cols[fits.index[:, 1]]
            if chosen.any():
                padded = fits.directions.shape[2]
                groups.setdefault(padded, []).append((fits.part(chosen), omega[chosen]))
    found = []
    for padded in sorted(groups):
        fits_, omegas = zip(*groups[padded], strict=True)
        found.append(Sight(Fits.joined(fits_), np.concatenate(omegas)))
    total = pixel_sum(found, core, [sight.weight for sight in found])
    share = np.divide(1, total, out=np.zeros_like(total), where=total > 0)
    return [Sight(s.fits, s.weight * _cut(share, core, s)) for s in found]


def look(seen: list[Sight], plan: Plan, table: RiskTable, run: Run = in_turn) -> list[View]:
    """Return the views of a region with weights that sum to one at every pixel of it."""
    power = plan.noise_power[0].astype(np.float32)
    by_class = table.kept.astype(np.float32)
    by_ring = table.dropped.astype(np.float32)[:, rings(plan.sizes[0].side)]

    def errors(stack: int, part: slice) -> tuple[np.ndarray, np.ndarray]:
        fits = seen[stack].fits
        kept = by_class[fits.classes[part]]
        kept *= fits.kept[part]
        kept *= power
        return kept, by_ring[np.searchsorted(table.levels, fits.left[part])] * power

    return [
        View(s.fits.corner, s.fits.directions, s.fits.rank, kept, dropped, s.weight)
        for s, (kept, dropped) in zip(seen, by_windows(run, errors, seen), strict=True)
    ]


def by_windows(
    run: Run, function: Callable[[int, slice], tuple[np.ndarray, ...]], stacks: Sequence[Any]
) -> list[tuple[np.ndarray, ...]]:
    """Return what a function of a stack's number and some of its windows gives, for whole stacks.

    Stacks have the first pixels of their windows; windows do not depend on each other.
    """
    items = [
        (number, part)
        for number, stack in enumerate(stacks)
        for part in strips(0, len(stack.corner), TOGETHER)
    ]
    parts: list[list[tuple[np.ndarray, ...]]] = [[] for _ in stacks]
    found = run(lambda item: function(*item), items)
    for (number, _), arrays in zip(items, found, strict=True):
        parts[number].append(arrays)
    return [tuple(map(np.concatenate, zip(*some, strict=True))) for some in parts]


def scaled(views: list[View], core: Box, factor: np.ndarray) -> list[View]:
    """Return the views with their weights times a factor per pixel (rows, cols) of ``core``."""
    return [replace(v, weight=v.weight * _cut(factor, core, v)) for v in views]


def _cut(image: np.ndarray, core: Box, view: View | Sight) -> np.ndarray:
    """Return (windows, rows, cols) parts of an image on ``core``, zero outside of it."""
    r, c = view.side
    shape = (image.shape[0] + 2 * r, image.shape[1] + 2 * c)
    padded = np.zeros(shape, dtype=np.float32 if image.dtype.kind == "f" else image.dtype)
    padded[r:-r, c:-c] = image
    at = view.corner - (core.top, core.left) + (r, c)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (r, c))
    return windows[at[:, 0], at[:, 1]]


def pixel_sum(views: Sequence[View | Sight], core: Box, values: list[np.ndarray]) -> np.ndarray:
    """Return Σ_a values_a(u) (rows, cols) over ``core`` of values (windows, rows, cols)."""
    rows = max((v.side[0] for v in views), default=0)
    cols = max((v.side[1] for v in views), default=0)
    total = np.zeros((core.shape[0] + 2 * rows, core.shape[1] + 2 * cols), dtype=np.float32)
    for view, value in zip(views, values, strict=True):
        r, c = view.side
        at = view.corner - (core.top, core.left) + (rows, cols)
        for (y, x), window in zip(at.tolist(), value, strict=True):
            total[y : y + r, x : x + c] += window
    return total[rows : rows + core.shape[0], cols : cols + core.shape[1]]


def shares(view: View) -> tuple[np.ndarray, np.ndarray]:
    """Return the diagonals q_ui (windows, R, rows, cols) and d_u (windows, rows, cols) of S_a."""
    return spread(view.kept), spread(view.dropped[:, None])[:, 0]


def trace(view: View, gain: np.ndarray) -> np.ndarray:
    """Return (windows, rows, cols) the claimed squared error of a pixel's k coefficients."""
    along = np.einsum("akr,akr,k->ar", view.directions, view.directions, gain.astype(np.float32))
    beyond = (np.float32(gain.sum()) - along.sum(axis=1))[:, None, None] * view.dropped
    total = np.einsum("arxy,ar->axy", view.kept, along) + beyond
    return spread(total[:, None])[:, 0]


def claimed(views: list[View], core: Box, gain: np.ndarray, run: Run = in_turn) -> np.ndarray:
    """Return (rows, cols) the claimed squared error of every pixel's k coefficients."""

    def weighted(stack: int, part: slice) -> tuple[np.ndarray]:
        view = views[stack].part(part)
        return (view.weight * trace(view, gain),)

    return pixel_sum(views, core, [part for (part,) in by_windows(run, weighted, views)])


def total_along(views: list[View], gain: np.ndarray, run: Run = in_turn) -> np.ndarray:
    """Return (k,) the claimed squared error of every coefficient, summed over all pixels."""

    def total(stack: int, part: slice) -> tuple[np.ndarray]:
        view = views[stack].part(part)
        count, R, r, c = view.kept.shape
        seen = gathered(view.weight[:, None]).reshape(count, r * c, 1)
        kept = np.matmul(view.kept.reshape(count, R, r * c), seen)
        beyond = np.matmul(view.dropped.reshape(count, 1, r * c), seen)
        square = np.square(view.directions)
        return (np.matmul(square, kept - beyond)[:, :, 0] + beyond[:, :, 0],)

    parts = by_windows(run, total, views)
    return np.asarray(gain * sum(part.sum(axis=0, dtype=np.float64) for (part,) in parts))


def variance_along(
    views: list[View],
    core: Box,
    first: np.ndarray,
    second: np.ndarray,
    run: Run,
    more: Sequence[tuple[np.ndarray, np.ndarray]] = (),
) -> np.ndarray:
    """Return the covariance (rows, cols, n) of combinations (n, k) of each pixel's coefficients.

    Σ_a ω_a(u) [Σ_i q_ui v_i v_iᵀ + d_u (I − V Vᵀ)] between the combinations, and the products of
    maps (rows, cols) and profiles (n,) that ``more`` holds.
    """
    single = [np.asarray(rows, dtype=np.float32) for rows in (first, second)]
    parts = by_windows(run, lambda stack, part: _weighted(views[stack].part(part)), views)
    flat = pixel_sum(views, core, [part[1] for part in parts])
    flats = [(flat, np.einsum("vk,vk->v", *single))]
    flats += [(image.astype(np.float32), row.astype(np.float32)) for image, row in more]
    tops = range(core.top // BAND_ROWS * BAND_ROWS, core.bottom, BAND_ROWS)
    bands = [
        Box(max(t, core.top), min(t + BAND_ROWS, core.bottom), core.left, core.right) for t in tops
    ]
    out = np.empty((*core.shape, len(first)), dtype=np.float32)
    run(partial(_fill, out, core, views, parts, single, flats), bands)
    return out


def _weighted(view: View) -> tuple[np.ndarray, np.ndarray]:
    """Return ω(q_i − d) (windows, rows, cols, R) and ωd (windows, rows, cols)."""
    kept, dropped = shares(view)
    kept -= dropped[:, None]
    kept *= view.weight[:, None]
    return np.ascontiguousarray(np.moveaxis(kept, 1, 3)), dropped * view.weight


def _fill(
    out: np.ndarray,
    core: Box,
    views: list[View],
    parts: list[tuple[np.ndarray, ...]],
    single: list[np.ndarray],
    flats: list[tuple[np.ndarray, np.ndarray]],
    band: Box,
) -> None:
    """Fill one band of rows; bands start where the scene says, so shapes are always the same."""
    at = band.within(core)
    margin = max(view.side[1] for view in views)
    start = band.top // BAND_ROWS * BAND_ROWS
    width = band.shape[1] + 2 * margin
    total = np.zeros((BAND_ROWS, width, out.shape[2]), dtype=np.float32)
    for view, (kept, _) in zip(views, parts, strict=True):
        r, c = view.side
        for top in np.unique(view.corner[:, 0]).tolist():
            low, high = max(top, start), min(top + r, start + BAND_ROWS)
            if low >= high or high <= band.top or low >= band.bottom:
                continue
            mine = np.flatnonzero(view.corner[:, 0] == top)
            a, b = (np.matmul(rows, view.directions[mine]) for rows in single)
            weight = kept[mine, low - top : high - top]
            weight = weight.reshape(len(mine), (high - low) * c, kept.shape[3])
            values = np.matmul(weight, (a * b).transpose(0, 2, 1))
            lefts = (view.corner[mine, 1] - core.left + margin).tolist()
            for x, value in zip(lefts, values, strict=True):
                total[low - start : high - start, x : x + c] += value.reshape(-1, c, out.shape[2])
    inside = total[band.top - start : band.bottom - start, margin : margin + band.shape[1]]
    for image, row in flats:
        inside += image[at][..., None] * row
    out[at] = inside


def support_shares(
    views: list[View], box: Box, labels: np.ndarray, weights: np.ndarray
) -> Iterator[Shares]:
    """Yield for pairs of window and support what the support's weights see of S_a.

    With α the transform of √ω · weights on the window's part of the support, a pair has
    κ_i = Σ_f ρ_i(f) α(f)² along the kept directions and δ = Σ_f d(f) α(f)² along the others.

    Yields
    ------
    tuple
        View, (pairs,) window, (pairs,) support, (pairs, R) κ, (pairs,) δ.
    """
    weights = np.asarray(weights, dtype=np.float32)
    for view in views:
        count, r, c = view.weight.shape
        near = _cut(labels + 1, box, view).astype(np.int64).reshape(count, -1) - 1
        image = _cut(weights, box, view) * np.sqrt(view.weight)
        touched = np.where((image != 0).reshape(count, -1), near, -1)
        span = int(labels.max()) + 2
        pairs = np.unique(touched + 1 + span * np.arange(count)[:, None])
        pairs = pairs[pairs % span > 0]
        per = max(MOST // (r * c * max(view.kept.shape[1], 2)), 1)
        for start in range(0, len(pairs), per):
            window, label = np.divmod(pairs[start : start + per], span)
            label -= 1
            mine = touched[window] == label[:, None]
            alpha = forward((image.reshape(count, -1)[window] * mine).reshape(-1, 1, r, c))
            power = np.square(alpha).reshape(len(window), r * c)
            kept = view.kept.reshape(count, view.kept.shape[1], r * c)
            along = np.einsum("pn,prn->pr", power, kept[window]).astype(np.float64)
            flat = np.einsum("pn,pn->p", power, view.dropped.reshape(count, -1)[window])
            yield view, window, label, along, flat.astype(np.float64)


def functional_features(views: list[View], box: Box, weights: np.ndarray) -> np.ndarray:
    """Return Σ_a c_aᵀ S_a c_b (n, n) for weights (n, row, col, k) inside the subspace.

    Each window turns the functionals that touch it into vectors whose products are their
    covariance: the matrix is positive semi-definite.
    """
    n = len(weights)
    cov = np.zeros((n, n))
    extent = [_extent(w) for w in weights]
    for view in views:
        r, c = view.side
        for a, (y, x) in enumerate((view.corner - (box.top, box.left)).tolist()):
            mine = [i for i, e in enumerate(extent) if e is not None and e[0] < y + r
                    and e[1] > y and e[2] < x + c and e[3] > x]  # fmt: skip
            if mine:
                vectors = _vectors(view, a, (y, x), weights[mine])
                cov[np.ix_(mine, mine)] += vectors @ vectors.T
    return cov


def _extent(weight: np.ndarray) -> tuple[int, int, int, int] | None:
    rows, cols = np.nonzero(weight.any(axis=2))
    if not len(rows):
        return None
    return int(rows.min()), int(rows.max()) + 1, int(cols.min()), int(cols.max()) + 1


def _vectors(view: View, a: int, at: tuple[int, int], weights: np.ndarray) -> np.ndarray:
    """Return (n, ·) S_a^½ √ω c of functionals (n, row, col, k) on window ``a``."""
    r, c = view.side
    n, rows, cols, k = weights.shape
    top, left = max(at[0], 0), max(at[1], 0)
    bottom, right = min(at[0] + r, rows), min(at[1] + c, cols)
    here = np.zeros((n, r, c, k), dtype=np.float32)
    inner = (slice(top - at[0], bottom - at[0]), slice(left - at[1], right - at[1]))
    here[:, inner[0], inner[1]] = weights[:, top:bottom, left:right]
    here *= np.sqrt(view.weight[a])[None, :, :, None]
    V = view.directions[a]
    along = here @ V
    rest = here - along @ V.T
    kept = forward(np.ascontiguousarray(np.moveaxis(along, 3, 1))) * np.sqrt(view.kept[a])
    flat = forward(np.ascontiguousarray(np.moveaxis(rest, 3, 1))) * np.sqrt(view.dropped[a])
    return np.concatenate([kept, flat], axis=1).reshape(n, -1).astype(np.float64)


def error_sample(
    views: list[View],
    core: Box,
    k: int,
    white: Iterable[tuple[np.ndarray, np.ndarray]],
    run: Run = in_turn,
) -> np.ndarray:
    """Return (rows, cols, k) one draw of the error, Σ_a √ω S_a^½ g_a with g white.

    Parameters
    ----------
    white
        `white_draws` of the views.
    """
    rows = max((v.side[0] for v in views), default=0)
    cols = max((v.side[1] for v in views), default=0)
    total = np.zeros((core.shape[0] + 2 * rows, core.shape[1] + 2 * cols, k), dtype=np.float32)
    for view, (kept, flat) in zip(views, white, strict=True):
        r, c = view.side
        at = view.corner - (core.top, core.left) + (rows, cols)
        samples = run(
            lambda part: _window_samples(view.part(part), kept[part], flat[part]),  # noqa: B023
            strips(0, len(at), TOGETHER),
        )
        for (y, x), window in zip(at.tolist(), chain(*samples), strict=True):
            total[y : y + r, x : x + c] += window
    return total[rows : rows + core.shape[0], cols : cols + core.shape[1]]


def white_draws(
    views: Sequence[View | Sight], rng: np.random.Generator
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield g for every view: (windows, R, rows, cols) along V and (windows, k, rows, cols)."""
    for view in views:
        directions = view.fits.directions if isinstance(view, Sight) else view.directions
        count, k, padded = directions.shape
        yield (
            rng.standard_normal((count, padded, *view.side), dtype=np.float32),
            rng.standard_normal((count, k, *view.side), dtype=np.float32),
        )


def _window_samples(view: View, along: np.ndarray, flat: np.ndarray) -> np.ndarray:
    """Return (windows, rows, cols, k) √ω S_a^½ g, with g white."""
    count, k, padded = view.directions.shape
    r, c = view.side
    along = inverse(along * np.sqrt(view.kept)).reshape(count, padded, r * c)
    flat = inverse(flat * np.sqrt(view.dropped)[:, None]).reshape(count, k, r * c)
    V, Vt = view.directions, view.directions.transpose(0, 2, 1)
    image = flat + np.matmul(V, along - np.matmul(Vt, flat))
    return np.moveaxis(image.reshape(count, k, r, c) * np.sqrt(view.weight)[:, None], 1, 3)


def merged(views: list[View]) -> list[View]:
    """Return views of several regions with every window once, its weights added."""
    groups: dict[int, list[View]] = {}
    for view in views:
        groups.setdefault(view.directions.shape[2], []).append(view)
    result = []
    for _, same in sorted(groups.items()):
        corner = np.concatenate([v.corner for v in same])
        _, first, where = np.unique(corner, axis=0, return_index=True, return_inverse=True)
        weight = np.concatenate([v.weight for v in same])
        total = np.zeros((len(first), *weight.shape[1:]), dtype=np.float32)
        np.add.at(total, where.ravel(), weight)
        directions, rank, kept, dropped = (
            np.concatenate([getattr(v, name) for v in same])[first]
            for name in ("directions", "rank", "kept", "dropped")
        )
        result.append(View(corner[first], directions, rank, kept, dropped, total))
    return result
