"""Whole spectra from what is left of them: outliers found, missing values filled, pixel by pixel.

The strong directions D (P, j) of the scene tell the spectrum of a pixel from any of its bands. A
robust fit of its coefficients shows which elements are no part of it: impulses. Filled spectra can
be whitened where the noise of bands is correlated; what was filled stays marked as missing. A
clipped element says that its value lay beyond the bound: what is expected there takes its place.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from scipy.ndimage import median_filter, uniform_filter
from scipy.special import ndtri

from sigmacube.core.censoring import expected_beyond
from sigmacube.core.lowrank.solvers.m_estimate import density_at
from sigmacube.core.lowrank.solvers.repeated import Repeats
from sigmacube.core.lowrank.solvers.robust import even_odds_cut
from sigmacube.core.spatial.geometry import Block, Box
from sigmacube.core.spatial.holes import Holes, find_holes
from sigmacube.core.spatial.smoothing import Run
from sigmacube.core.spatial.subspace import blocks, project

__all__ = ["Completion", "learn_completion", "stuck_values"]

# Residuals count as at most this, in noise std, while impulses are looked for; steps of that fit.
SOFT, STEPS = 1.5, 12
# E|z| of a standard normal is one over this.
AVERAGE = 1.2533
SMALLEST_SLOPE = 0.25
RIDGE = 0.003
# What may differ from the median of its surroundings, in noise std, in the first look at a scene.
FENCE = 4.0
# Blocks that are looked at, at most; how many directions may be found in each round of looking:
# taken all at once, those that a poor first guess invents would stay, since it lies in them.
MOST_BLOCKS, GROWTH = 16, (3, 6, 12, 24, 48, 96, 96)
# Where there are outliers the noise of a band is taken as so much of its spread in these rounds, or
# as itself if that is more: what directions do not explain yet is no outlier, and an impulse in a
# band of little noise must not decide a spectrum.
SOFTENED = (0.3, 0.1, 0.03, 0.01, 0.01, 0.01, 0.01)
# Pixels per band that miss nothing from which on they tell the directions by themselves: bands that
# are missing together over a part of the scene have no surroundings to be guessed from.
ENOUGH = 4
# Pixels that are looked at for values that repeat.
MOST_PIXELS = 20_000
# A value that most of a band has is what it measured.
MOSTLY = 0.5
# Pixels of a block that its spread is taken from.
LOOKED_AT = 2_000
# Values on a bound, by how much the rest of the spectrum puts them inside at most to count as
# clipped: where impulses on it are as likely as noise, and at least and at most so much. Rounds in
# which what is expected of clipped values is found.
NEAREST, FARTHEST, EXPECTED = 1.0, 5.0, 8
# A direction is strong if its power exceeds this share beyond the noise of a pixel.
STRONG = 1.0
LARGEST_CUT = 4.0
# These and the next four were chosen while looking at benchmarks/honesty.py.
# Impulses hit a pixel by chance, so many standard deviations more often than most at the most. A
# pixel whose residuals are so many times noise beyond that is not explained.
CHANCE, MISFIT = 4.0, 1.5
# How far out, in noise std, three neighbouring bands are a line, unless one is so many times as far
# out as another, and as long as no more of a pixel than this may be hit.
BESIDE, UNLIKE, SPARED = 2.0, 4.0, 0.15
# Pixels around one that share an outlier's band and side where it is part of a surface.
SHARING = 3
_PARTS = ("directions", "power", "mean", "cut", "scale", "bounds", "reach", "unit", "hit")


@dataclass(frozen=True, eq=False)
class Completion:
    """What the scene knows about the spectrum of a pixel."""

    directions: np.ndarray
    """(P, j) D, orthonormal, for values over ``unit``."""
    power: np.ndarray
    """(j,) mean square of a pixel along them, over that of its noise."""
    mean: np.ndarray
    """(P,) mean spectrum over ``unit``."""
    cut: float
    """Residuals beyond this are outliers; infinite where none are looked for."""
    scale: float
    """Standard deviation of the kept elements' noise, with what outliers below the cut add."""
    bounds: np.ndarray
    """(2, P) lower and upper bounds that values were clipped to; infinite for none."""
    reach: float
    """How far inside, in noise std, the rest of the spectrum may put a clipped value."""
    unit: np.ndarray
    """(P,) what values are taken over, in noise std; one or more."""
    hit: float = 0.0
    """Share of a pixel's elements that impulses make up at most."""

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Return it as arrays by name."""
        return {f"completion_{name}": np.asarray(getattr(self, name)) for name in _PARTS}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Completion | None:
        """Return what `to_arrays` gave; None if it was not among the arrays."""
        if "completion_cut" not in arrays:
            return None
        parts: dict[str, Any] = {n: np.asarray(arrays[f"completion_{n}"]) for n in _PARTS}
        for name in ("cut", "scale", "reach", "hit"):
            parts[name] = float(parts[name])
        return cls(**parts)

    @property
    def changes_values(self) -> bool:
        """Whether elements that are there may be set aside, or stand for others."""
        return bool(np.isfinite(self.cut) or np.isfinite(self.bounds).any())

    def over(self, unit: np.ndarray) -> Completion:
        """Return it for values over another unit (P,)."""
        turn = self.unit / unit
        spread = self.directions * np.sqrt(self.power) * turn[:, None]
        directions, size, _ = np.linalg.svd(spread, full_matrices=False)
        return replace(self, directions=directions, power=size**2, mean=self.mean * turn, unit=unit)

    def strong(self, mixing: np.ndarray | None = None) -> np.ndarray:
        """Return (P, j + 1) orthonormal directions with the mean, times ``mixing`` (P, P)."""
        both = np.column_stack([self.mean, self.directions]) * self.unit[:, None]
        return np.linalg.qr(both if mixing is None else mixing @ both)[0]

    def complete(self, y: np.ndarray, kept: np.ndarray, left: int) -> tuple[np.ndarray, np.ndarray]:
        """Return whole spectra (row, col, P), and which elements are their own.

        Parameters
        ----------
        y
            (row, col, P) values of unit noise; any value where they are missing.
        kept
            (row, col, P) which are there.
        left
            Column of the scene that they start at: products of one shape round alike anywhere.
        """
        return self._completed(y, kept, left)[:2]

    def _completed(
        self, y: np.ndarray, kept: np.ndarray, left: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        """Return the same, and a fit that outliers hardly move, where they are looked for."""
        whole, fit = y / self.unit, None
        if np.isfinite(self.bounds).any():
            whole, kept = self._unclipped(y, kept, left)
        if np.isfinite(self.cut):
            fit = self._robust(whole, kept, left)
            residual = np.where(kept, whole - fit, 0.0)
            out = np.abs(residual) > self.cut * self._misfit(np.abs(residual), kept)
            kept = kept & ~(out & ~_lines(residual) if self.hit < SPARED else out)
        if not kept.all():
            whole = np.where(kept, whole, self._fill(whole, kept, left))
        return whole * self.unit, kept, fit

    def _unclipped(
        self, y: np.ndarray, kept: np.ndarray, left: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return values over ``unit``, what is expected beyond bounds for clipped ones; and kept.

        Values on a bound that the rest of the spectrum puts far inside were not clipped.
        """
        (low, high), unit = self.bounds, self.unit
        clipped = kept & ((y <= low) | (y >= high))
        if not clipped.any():
            return y / unit, kept
        inner, limit = kept & ~clipped, y
        y = y / unit
        fit = self._fill(y, inner, left) * unit
        clipped &= np.minimum(fit - low, high - fit) <= self.reach
        if np.isfinite(self.cut):
            kept = inner | clipped
        limit, over = limit[clipped], np.broadcast_to(unit, y.shape)[clipped]
        side = np.where((limit <= np.broadcast_to(low, y.shape)[clipped]), 1.0, -1.0)
        holes, fit = find_holes(kept, self.directions), fit[clipped]
        for number in range(EXPECTED):
            y[clipped] = expected_beyond(fit, limit, side)[0] / over
            if number + 1 < EXPECTED:
                fit = self._fill(y, kept, left, holes)[clipped] * over
        return y, kept

    def _robust(self, y: np.ndarray, kept: np.ndarray, left: int) -> np.ndarray:
        """Return the fit (row, col, P) of spectra whose residuals count only so far.

        How far follows what a pixel's own residuals come to, down to the noise: an impulse of a
        thousand times the noise pulls the first fit of its pixel far away.
        """
        D, across = self.directions, np.ascontiguousarray(self.directions.T)
        ridge = np.minimum(RIDGE, 1 / np.maximum(self.power, 1.0))
        holes, number = find_holes(kept, D), np.maximum(kept.sum(axis=2, keepdims=True), 1)
        fit = np.broadcast_to(self.mean, y.shape)
        reach = np.full((*y.shape[:2], 1), np.inf)
        for _ in range(STEPS):
            residual = np.where(kept, y - fit, 0.0)
            bounded = np.clip(residual, -reach, reach)
            slope = np.sum((bounded == residual) & kept, axis=2, keepdims=True) / number
            seen = project(bounded, D, left)
            seen[holes.where] = holes.solve(seen[holes.where], np.zeros_like(ridge), ridge)
            fit = fit + project(seen / np.maximum(slope, SMALLEST_SLOPE), across, left)
            size = np.abs(bounded).sum(axis=2, keepdims=True) / number
            reach = np.maximum(np.minimum(reach, SOFT * AVERAGE * size), SOFT)
        return np.asarray(fit)

    def _misfit(self, size: np.ndarray, kept: np.ndarray) -> np.ndarray:
        """Return (row, col, 1) how much larger the residuals of a pixel are than noise.

        More elements out than impulses make up are a spectrum that the directions do not explain:
        it is not taken apart. One for all other pixels.
        """
        count = np.count_nonzero(kept, axis=2)
        last = np.maximum(np.ceil((1 - self.hit) * count).astype(int) - 1, 0)
        ordered = np.sort(np.where(kept, size, np.inf), axis=2)
        ratio = np.take_along_axis(ordered, last[..., None], axis=2) / ndtri(1 - self.hit / 2)
        return np.where((count[..., None] > 0) & (ratio > MISFIT), ratio, 1.0)

    def _fill(
        self, y: np.ndarray, kept: np.ndarray, left: int, holes: Holes | None = None
    ) -> np.ndarray:
        """Return the fit (row, col, P) to the kept elements: (A + δI) z = DᵀΩ(y − ȳ)."""
        D = self.directions
        holes = find_holes(kept, D) if holes is None else holes
        own = y - self.mean
        if holes.where.any():
            own[~kept] = 0.0
        z = project(own, D, left)
        if holes.where.any():
            ridge = np.minimum(RIDGE, 1 / np.maximum(self.power, 1.0))
            z[holes.where] = holes.solve(z[holes.where], np.zeros_like(ridge), ridge)
        fit = project(z, np.ascontiguousarray(D.T), left)
        fit += self.mean
        return fit

    def _drawn(self, y: np.ndarray, kept: np.ndarray, box: Box) -> np.ndarray:
        """Return spectra as likely as not given the kept elements of each pixel, noise included.

        A mean of what is likely would make directions that few pixels tell look better known than
        they are; what they hold of noise would count as signal from then on.
        """
        rng = np.random.default_rng([13, box.top, box.left])
        noise = rng.standard_normal(y.shape)
        prior = 1 / np.maximum(self.power - 1, 0.1)
        z = project(np.where(kept, y - self.mean + noise, 0.0), self.directions, box.left)
        z += np.sqrt(prior) * rng.standard_normal(z.shape)
        holes = find_holes(kept, self.directions)
        z[holes.where] = holes.solve(z[holes.where], np.zeros_like(prior), prior)
        return self.mean + project(z, np.ascontiguousarray(self.directions.T), box.left) + noise


