"""Missing elements: filled from the rest of the pixel and its surroundings, in a few rounds.

With Ω the kept bands of a pixel, A = BᵀΩB says how much of each direction was observed. The data of
the windows are z = BᵀΩy + (I − A) z̃, with z̃ the best guess so far (expectation–maximisation).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from scipy.ndimage import maximum_filter, uniform_filter

from sigmacube.core.spatial.geometry import Block, Box, covering_box
from sigmacube.core.spatial.holes import Holes, Many, find_holes
from sigmacube.core.spatial.smoothing import (
    Nearby,
    Plan,
    Run,
    Smoothed,
    first_round,
    second_round,
)
from sigmacube.core.spatial.views import View, shares

__all__ = ["FEW", "FILLINGS", "HALO", "filled_near", "filled_power", "filling_boxes",
           "fillings_for", "hidden_lines", "imputed", "imputed_noise", "less_seen", "surrounded",
           "told_around"]  # fmt: skip

# Sides of the surroundings that a first guess is taken from, the smallest first.
AROUND = (5, 21)
HALO = AROUND[-1] // 2
# Weight of surroundings that lack nothing, and of the estimate so far, beside the pixel's own kept
# bands; least and most power of a direction. Pixels tell of those around of which so much was seen,
# over the most of any around.
NEIGHBOURS = 2.0
TRUST = 2.0
POWERS = 0.05, 1e8
SEEN = 0.5
# Rounds of filling, and where less than some share of the scene was seen; every which column is
# hidden to see how well they do.
FILLINGS, MORE, MOSTLY = 3, 5, 0.7
# The least share that noise of filled data is foretold for.
LEAST_SHARE = 0.3
HIDDEN = 12
# Pixels of which less was seen are left to their surroundings.
FEW = 0.2


def filled_power(share: np.ndarray) -> np.ndarray:
    """Return the mean square of z − ẑ per direction where a share α of a pixel was observed.

    The residual BᵀΩ(y − ẑBᵀ) has α, and z̃ in `fill` takes it (1 + δ)/(α + δ) times.
    """
    return share * np.square((1 + TRUST) / (share + TRUST))


def told_around(kept: np.ndarray) -> np.ndarray:
    """Return (row, col) the share of what a pixel lacks that the pixels around it have."""
    known = uniform_filter(kept.astype(np.float32), (*AROUND[:1] * 2, 1), mode="constant")
    gone = ~kept
    inside = uniform_filter(np.ones(kept.shape[:2], np.float32), AROUND[0], mode="constant")
    share = np.sum(known, axis=2, where=gone) / np.maximum(gone.sum(axis=2) * inside, 1e-9)
    return np.asarray(np.minimum(share, 1.0), dtype=np.float64)


def surrounded(seen: np.ndarray, holes: Holes, power: np.ndarray) -> np.ndarray:
    """Return (row, col, k) the mean of pixels nearby, each told by itself.

    (A + P⁻¹) z = BᵀΩy: a direction is no larger than its power (k,), in units of the noise.
    """
    most = maximum_filter(holes.share, AROUND[-1], mode="constant")
    good = ((holes.share > SEEN * most) & (most > 0)).astype(np.float64)
    alone, where = seen * good[..., None], holes.where
    own = seen[where]
    alone[where] = holes.solve(own, np.zeros_like(own), _prior(power)) * good[where][:, None]
    around = np.zeros_like(seen)
    found = np.zeros(good.shape, dtype=bool)
    for side in AROUND:
        weight = uniform_filter(good, side, mode="constant")
        mean = uniform_filter(alone, (side, side, 1), mode="constant")
        fresh = (weight > 1e-9) & ~found
        around[fresh] = mean[fresh] / weight[fresh][:, None]
        found |= fresh
    return around


def start(seen: np.ndarray, holes: Holes, told: np.ndarray | None, power: np.ndarray) -> np.ndarray:
    """Return a first z (row, col, k): what the kept bands say, the rest from the surroundings.

    (A + δ) z = BᵀΩy + δ z̄, z̄ the mean of pixels nearby, which counts as far as these have what the
    pixel lacks, ``told`` (row, col), and no less than what a direction's power (k,) leaves open;
    not beyond that if it is None.
    """
    where, trust = holes.where, _prior(power)
    out, around = seen.copy(), surrounded(seen, holes, power)[where]
    if told is not None:
        trust = np.maximum(trust, NEIGHBOURS * told[where][:, None])
        trust = _trusted(holes, seen[where], around, trust)
    out[where] = holes.solve(seen[where], around, trust)
    return out


def _trusted(holes: Holes, own: np.ndarray, guess: np.ndarray, most: np.ndarray) -> np.ndarray:
    """Return (pixels, k) the weight of a guess beside what the kept bands say, at most ``most``.

    Less where these show that it is off: one over the variance of its error.
    """
    off = own - guess + holes.unseen(guess)
    size = np.einsum("pk,pk->p", off, off) / own.shape[1]
    share = np.maximum(holes.share[holes.where], FEW)
    excess = np.maximum(size - share, 0) / share**2
    return np.asarray(1 / (1 / most + excess[:, None]))


def _prior(power: np.ndarray) -> np.ndarray:
    """Return (k,) one over the power along each direction."""
    return 1 / np.clip(power, *POWERS)


def imputed(block: Block, strong: np.ndarray, power: np.ndarray) -> Block:
    """Return a block whose missing elements are a first guess plus noise, for the survey.

    The guess is made by the strong directions (P, j) of the scene, of power (j,); inside them it
    carries the noise of the kept bands, so noise is drawn outside of them only, and everywhere for
    pixels that were hardly seen. The draw depends on where the block lies, and on nothing else.
    """

    def complete(rows: slice, cols: slice) -> tuple[np.ndarray, None]:
        y, kept = block(rows, cols)
        if kept is None or kept.all():
            return y, None
        holes = find_holes(kept, strong)
        z = start(np.where(kept, y, 0.0) @ strong, holes, None, power)
        rng = np.random.default_rng([11, rows.start, cols.start])
        noise = rng.standard_normal(y.shape)
        within = (noise @ strong) * (holes.share > 0.5)[..., None]
        return np.where(kept, y, (z - within) @ strong.T + noise), None

    return complete


def fillings_for(share: float) -> int:
    """Return in how many rounds a scene is filled of which a share was seen."""
    return FILLINGS if share > MOSTLY else MORE


def imputed_noise(share: float, power: np.ndarray) -> np.ndarray:
    """Return (k,) the noise of `imputed` data along directions of some power, noise included.

    That of kept bands, α, as (A + P⁻¹)⁻¹ passes it on: 1/α along strong directions. One where
    nothing is missing.
    """
    share, prior = max(share, LEAST_SHARE), _prior(power - 1)
    return np.asarray(share * np.square((1 + prior) / (share + prior)))


def filling_boxes(plan: Plan, need: Box, rounds: int = FILLINGS) -> list[Box]:
    """Return the boxes that z is needed on, last round first, for a result on ``need``."""
    boxes = [need]
    for _ in range(rounds):
        boxes.append(covering_box(plan.sizes, boxes[-1]))
    return boxes


def filled_near(
    seen: np.ndarray,
    holes: Holes,
    told: np.ndarray,
    power: np.ndarray,
    outer: Box,
    boxes: list[Box],
    plan: Plan,
    run: Run,
    near: Sequence[Nearby] = (),
) -> tuple[np.ndarray, list[Nearby]]:
    """Return z (rows, cols, k) on the first box, and the axes of windows by round.

    From BᵀΩy and `told_around` on ``outer``, and the power (k,) along each direction. ``near`` are
    those of almost the same data. From the second round on data change so little that
    the axes of the round before do as well.
    """
    z, axes = (
        np.ascontiguousarray(start(seen, holes, told, power)[boxes[-1].within(outer)]),
        list(near),
    )
    for number, (box, inner) in enumerate(zip(boxes[:0:-1], boxes[-2::-1], strict=True)):
        known = near[number] if near else axes[1] if number > 1 else None
        pilot, found = first_round(z, box, inner, plan, run, known)
        if not near:
            axes.append(found)
        part = holes.part(inner.within(outer))
        z = fill(part, np.ascontiguousarray(seen[inner.within(outer)]), pilot, power)
    return z, axes


def fill(holes: Holes, seen: np.ndarray, estimate: np.ndarray, power: np.ndarray) -> np.ndarray:
    """Return z = BᵀΩy + (I − A) z̃ (row, col, k) from BᵀΩy and the estimate ẑ so far.

    z̃ = (A + δ)⁻¹ (BᵀΩy + δẑ): what the kept bands say themselves counts as well, and counts for
    more where they show that the estimate is off: 1/δ is the variance of its error, which is no
    larger than the direction's power (k,).
    """
    out, where = seen.copy(), holes.where
    own, guess = seen[where], estimate[where].astype(np.float64)
    best = holes.solve(own, guess, _trusted(holes, own, guess, np.maximum(TRUST, _prior(power))))
    out[where] += holes.unseen(best)
    return out


def less_seen(views: list[View], box: Box, share: np.ndarray, factor: float) -> list[View]:
    """Return the views with larger weights where little was observed.

    With α the share of the pixel that was observed, over the mean of its window, a claimed error q
    becomes q / (1 − (1 − α) q), times factor^((1 − α)⁴). That the surroundings are noisier as well
    is for `growth_by_band`.
    """
    return [_less(view, box, share, factor) for view in views]


def _less(view: View, box: Box, share: np.ndarray, factor: float) -> View:
    r, c = view.side
    at = view.corner - (box.top, box.left)
    windows = np.lib.stride_tricks.sliding_window_view(share, (r, c))[at[:, 0], at[:, 1]]
    mean = np.maximum(windows.mean(axis=(1, 2), keepdims=True), 0.01)
    windows = np.minimum(windows / mean, 1.0)
    kept, _ = shares(view)
    less = kept / np.maximum(1 - (1 - windows)[:, None] * kept, 0.15)
    growth = less.sum(axis=1) / np.maximum(kept.sum(axis=1), 1e-9) * factor ** (1 - windows) ** 4
    growth = np.where(windows < 1, np.maximum(growth, 1), 1)  # exactly one where nothing is missing
    return replace(view, weight=(view.weight * growth).astype(np.float32))


def hidden_lines(z: np.ndarray, plan: Plan, run: Run) -> tuple[Smoothed, np.ndarray, np.ndarray]:
    """Hide some columns of z (rows, cols, k), fill them, and return estimate, share and where."""
    rows, cols, k = z.shape
    where = np.zeros((rows, cols), dtype=bool)
    where[:, HIDDEN // 2 :: HIDDEN] = True
    share = np.where(where, 0.0, 1.0)
    number = int(where.sum())
    all_of_it = Many(np.arange(number), np.broadcast_to(np.eye(k), (number, k, k)))
    box = Box(0, rows, 0, cols)
    holes = Holes(where, [all_of_it], share)
    data, _ = filled_near(np.where(where[..., None], 0.0, z), holes, told_around(~where[..., None]),
                          np.full(k, np.inf), box, filling_boxes(plan, box), plan, run)  # fmt: skip
    return second_round(data, box, box, plan, run), share, where
