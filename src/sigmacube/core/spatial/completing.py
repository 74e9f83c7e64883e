"""Whole spectra from what is left of them: outliers found, missing values filled, pixel by pixel.

The strong directions D (P, j) of the scene tell the spectrum of a pixel from any of its bands. A
robust fit of its coefficients shows which elements are no part of it: impulses. Filled spectra can
be whitened where the noise of bands is correlated; what was filled stays marked as missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from scipy.ndimage import median_filter

from sigmacube.core.lowrank.solvers.m_estimate import density_at
from sigmacube.core.lowrank.solvers.repeated import Repeats
from sigmacube.core.lowrank.solvers.robust import even_odds_cut
from sigmacube.core.spatial.geometry import Block, Box
from sigmacube.core.spatial.holes import find_holes
from sigmacube.core.spatial.smoothing import Run
from sigmacube.core.spatial.subspace import blocks, project

__all__ = ["Completion", "learn_completion"]

# Residuals count as at most this, in noise std, while impulses are looked for; steps of that fit.
SOFT, STEPS = 1.5, 12
SMALLEST_SLOPE = 0.25
RIDGE = 0.003
# What may differ from the median of its surroundings, in noise std, in the first look at a scene.
FENCE = 4.0
# Blocks that are looked at, at most; how many directions may be found in each round of looking:
# taken all at once, those that a poor first guess invents would stay, since it lies in them.
MOST_BLOCKS, GROWTH = 16, (3, 3, 6, 12, 24, 48, 96, 96)
# Pixels that are looked at for values that repeat.
MOST_PIXELS = 20_000
# A direction is strong if its power exceeds this share beyond the noise of a pixel.
STRONG = 1.0
LARGEST_CUT = 4.0
# Median of the size of a normal variable; more than so many times that in half of the pixels is
# signal that the directions do not hold yet. Impulses in a third of them make it 1.5.
MEDIAN, BEYOND_NOISE = 0.6745, 2.0


@dataclass(frozen=True, eq=False)
class Completion:
    """What the scene knows about the spectrum of a pixel."""

    directions: np.ndarray
    """(P, j) D, orthonormal, in bands of unit noise."""
    mean: np.ndarray
    """(P,) mean spectrum."""
    cut: float
    """Residuals beyond this are outliers; infinite where none are looked for."""
    scale: float
    """Standard deviation of the kept elements' noise, with what outliers below the cut add."""
    stuck: np.ndarray
    """(n, P) values that repeat in a band as noise never does: impulses; NaN for none."""
    spread: np.ndarray
    """(P,) what the directions leave over of most pixels, in noise std: one where that is noise.
    What is usual in a band is no outlier, however large."""

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Return it as arrays by name."""
        return {f"completion_{name}": np.asarray(getattr(self, name))
                for name in ("directions", "mean", "cut", "scale", "stuck", "spread")}  # fmt: skip

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Completion | None:
        """Return what `to_arrays` gave; None if it was not among the arrays."""
        if "completion_cut" not in arrays:
            return None
        return cls(
            np.asarray(arrays["completion_directions"]),
            np.asarray(arrays["completion_mean"]),
            float(arrays["completion_cut"]),
            float(arrays["completion_scale"]),
            np.asarray(arrays["completion_stuck"]),
            np.asarray(arrays["completion_spread"]),
        )

    def strong(self, mixing: np.ndarray | None = None) -> np.ndarray:
        """Return (P, j + 1) orthonormal directions with the mean, times ``mixing`` (P, P)."""
        both = np.column_stack([self.mean, self.directions])
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
        for values in self.stuck:
            kept = kept & (y != values)
        if np.isfinite(self.cut):
            fit = self._robust(y, kept, left)
            kept = kept & (np.abs(y - fit) <= self.cut * self.spread)
        return np.where(kept, y, self._fill(y, kept, left)), kept

    def _robust(self, y: np.ndarray, kept: np.ndarray, left: int) -> np.ndarray:
        """Return the fit (row, col, P) of spectra whose residuals count only so far."""
        across = np.ascontiguousarray(self.directions.T)
        fit = np.broadcast_to(self.mean, y.shape)
        reach = SOFT * 8.0
        for step in range(STEPS):
            residual = np.where(kept, y - fit, 0.0)
            most = reach * self.spread
            bounded = np.clip(residual, -most, most) if step else residual
            slope = np.mean((bounded == residual) & kept, axis=2, keepdims=True)
            move = project(bounded, self.directions, left) / np.maximum(slope, SMALLEST_SLOPE)
            fit = fit + project(move, across, left)
            reach = max(reach / 2, SOFT)
        return np.asarray(fit)

    def _fill(self, y: np.ndarray, kept: np.ndarray, left: int) -> np.ndarray:
        """Return the fit (row, col, P) to the kept elements: (A + δI) z = DᵀΩ(y − ȳ)."""
        D = self.directions
        across = np.ascontiguousarray(D.T)
        seen = project(np.where(kept, y - self.mean, 0.0), D, left)
        holes = find_holes(kept, D)
        z = seen.copy()
        z[holes.where] = holes.solve(seen[holes.where], np.zeros(D.shape[1]), RIDGE)
        return self.mean + project(z, across, left)


def learn_completion(
    block: Block, shape: tuple[int, int, int], *, outliers: bool, run: Run
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
    """
    every = blocks(shape[:2])
    chosen = every[:: max(-(-len(every) // MOST_BLOCKS), 1)]
    stuck = _stuck(block, chosen, shape) if outliers else np.zeros((0, shape[2]))
    parts = run(partial(_first_look, block, stuck, outliers), chosen)
    found = replace(_directions(parts, shape[2], GROWTH[0]), stuck=stuck)
    found = replace(found, cut=LARGEST_CUT if outliers else np.inf)
    for most in GROWTH[1:]:
        sums = run(partial(_look_again, block, found), chosen)
        fresh = _directions([part[:3] for part in sums], shape[2], most)
        found = replace(found, directions=fresh.directions, mean=fresh.mean)
        if outliers:
            size = np.concatenate([part[3] for part in sums])
            found = replace(_with_cut(found, size), spread=_usual([part[4] for part in sums]))
    return found


def _stuck(block: Block, chosen: list[Box], shape: tuple[int, int, int]) -> np.ndarray:
    """Return (n, P) values that repeat in a band more often than noise can make them."""
    pixels = []
    for box in chosen:
        y, kept = block(*box.slices)
        pixels.append((y if kept is None else np.where(kept, y, np.nan)).reshape(-1, shape[2]))
    every = max(sum(map(len, pixels)) // MOST_PIXELS, 1)
    repeats = Repeats.find(np.concatenate(pixels)[::every])
    return np.zeros((0, shape[2])) if repeats is None else repeats.beyond_chance()


def _first_look(
    block: Block, stuck: np.ndarray, outliers: bool, box: Box
) -> tuple[np.ndarray, np.ndarray, int]:
    """Return Σ yyᵀ, Σ y and the pixels of a block, held to fences around their surroundings."""
    y, kept = block(*box.slices)
    for values in stuck:
        kept = (y != values) if kept is None else kept & (y != values)
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
) -> tuple[np.ndarray, np.ndarray, int, np.ndarray, np.ndarray]:
    """Return the same of completed spectra, sizes of residuals of what is there, and their medians.

    Sizes are over what is usual in their band; medians (P,) are in noise std.
    """
    y, kept = block(*box.slices)
    kept = np.ones(y.shape, dtype=bool) if kept is None else kept
    for values in found.stuck:
        kept = kept & (y != values)
    fit = found._robust(y, kept, box.left) if np.isfinite(found.cut) else y
    residual = np.abs(y - fit)
    size = (residual / found.spread)[kept].astype(np.float32)
    middle = np.median(np.where(kept, residual, 0.0), axis=(0, 1))
    whole, own = found.complete(y, kept, box.left)
    noise = np.random.default_rng([13, box.top, box.left]).standard_normal(y.shape)
    outside = noise - (noise @ found.directions) @ found.directions.T
    flat = np.where(own, whole, whole + outside).reshape(-1, y.shape[2])
    return flat.T @ flat, flat.sum(axis=0), len(flat), size, middle


def _directions(
    parts: list[tuple[np.ndarray, np.ndarray, int]], bands: int, most: int
) -> Completion:
    """Return the directions, so many at most, whose power in a pixel exceeds that of its noise."""
    count = max(sum(part[2] for part in parts), 1)
    mean = np.sum([part[1] for part in parts], axis=0) / count
    total = np.sum([part[0] for part in parts], axis=0) / count - np.outer(mean, mean)
    values, vectors = np.linalg.eigh(total)
    floor = max(float(np.median(values)), 1.0)
    most = min(most, max(bands // 3, 1))
    j = int(np.clip(np.count_nonzero(values > (1 + STRONG) * floor), 1, most))
    plain = np.inf, 1.0, np.zeros((0, bands)), np.ones(bands)
    return Completion(vectors[:, ::-1][:, :j].copy(), mean, *plain)


def _usual(medians: list[np.ndarray]) -> np.ndarray:
    """Return (P,) what is left over in most pixels of most blocks; one where it may be noise."""
    spread = np.median(medians, axis=0) / MEDIAN
    return np.where(spread > BEYOND_NOISE, spread, 1.0)


def _with_cut(found: Completion, size: np.ndarray) -> Completion:
    """Return it with the cut of even odds, and the noise that is left below it."""
    cut = even_odds_cut(size, len(size))
    below = size[size <= cut]
    if not len(below):  # nothing can be told apart
        return found
    slope = 1 - cut * density_at(size, cut, len(below))
    spread = float(np.mean(np.square(below, dtype=np.float64)))
    scale = max(np.sqrt(spread) / max(slope, SMALLEST_SLOPE), 1.0)
    return replace(found, cut=cut, scale=float(scale))
