"""Pixels that tell most about a scene: the best and the worst known, and one of every kind."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from sigmacube.core.validity import finite_mean
from sigmacube.show import plots

if TYPE_CHECKING:
    from sigmacube.result import DenoisedCube

_CLASSES = 4


class Pixel(NamedTuple):
    """A pixel whose spectrum is shown, and why."""

    row: int
    col: int
    why: str


def telling_pixels(result: DenoisedCube, step: int) -> Iterator[Pixel]:
    """Yield the pixels of lowest and highest sigma, and those nearest to class centres."""
    values = result.estimate
    usable = plots.usable_bands(values, None)
    whole = np.isfinite(values[:, :, usable]).all(axis=2) & usable.any()
    if not whole.any():
        return
    taken: list[tuple[int, int]] = []
    if result.std is not None:
        level = np.sqrt(finite_mean(np.square(result.std, dtype=np.float64), axis=2))
        level = np.where(whole, level, np.nan)
        inner = _inner(level)
        for why, at in (("lowest σ", np.nanargmin(inner)), ("highest σ", np.nanargmax(inner))):
            place = tuple(int(i) for i in np.unravel_index(at, inner.shape))
            taken.append((place[0], place[1]))
            yield Pixel(place[0] * step, place[1] * step, why)
    for number, (row, col) in enumerate(_class_centres(values[:, :, usable], whole), start=1):
        if (row, col) not in taken:
            taken.append((row, col))
            yield Pixel(row * step, col * step, f"class {number}")


def _inner(level: np.ndarray) -> np.ndarray:
    """Return the map without its margin, where sigma is large for a dull reason: fewer windows."""
    margin = min(10, *((side - 1) // 3 for side in level.shape))
    inner = np.full(level.shape, np.nan)
    core = (slice(margin, level.shape[0] - margin), slice(margin, level.shape[1] - margin))
    inner[core] = level[core]
    return inner if np.isfinite(inner).any() else level


def _class_centres(values: np.ndarray, whole: np.ndarray) -> list[tuple[int, int]]:
    """Return the pixels nearest to the centres of groups of similar spectra, largest group first.

    k-means with a fixed seed on a sample: enough to show what the scene is made of, no more.
    """
    from scipy.cluster.vq import kmeans2, vq

    places = np.argwhere(whole)
    places = places[:: max(1, len(places) // 20_000)]
    spectra = values[places[:, 0], places[:, 1]].astype(np.float64)
    scale = spectra.std()
    count = min(_CLASSES, len(spectra))
    if scale == 0 or count < 2:
        return [(int(places[0, 0]), int(places[0, 1]))]
    centres, labels = kmeans2(spectra / scale, count, minit="++", rng=np.random.default_rng(0))
    order = np.argsort(-np.bincount(labels, minlength=count), kind="stable")
    found = []
    for group in order:
        members = np.flatnonzero(labels == group)
        if members.size:
            _, distance = vq(spectra[members] / scale, centres[group : group + 1])
            row, col = places[members[np.argmin(distance)]]
            found.append((int(row), int(col)))
    return found
