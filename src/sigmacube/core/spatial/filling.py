"""Rounds of filling missing elements, and what σ owes to them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from sigmacube.core.spatial.geometry import Box, covering_box
from sigmacube.core.spatial.missing import Holes, start
from sigmacube.core.spatial.smoothing import Plan, Run, Smoothed, first_round, second_round
from sigmacube.core.spatial.views import View, shares

__all__ = ["band_growth", "filled", "filling_boxes", "hidden_lines", "less_seen"]

FILLINGS = 3
HIDDEN = 12
# Pixels of which less was seen are left to their surroundings; what else limits a direction.
FEW = 0.2
DELTA = 0.05


def filling_boxes(plan: Plan, need: Box) -> list[Box]:
    """Return the boxes that z is needed on, last round first, for a result on ``need``."""
    boxes = [need]
    for _ in range(FILLINGS):
        boxes.append(covering_box(plan.sizes, boxes[-1]))
    return boxes


def filled(
    seen: np.ndarray, holes: Holes, outer: Box, boxes: list[Box], plan: Plan, run: Run
) -> np.ndarray:
    """Return z (rows, cols, k) on the first box, from BᵀΩy on ``outer``."""
    z = np.ascontiguousarray(start(seen, holes)[boxes[-1].within(outer)])
    for box, inner in zip(boxes[:0:-1], boxes[-2::-1], strict=True):
        pilot, _ = first_round(z, box, inner, plan, run)
        part = holes.part(inner.within(outer))
        z = part.fill(np.ascontiguousarray(seen[inner.within(outer)]), pilot)
    return z


def less_seen(views: list[View], box: Box, share: np.ndarray, factor: float) -> list[View]:
    """Return the views with larger weights where little was observed.

    With α the share of the pixel that was observed, a claimed error q becomes q / (1 − (1 − α) q),
    times factor^((1 − α)²), and all errors of a window grow by one over its mean share.
    """
    return [_less(view, box, share, factor) for view in views]


def _less(view: View, box: Box, share: np.ndarray, factor: float) -> View:
    r, c = view.side
    at = view.corner - (box.top, box.left)
    windows = np.lib.stride_tricks.sliding_window_view(share, (r, c))[at[:, 0], at[:, 1]]
    kept, _ = shares(view)
    less = kept / np.maximum(1 - (1 - windows)[:, None] * kept, 0.15)
    growth = less.sum(axis=1) / np.maximum(kept.sum(axis=1), 1e-9) * factor ** (1 - windows) ** 2
    growth = np.maximum(growth, 1) / np.maximum(windows.mean(axis=(1, 2), keepdims=True), 0.1)
    return replace(view, weight=(view.weight * growth).astype(np.float32))


def band_growth(holes: Holes, basis: np.ndarray) -> np.ndarray:
    """Return (row, col, P) how much larger the variance of a band is where others miss as well.

    b_v (A + δI)⁻¹ b_vᵀ (1 + δ) / c_v: bands that were kept do not see all directions equally. One
    for pixels without holes and for those that were not seen at all.
    """
    growth = np.ones((*holes.where.shape, len(basis)), dtype=np.float32)
    part = holes.share[holes.where] > FEW
    unseen = holes.unseen[part]
    share = np.maximum(np.sum(basis**2, axis=1), 1e-12)
    eye = np.eye(basis.shape[1])
    rows = np.full((len(holes.unseen), len(basis)), 1.0)
    for start_ in range(0, len(unseen), 256):
        piece = np.linalg.inv((1 + DELTA) * eye - unseen[start_ : start_ + 256])
        along = np.einsum("pvk,vk->pv", np.matmul(basis, piece), basis)
        rows[np.flatnonzero(part)[start_ : start_ + 256]] = along * (1 + DELTA) / share
    growth[holes.where] = rows
    return growth


def hidden_lines(z: np.ndarray, plan: Plan, run: Run) -> tuple[Smoothed, np.ndarray, np.ndarray]:
    """Hide some columns of z (rows, cols, k), fill them, and return estimate, share and where."""
    rows, cols, k = z.shape
    where = np.zeros((rows, cols), dtype=bool)
    where[:, HIDDEN // 2 :: HIDDEN] = True
    share = np.where(where, 0.0, 1.0)
    unseen = np.broadcast_to(np.eye(k), (int(where.sum()), k, k))
    box = Box(0, rows, 0, cols)
    holes = Holes(where, unseen, share)
    data = filled(np.where(where[..., None], 0.0, z), holes, box, filling_boxes(plan, box), plan,
                  run)  # fmt: skip
    return second_round(data, box, box, plan, run), share, where
