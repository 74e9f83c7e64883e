"""Power of the noise at each spatial frequency, from directions that hold no signal."""

from __future__ import annotations

from functools import partial

import numpy as np
from scipy.linalg import eigh

from sigmacube.core.parallel import in_turn
from sigmacube.core.rank import noise_edge
from sigmacube.core.spatial.geometry import Block, Box, Windows
from sigmacube.core.spatial.smoothing import Run
from sigmacube.core.spatial.subspace import blocks, tiles
from sigmacube.core.spatial.transform import forward

__all__ = ["coloured_edge", "colour", "noise_power"]

MOST_BLOCKS = 12
MOST_DIRECTIONS = 48
FEWEST_DIRECTIONS = 4
# The scatter of N(f) in units of its sampling error, above which noise is not taken for white.
WHITE = 1.35
# The correlation of neighbouring pixels below which it is taken for signal too faint to be seen.
FAINT = 0.075
# The least power of noise at any frequency, relative to the mean.
LEAST_POWER = 1e-3
# Draws of noise that the edge of coloured noise is taken from.
DRAWS = 8


def noise_power(
    block: Block,
    shape: tuple[int, int, int],
    signal: np.ndarray,
    sizes: tuple[Windows, ...],
    run: Run,
) -> tuple[np.ndarray, ...]:
    """Return N(f) (rows, cols) for every size of window, mean one.

    What lies outside the directions of the signal (P, k) is noise; the mean power of cosine
    coefficients over tiles and 48 directions at most is N(f). They are drawn at random: the weakest
    of the scene are the weakest because little of their noise happens to lie at the frequencies
    that have most of it. Where the scatter of N is no more than sampling gives, or neighbours are
    hardly correlated, noise is white and N is one: what little they share is signal.
    """
    flat = tuple(np.ones(windows.side) for windows in sizes)
    free = shape[2] - signal.shape[1]
    if free < FEWEST_DIRECTIONS or min(shape[:2]) < 2:
        return flat
    drawn = np.random.default_rng(3).standard_normal((shape[2], min(free, MOST_DIRECTIONS)))
    weak = np.linalg.qr(drawn - signal @ (signal.T @ drawn))[0]
    every = blocks(shape[:2])
    chosen = every[:: max(-(-len(every) // MOST_BLOCKS), 1)]
    sides = [windows.side for windows in sizes]
    sums = run(partial(_power_in, block, weak, sides), chosen)
    powers = []
    for i, ones in enumerate(flat):
        number = sum(part[i][1] for part in sums)
        power = np.sum([part[i][0] for part in sums], axis=0)
        power = power / power.mean() if power.mean() > 0 else ones
        scatter = np.mean((power - 1) ** 2) * number / 2
        # No frequency is free of noise, though a small or flat scene may show none at some.
        power = np.maximum(power, LEAST_POWER)
        powers.append(power if number > 0 and scatter > WHITE else ones)
    return tuple(powers) if neighbour_correlation(powers[0]) > FAINT else flat


def neighbour_correlation(power: np.ndarray) -> float:
    """Return the correlation of neighbouring pixels of noise of some power over frequencies.

    Examples
    --------
    >>> neighbour_correlation(np.ones((8, 6)))
    0.0
    """
    lags = [
        np.mean(np.moveaxis(power, axis, 0).T * np.cos(np.pi * np.arange(n) / n))
        for axis, n in enumerate(power.shape)
    ]
    # A constant has cosines of mean 1/n; noise without correlation shows none.
    lags = [lag - 1 / n for lag, n in zip(lags, power.shape, strict=True)]
    return round(float(np.mean(lags) / power.mean()), 12) + 0.0


def _power_in(
    block: Block, weak: np.ndarray, sides: list[tuple[int, int]], box: Box
) -> list[tuple[np.ndarray, int]]:
    """Return the summed power (rows, cols) of a block's tiles, and how many images it holds.

    Tiles with a missing element are left out.
    """
    y, kept = block(*box.slices)
    image = (y @ weak).astype(np.float32)
    whole = None if kept is None else np.asarray(kept.all(axis=2), dtype=np.float32)[..., None]
    result = []
    for r, c in sides:
        part = np.zeros((0, r * c, weak.shape[1]), dtype=np.float32)
        if image.shape[0] >= r and image.shape[1] >= c:
            part = tiles(image, (r, c))
            if whole is not None:
                part = part[tiles(whole, (r, c)).all(axis=(1, 2))]
        images = part.transpose(0, 2, 1).reshape(len(part), weak.shape[1], r, c)
        power = np.square(forward(np.ascontiguousarray(images))).sum(axis=(0, 1), dtype=np.float64)
        result.append((power, images.shape[0] * images.shape[1]))
    return result


def colour(power: np.ndarray) -> float:
    """Return κ = mean N² / (mean N)², 1 for white noise."""
    return float(np.mean(power**2) / np.mean(power) ** 2)


def coloured_edge(power: np.ndarray, k: int, run: Run = in_turn) -> float:
    """Return the largest singular value to expect of noise in a window, n pixels by k directions.

    White noise: Tracy–Widom. Otherwise √N(f) times white noise is drawn, with a fixed seed, and the
    edge rises as the largest singular value does.
    """
    n = power.size
    edge = noise_edge(max(n, 2), k)
    if np.all(power == 1):
        return edge
    white = np.random.default_rng(0).standard_normal((DRAWS, n, k), dtype=np.float32)
    root = np.sqrt(power).reshape(-1, 1).astype(np.float32)
    top, raised = np.sqrt(run(partial(_largest, root), white)).mean(axis=0)
    return float(edge * raised / top)


def _largest(root: np.ndarray, draw: np.ndarray) -> tuple[float, float]:
    """Return the largest squared singular values of a draw, and of it times ``root`` (n, 1).

    By the smaller Gram matrix.
    """
    found = []
    for image in (draw, draw * root):
        gram = image @ image.T if len(image) < image.shape[1] else image.T @ image
        last = len(gram) - 1
        found.append(float(eigh(gram, eigvals_only=True, subset_by_index=(last, last))[0]))
    return found[0], found[1]
