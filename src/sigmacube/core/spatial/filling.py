"""Rounds of filling missing elements, and what σ owes to them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from sigmacube.core.spatial.geometry import Box, covering_box
from sigmacube.core.spatial.missing import Holes, start
from sigmacube.core.spatial.smoothing import Plan, Run, Smoothed, first_round, second_round
from sigmacube.core.spatial.views import View, shares

__all__ = ["filled", "filling_boxes", "hidden_lines", "less_seen"]

FILLINGS = 3
HIDDEN = 12


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
