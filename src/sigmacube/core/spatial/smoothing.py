"""All windows of a part of the scene, averaged: two rounds over all sizes of windows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np

from sigmacube.core.spatial.axes import Axes
from sigmacube.core.spatial.fit import (
    Fits,
    cut,
    first_shrinkage,
    fit_windows,
    second_shrinkage,
    smooth,
    weights,
)
from sigmacube.core.spatial.geometry import Box, Windows, added_up, covering_box
from sigmacube.core.spatial.lost import contrast

__all__ = ["Plan", "Run", "Smoothed", "both_rounds", "first_round", "second_round"]

Run = Callable[..., list[Any]]
"""``run(function, items)``, a map that may run in parallel and keeps the order."""

# Elements of all windows of a chunk, about: they should stay in a processor's cache. Chunks are
# anchored to the scene, since they set the order in which windows are added up.
CHUNK = 500_000
# Windows of a chunk at least, however large they are.
FEWEST = 12


@dataclass(frozen=True, eq=False)
class Plan:
    """What windows need to know: their grids, the noise at each frequency, the noise edge."""

    sizes: tuple[Windows, ...]
    noise_power: tuple[np.ndarray, ...]
    edges: np.ndarray


@dataclass(frozen=True, eq=False)
class Smoothed:
    """The average of windows over a box."""

    estimate: np.ndarray
    """(rows, cols, k)."""
    leverage: np.ndarray
    """(rows, cols) weighted mean of 1/n + Σ_i U_ui²: how far a pixel made its own directions."""
    claim: np.ndarray
    """(rows, cols) weighted mean of what windows claim as their squared error."""
    fits: list[Fits]
    """All windows over the box, in the order of adding up."""
    weights: list[np.ndarray]
    """Their raw weights (windows, rows, cols)."""

    @cached_property
    def contrast(self) -> np.ndarray:
        """(rows, cols) how much a pixel differs from its neighbours."""
        return contrast(self.estimate)


@dataclass(frozen=True)
class _Chunk:
    size: int
    windows: Box
    anchor: tuple[int, int]
    """First row and column of windows that it holds in the whole scene."""

    def near(self, nearby: Nearby | None) -> Axes | None:
        """Return the axes of its windows in nearby data, which have been looked at there."""
        if nearby is None:
            return None
        box, axes = nearby[self.size, self.anchor]
        if box == self.windows:
            return axes
        number = np.arange(len(axes.rank)).reshape(box.shape)
        mine = number[self.windows.within(box)].ravel()
        return Axes(axes.vectors[mine], axes.rank[mine])


Nearby = dict[tuple[int, tuple[int, int]], tuple[Box, Axes]]
"""Principal axes by chunk, with its windows: what those of almost the same data start from."""


def _chunks(plan: Plan, core: Box, k: int) -> list[_Chunk]:
    """Return the windows that cover a box, a few rows and columns of windows at a time."""
    chunks = []
    for size, windows in enumerate(plan.sizes):
        need = windows.over(core)
        most = max(CHUNK // (windows.rows.size * windows.cols.size * k), FEWEST)
        cols = min(len(windows.cols), most)
        rows = max(most // cols, 1)
        chunks += [
            _Chunk(size, Box(max(top, need.top), min(top + rows, need.bottom),
                             max(left, need.left), min(left + cols, need.right)), (top, left))
            for top in range(need.top // rows * rows, need.bottom, rows)
            for left in range(need.left // cols * cols, need.right, cols)
        ]  # fmt: skip
    return chunks


def _fit_chunk(
    z: np.ndarray, box: Box, plan: Plan, keep: bool, item: tuple[_Chunk, Axes | None]
) -> tuple[list[Fits], Axes | None]:
    """Return the fits of a chunk of windows, and their axes if they are to be kept."""
    chunk, near = item
    windows = plan.sizes[chunk.size]
    part = chunk.windows
    i, j = np.mgrid[part.top : part.bottom, part.left : part.right]
    index = np.stack([i.ravel(), j.ravel()], axis=1)
    corner = np.stack([windows.rows.starts[index[:, 0]], windows.cols.starts[index[:, 1]]], axis=1)
    at, edge = corner - (box.top, box.left), float(plan.edges[chunk.size])
    power = plan.noise_power[chunk.size]
    fits, axes = fit_windows(chunk.size, index, corner, z, at, edge, power, near)
    return fits, axes if keep else None


def _average_chunk(
    pilot: np.ndarray | None, box: Box, plan: Plan, fits: list[Fits]
) -> tuple[Box, np.ndarray, list[np.ndarray]]:
    """Return the box of a chunk, Σω(x̂, 1, a, t) on it, and the weights ω of its windows."""
    size = fits[0].size
    windows, noise = plan.sizes[size], plan.noise_power[size]
    low, high = (
        end([end(f.index, axis=0) for f in fits], axis=0).tolist() for end in (np.min, np.max)
    )
    part = Box(low[0], high[0] + 1, low[1], high[1] + 1)
    span = windows.span(part)
    k, dtype = fits[0].mean.shape[1], fits[0].mean.dtype
    values = np.empty((*part.shape, *windows.side, k + 3), dtype=dtype)
    coverage = windows.coverage(span).astype(dtype)[..., None]
    kept = []
    for group in fits:
        h = first_shrinkage(group) if pilot is None else second_shrinkage(
            group, cut(pilot, group.corner - (box.top, box.left), windows.side), noise)  # fmt: skip
        omega, claim = weights(group, h, noise)
        omega /= cut(coverage, group.corner - (span.top, span.left), windows.side)[..., 0]
        here = smooth(group, h, noise, omega, 3)
        here[..., k] = omega
        np.multiply(omega, group.leverage, out=here[..., k + 1])
        np.multiply(omega, claim, out=here[..., k + 2])
        values[tuple((group.index - low).T)] = here
        kept.append(omega)
    return span, added_up(windows, part, values), kept


def _averaged(
    parts: list[tuple[Box, np.ndarray, list[np.ndarray]]], core: Box
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the mean of windows (rows, cols, k), of their leverage and claim (rows, cols)."""
    total = np.zeros((*core.shape, parts[0][1].shape[2]), dtype=parts[0][1].dtype)
    for span, part, _ in parts:
        top, bottom = max(span.top, core.top), min(span.bottom, core.bottom)
        left, right = max(span.left, core.left), min(span.right, core.right)
        common = Box(top, bottom, left, right)
        total[common.within(core)] += part[common.within(span)]
    mean = total / total[..., -3, None]
    return np.ascontiguousarray(mean[..., :-3]), mean[..., -2], mean[..., -1]