def learn_completion(
    block: Block,
    shape: tuple[int, int, int],
    *,
    outliers: bool,
    run: Run,
    bounds: np.ndarray | None = None,
) -> Completion:
    """Learn the strong directions of a scene from some of its blocks, without its outliers.

    Parameters
    ----------
    block
        Values of unit noise of any part of the scene, see `Block`.
    shape
        Rows, columns and bands of the scene.
    outliers
        Whether there may be outliers; else only missing values are filled.
    run
        Parallel map.
    bounds
        (2, P) what values were clipped to, infinite for none; none by default.
    """
    if bounds is None:
        bounds = np.array([[-np.inf], [np.inf]]) * np.ones(shape[2])
    chosen = _chosen(shape)
    parts = run(partial(_whole_spectra, block), chosen)
    whole = not outliers and sum(part[2] for part in parts) >= ENOUGH * shape[2]
    spread = _spread(block, chosen) if outliers else np.zeros(shape[2])
    unit = np.maximum(SOFTENED[0] * spread, 1.0)
    if not whole:
        parts = run(partial(_first_look, block, outliers, unit), chosen)
    found = _directions(parts, shape[2], GROWTH[-1 if whole else 0])
    found = replace(found, bounds=bounds, unit=unit)
    found = replace(found, cut=LARGEST_CUT if outliers else np.inf, hit=MOSTLY)
    for most, soft in zip(GROWTH[1:], SOFTENED[1:], strict=True):
        found = found.over(np.maximum(soft * spread, 1.0))
        sums = run(partial(_look_again, block, found), chosen)
        fresh = _directions([part[:3] for part in sums], shape[2], most)
        found = replace(found, directions=fresh.directions, power=fresh.power, mean=fresh.mean)
        if outliers:
            size = np.concatenate([part[3] for part in sums])
            found = _with_cut(found, size, np.concatenate([part[5] for part in sums]))
        if np.isfinite(bounds).any():
            found = replace(found, reach=_reach([part[4] for part in sums]))
    if np.isfinite(bounds).any():
        told = run(partial(_told, block, found), chosen)
        share = sum(part[0] for part in told) / max(sum(part[1] for part in told), 1)
        found = replace(found, scale=found.scale / np.sqrt(max(share, SMALLEST_SLOPE)))
    return found


