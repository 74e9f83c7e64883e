"""Missing elements: filled from the rest of the pixel and its surroundings, in a few rounds.

With Ω the kept bands of a pixel, A = BᵀΩB says how much of each direction was observed. The data of
the windows are z = BᵀΩy + (I − A) z̃, with z̃ the best guess so far (expectation–maximisation).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.ndimage import uniform_filter

from sigmacube.core.spatial.geometry import Block

__all__ = ["HALO", "Holes", "find_holes", "imputed", "start"]

# Sides of the surroundings that a first guess is taken from, the smallest first.
AROUND = (5, 21)
HALO = AROUND[-1] // 2
# Weight of the surroundings, and of the estimate so far, beside the pixel's own kept bands.
RIDGE = 0.003
TRUST = 0.3


@dataclass(frozen=True, eq=False)
class Holes:
    """Pixels with missing elements in a part of the scene."""

    where: np.ndarray
    """(row, col) bool."""
    unseen: np.ndarray
    """(pixels, k, k) I − A of those pixels."""
    share: np.ndarray
    """(row, col) mean of A's diagonal: how much of a pixel was observed."""

    def fill(self, seen: np.ndarray, estimate: np.ndarray) -> np.ndarray:
        """Return z = BᵀΩy + (I − A) z̃ (row, col, k) from BᵀΩy and the estimate ẑ so far.

        z̃ = (A + δI)⁻¹ (BᵀΩy + δẑ): what the kept bands say themselves counts as well.
        """
        out = seen.copy()
        best = self.solve(seen[self.where], estimate[self.where].astype(np.float64), TRUST)
        out[self.where] += np.matmul(self.unseen, best[:, :, None])[:, :, 0]
        return out

    def solve(self, seen: np.ndarray, guess: np.ndarray, trust: float) -> np.ndarray:
        """Return (A + δI)⁻¹ (BᵀΩy + δ guess) (pixels, k)."""
        left = (1 + trust) * np.eye(seen.shape[1]) - self.unseen
        return np.linalg.solve(left, (seen + trust * guess)[:, :, None])[:, :, 0]

    def part(self, inside: tuple[slice, slice]) -> Holes:
        """Return the holes of some rows and columns."""
        number = np.full(self.where.shape, -1)
        number[self.where] = np.arange(len(self.unseen))
        mine = number[inside]
        return Holes(self.where[inside], self.unseen[mine[mine >= 0]], self.share[inside])


def find_holes(kept: np.ndarray, basis: np.ndarray) -> Holes:
    """Return which pixels miss elements, and what part of their directions is unseen."""
    where = ~kept.all(axis=2)
    gone = (~kept[where]).astype(np.float64)
    k = basis.shape[1]
    pairs = (basis[:, :, None] * basis[:, None, :]).reshape(len(basis), k * k)
    unseen = (gone @ pairs).reshape(-1, k, k)
    share = np.ones(where.shape)
    share[where] = np.clip(1 - np.trace(unseen, axis1=1, axis2=2) / k, 0, 1)
    return Holes(np.asarray(where), unseen, share)


def start(seen: np.ndarray, holes: Holes) -> np.ndarray:
    """Return a first z (row, col, k): what the kept bands say, the rest from the surroundings.

    Solves (A + δI) z = BᵀΩy + δ z̄ where elements are missing, z̄ the mean of pixels nearby.
    """
    good = (holes.share > 0.5).astype(np.float64)
    scaled = seen * (good / np.maximum(holes.share, 0.5))[..., None]
    around = np.zeros_like(seen)
    found = np.zeros(good.shape, dtype=bool)
    for side in AROUND:
        weight = uniform_filter(good, side, mode="constant")
        mean = uniform_filter(scaled, (side, side, 1), mode="constant")
        fresh = (weight > 1e-9) & ~found
        around[fresh] = mean[fresh] / weight[fresh][:, None]
        found |= fresh
    out = seen.copy()
    out[holes.where] = holes.solve(seen[holes.where], around[holes.where], RIDGE)
    return out


def imputed(block: Block, strong: np.ndarray) -> Block:
    """Return a block whose missing elements are a first guess plus noise, for the survey.

    The guess is made by the strong directions (P, j) of the scene; inside them it carries the noise
    of the kept bands, so noise is drawn outside of them only, and everywhere for pixels that were
    hardly seen. The draw depends on where the block lies, and on nothing else.
    """

    def complete(rows: slice, cols: slice) -> tuple[np.ndarray, None]:
        y, kept = block(rows, cols)
        if kept is None or kept.all():
            return y, None
        holes = find_holes(kept, strong)
        z = start(np.where(kept, y, 0.0) @ strong, holes)
        rng = np.random.default_rng([11, rows.start, cols.start])
        noise = rng.standard_normal(y.shape)
        within = (noise @ strong) * (holes.share > 0.5)[..., None]
        return np.where(kept, y, (z - within) @ strong.T + noise), None

    return complete