def first_round(
    z: np.ndarray, box: Box, core: Box, plan: Plan, run: Run, near: Nearby | None = None
) -> tuple[np.ndarray, Nearby]:
    """Return the first estimate (rows, cols, k) on ``core``, and the axes of its windows.

    Parameters
    ----------
    z
        (rows, cols, k) data on ``box``, which holds all windows that cover ``core``.
    near
        Axes of windows of almost the same data, of all that cover ``core``, to start from.
    """
    pilot, _, axes = _first(z, box, core, plan, run, near, keep=near is None)
    return pilot, axes if near is None else near


def _first(
    z: np.ndarray,
    box: Box,
    core: Box,
    plan: Plan,
    run: Run,
    near: Nearby | None = None,
    keep: bool = False,
) -> tuple[np.ndarray, list[list[Fits]], Nearby]:
    """Return the first round and the axes of its windows, from those of nearby data if given."""
    chunks = _chunks(plan, core, z.shape[2])
    items = [(chunk, chunk.near(near)) for chunk in chunks]
    found = run(partial(_fit_chunk, z, box, plan, keep), items)
    fits = [groups for groups, _ in found]
    pilot = _averaged(run(partial(_average_chunk, None, box, plan), fits), core)[0]
    axes = {
        (chunk.size, chunk.anchor): (chunk.windows, own)
        for chunk, (_, own) in zip(chunks, found, strict=True)
        if own is not None
    }
    return pilot, fits, axes


def second_round(
    z: np.ndarray, box: Box, core: Box, plan: Plan, run: Run, near: Nearby | None = None
) -> Smoothed:
    """Return the final estimate on ``core``: shrinkage by the first estimate's coefficients.

    ``z`` on ``box`` must hold all windows over all windows over ``core``; ``near`` are their axes
    in almost the same data, if these are known.
    """
    inner = covering_box(plan.sizes, core)
    pilot, fits, _ = _first(z, box, inner, plan, run, near)
    return _second(pilot, fits, inner, core, plan, run)


def both_rounds(
    z: np.ndarray, nearby: np.ndarray, box: Box, plan: Plan, run: Run
) -> tuple[Smoothed, Smoothed]:
    """Return the final estimates of a whole scene, and of data that differ a little from it.

    The latter's windows start from the principal axes of the former's.
    """
    pilot, fits, axes = _first(z, box, box, plan, run, keep=True)
    smoothed = _second(pilot, fits, box, box, plan, run)
    pilot, fits, _ = _first(nearby, box, box, plan, run, axes)
    return smoothed, _second(pilot, fits, box, box, plan, run)


def _second(
    pilot: np.ndarray, fits: list[list[Fits]], inner: Box, core: Box, plan: Plan, run: Run
) -> Smoothed:
    """Return the final estimate from the first one, on ``inner``, and its windows."""
    need = [windows.over(core) for windows in plan.sizes]
    chosen = [group for group in (_within(groups, need) for groups in fits) if group]
    parts = run(partial(_average_chunk, pilot, inner, plan), chosen)
    return Smoothed(
        *_averaged(parts, core),
        [group for groups in chosen for group in groups],
        [omega for _, _, kept in parts for omega in kept],
    )


def _within(groups: list[Fits], need: list[Box]) -> list[Fits]:
    """Return the windows of a chunk that cover the box in question."""
    return list(_chosen(groups, need))


def _chosen(groups: list[Fits], need: list[Box]) -> Iterator[Fits]:
    for group in groups:
        box = need[group.size]
        i, j = group.index.T
        inside = (i >= box.top) & (i < box.bottom) & (j >= box.left) & (j < box.right)
        if inside.any():
            yield group.part(inside)