def _lines(residual: np.ndarray) -> np.ndarray:
    """Return (row, col, P) elements of three neighbouring bands that all lie to one side.

    Impulses hardly ever do; an absorption line does.
    """
    found = np.zeros(residual.shape, dtype=bool)
    for out in (residual, -residual):
        bands = out[..., :-2], out[..., 1:-1], out[..., 2:]
        three = np.minimum.reduce(bands) > np.maximum(np.maximum.reduce(bands) / UNLIKE, BESIDE)
        for shift in range(3):
            found[..., shift : shift + three.shape[2]] |= three
    return found


def _shared(outliers: np.ndarray) -> np.ndarray:
    """Return (row, col, P) outliers that some pixels around share: a surface, not impulses."""
    found = np.zeros(outliers.shape, dtype=bool)
    for side in (outliers > 0, outliers < 0):
        around = uniform_filter(side.astype(np.float32), (3, 3, 1), mode="constant") * 9
        found |= side & (around > SHARING + 0.5)
    return found


def _spread(block: Block, chosen: list[Box]) -> np.ndarray:
    """Return (P,) the spread of bands over the chosen blocks, which impulses hardly change."""
    found = []
    for box in chosen:
        y, kept = block(*box.slices)
        y = y if kept is None else np.where(kept, y, np.nan)
        flat = y.reshape(-1, y.shape[2])
        flat = flat[:: max(len(flat) // LOOKED_AT, 1)]
        seen = np.asarray(~np.isnan(flat).all(axis=0))
        ends = np.stack([np.full(len(seen), np.inf), np.full(len(seen), -np.inf)])
        if seen.any():
            ends[:, seen] = np.nanquantile(flat[:, seen], (0.25, 0.75), axis=0)
        found.append(ends)
    low, high = np.min(found, axis=0)[0], np.max(found, axis=0)[1]
    return np.where(low <= high, high - low, 0.0)


def _chosen(shape: tuple[int, int, int]) -> list[Box]:
    """Return the blocks of a scene that are looked at."""
    every = blocks(shape[:2])
    return every[:: max(-(-len(every) // MOST_BLOCKS), 1)]


def stuck_values(
    block: Block, shape: tuple[int, int, int], bounds: np.ndarray | None = None
) -> np.ndarray:
    """Return (n, P) values that repeat in a band more often than noise can make them; or NaN.

    Parameters
    ----------
    block
        Values as they were measured, in any unit of a band.
    shape
        Rows, columns and bands of the scene.
    bounds
        (2, P) what values were clipped to, in that unit: those on a bound are not stuck.
    """
    pixels = []
    for box in _chosen(shape):
        y, kept = block(*box.slices)
        pixels.append((y if kept is None else np.where(kept, y, np.nan)).reshape(-1, shape[2]))
    every = max(sum(map(len, pixels)) // MOST_PIXELS, 1)
    looked = np.concatenate(pixels)[::every]
    repeats = Repeats.find(looked)
    if repeats is None:
        return np.zeros((0, shape[2]))
    found = repeats.beyond_chance()
    share = np.array([np.mean(looked == values, axis=0) for values in found])
    usual = share.reshape(found.shape) > MOSTLY
    if bounds is not None:
        usual |= (found <= bounds[0]) | (found >= bounds[1])
    return np.where(usual, np.nan, found)


def _whole_spectra(block: Block, box: Box) -> tuple[np.ndarray, np.ndarray, int]:
    """Return Σ yyᵀ, Σ y and the number of a block's pixels that miss nothing."""
    y, kept = block(*box.slices)
    flat = y.reshape(-1, y.shape[2])
    flat = flat if kept is None else flat[kept.reshape(flat.shape).all(axis=1)]
    return flat.T @ flat, flat.sum(axis=0), len(flat)


def _first_look(
    block: Block, outliers: bool, unit: np.ndarray, box: Box
) -> tuple[np.ndarray, np.ndarray, int]:
    """Return Σ yyᵀ, Σ y and the pixels of a block, held to fences around their surroundings."""
    y, kept = block(*box.slices)
    y = y / unit
    if kept is not None:
        means = np.where(kept, y, 0).sum(axis=(0, 1)) / np.maximum(kept.sum(axis=(0, 1)), 1)
        y = np.where(kept, y, means)
    if outliers or kept is not None:
        around = median_filter(y, size=(3, 3, 1), mode="nearest")
        reach = FENCE if outliers else np.inf
        y = np.clip(y, around - reach, around + reach)
        y = y if kept is None else np.where(kept, y, around)
    flat = y.reshape(-1, y.shape[2])
    return flat.T @ flat, flat.sum(axis=0), len(flat)


def _look_again(
    block: Block, found: Completion, box: Box
) -> tuple[np.ndarray, np.ndarray, int, np.ndarray, np.ndarray, np.ndarray]:
    """Return the same of completed spectra, residuals, what is far inside, shares of pixels out."""
    y, kept = block(*box.slices)
    kept = np.ones(y.shape, dtype=bool) if kept is None else kept
    whole, own, fit = found._completed(y, kept, box.left)
    far = _far_inside(y, kept, whole, found)
    y, whole = y / found.unit, whole / found.unit
    if fit is None:
        fit = y
    elif np.isfinite(found.bounds).any():  # that one is of values before they were clipped
        fit = found._robust(y, kept, box.left)
    size = np.abs(y - fit)
    if found.hit < SPARED:
        shared = _shared(np.where(kept & ~own, y - fit, 0.0))
        own, whole = own | shared, np.where(shared, y, whole)
    out = np.mean((size > found.cut) & kept, axis=2).ravel()
    size = (size / found._misfit(size, kept))[kept].astype(np.float32)
    if not own.all():
        whole = np.where(own, whole, found._drawn(whole, own, box))
    flat = whole.reshape(-1, y.shape[2])
    return flat.T @ flat, flat.sum(axis=0), len(flat), size, far, out


def _far_inside(
    y: np.ndarray, kept: np.ndarray, whole: np.ndarray, found: Completion
) -> np.ndarray:
    """Return how many elements lie far inside the bounds, and how many of them are on a bound."""
    low, high = found.bounds
    on = (y <= low) | (y >= high)
    fit = np.where(on, whole, y)
    inside = (
        kept
        & (np.minimum(fit - low, high - fit) > FARTHEST)
        & (np.isfinite(low) | np.isfinite(high))
    )
    return np.array([np.count_nonzero(inside), np.count_nonzero(inside & on)])


def _reach(counts: list[np.ndarray]) -> float:
    """Return how far inside noise is as likely as an impulse, from counts of `_far_inside`."""
    far, on = np.sum(counts, axis=0)
    # Impulses are one in a million as long as none are seen.
    return float(np.clip(-ndtri((on + 1e-3) / (far + 1e3)), NEAREST, FARTHEST))


def _told(block: Block, found: Completion, box: Box) -> tuple[float, int]:
    """Return how many elements of a block tell as much as its kept ones do, and their number.

    A clipped one tells 1 − v of one that was measured, v the variance of what is expected of it.
    """
    y, there = block(*box.slices)
    there = np.ones(y.shape, dtype=bool) if there is None else there
    whole, kept = found.complete(y, there, box.left)
    low, high = found.bounds
    clipped = kept & ((y <= low) | (y >= high))
    fit = found._fill(whole / found.unit, np.ones_like(kept), box.left) * found.unit
    side = np.where((y <= low)[clipped], 1.0, -1.0)
    number = int(np.count_nonzero(kept))
    return number - float(expected_beyond(fit[clipped], y[clipped], side)[1].sum()), number


def _directions(
    parts: list[tuple[np.ndarray, np.ndarray, int]], bands: int, most: int
) -> Completion:
    """Return the directions, so many at most, whose power in a pixel exceeds that of its noise."""
    count = max(sum(part[2] for part in parts), 1)
    mean = np.sum([part[1] for part in parts], axis=0) / count
    total = np.sum([part[0] for part in parts], axis=0) / count - np.outer(mean, mean)
    values, vectors = np.linalg.eigh(total)
    floor = max(float(np.median(values)), 1.0)
    most = min(most, max(bands // 2, 1))
    j = int(np.clip(np.count_nonzero(values > (1 + STRONG) * floor), 1, most))
    D, power = vectors[:, ::-1][:, :j].copy(), np.maximum(values[::-1][:j], 0.0)  # rounding
    return Completion(
        D, power, mean, np.inf, 1.0, np.full((2, bands), np.nan), NEAREST, np.ones(bands)
    )


def _with_cut(found: Completion, size: np.ndarray, out: np.ndarray) -> Completion:
    """Return it with the cut of even odds, the noise that is left below it, and what may be hit."""
    usual, bands = float(np.median(out)), len(found.mean)
    chance = CHANCE * np.sqrt(max(usual, 1 / bands) / bands)
    found = replace(found, hit=min(usual + chance, MOSTLY))
    cut = even_odds_cut(size, len(size))
    below = size[size <= cut]
    if not len(below):  # nothing can be told apart
        return found
    slope = 1 - cut * density_at(size, cut, len(below))
    spread = float(np.mean(np.square(below, dtype=np.float64)))
    scale = max(np.sqrt(spread) / max(slope, SMALLEST_SLOPE), 1.0)
    return replace(found, cut=cut, scale=float(scale))
