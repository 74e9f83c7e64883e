"""One look at the whole scene, by blocks and patches anchored to it: what every region needs."""

from __future__ import annotations

import numpy as np

from sigmacube.core.spatial.geometry import Block, Box, window_sizes
from sigmacube.core.spatial.missing import imputed
from sigmacube.core.spatial.model import SpatialModel
from sigmacube.core.spatial.noise_in_space import colour, coloured_edge, noise_power
from sigmacube.core.spatial.risk import Trial, factors, gains, hole_factor, ordinary, tables, try_patch
from sigmacube.core.spatial.smoothing import Plan, Run
from sigmacube.core.spatial.subspace import gram, principal, rare, strengths, strong

__all__ = ["survey"]

PATCH = 72
PATCHES = 4
GOLDEN = 0.6180339887498949


def survey(
    block: Block,
    shape: tuple[int, int, int],
    *,
    windows: tuple[tuple[int, int], ...] = ((20, 5), (8, 2)),
    run: Run,
    white_in_space: bool = False,
) -> SpatialModel:
    """Learn what the whole scene knows.

    Parameters
    ----------
    block
        Whitened values of any part of the scene, see `Block`.
    shape
        Rows, columns and bands of the scene.
    windows
        (size, step) of the windows, largest first.
    run
        ``run(function, items)``, a map that may run in parallel and keeps the order.
    white_in_space
        True where the noise is known to be independent between pixels; else N(f) is estimated.

    Returns
    -------
    SpatialModel
    """
    sizes = window_sizes(shape[:2], windows)
    total, count, share = gram(block, shape, run)
    missing = share < 1
    if missing:
        block, total, directions = _completed(block, shape, total, count, run)
    powers = tuple(np.ones(w.side) for w in sizes)
    if not white_in_space:
        powers = noise_power(block, shape, total, count, sizes, run)
    tint = colour(powers[0])
    basis = principal(total, count, tint)
    rise = coloured_edge(powers[0], shape[2]) / coloured_edge(np.ones_like(powers[0]), shape[2])
    basis = rare(block, shape, basis, run, rise)
    basis, strength, noise = strengths(basis, total, count)
    if missing:
        seen = np.sum((directions.T @ basis) ** 2, axis=0)
        noise = noise * (1 + (1 / max(share, 0.5) - 1) * seen)
    edges = np.array([coloured_edge(power, basis.shape[1]) for power in powers])
    trials = _trials(block, shape, windows, basis, powers, edges, noise, run)
    risk = tuple(tables(trials, noise, size) for size in range(len(sizes)))
    gain = gains(trials, risk, noise, run)
    bounds, factor = factors(trials, risk, gain, noise)
    hole = hole_factor(trials[0], risk, bounds, factor, gain, noise, run) if missing else 1.0
    return SpatialModel(
        shape=shape,
        windows=windows,
        basis=basis,
        strength=strength * powers[0].flat[0],
        noise_power=powers,
        edges=edges,
        risk=risk,
        gain=gain,
        spread_bounds=bounds,
        spread_factor=factor,
        residual_scale=ordinary(trials, risk, gain, factor, bounds),
        missing=missing,
        hole_factor=hole,
    )


def _completed(
    block: Block, shape: tuple[int, int, int], total: np.ndarray, count: float, run: Run
) -> tuple[Block, np.ndarray, np.ndarray]:
    """Return the scene with missing elements imputed, the sum of y yᵀ of it, and strong directions.

    Sums over pairs of bands that were both seen scatter by the signal, not by the noise: twice they
    are replaced by those of imputed data.
    """
    directions = strong(total, count)
    for _ in range(2):
        total, count, _ = gram(imputed(block, directions), shape, run)
        directions = strong(total, count)
    return imputed(block, directions), total, directions


def patches(shape: tuple[int, int]) -> list[Box]:
    """Return the patches of at most 72 × 72 pixels that errors are measured on.

    Examples
    --------
    >>> patches((50, 90))
    [Box(top=0, bottom=50, left=0, right=72), Box(top=0, bottom=50, left=18, right=90)]
    """
    rows, cols = (min(PATCH, n) for n in shape)
    wanted = min(PATCHES, -(-shape[0] // PATCH) * -(-shape[1] // PATCH))
    boxes = []
    for i in range(wanted):
        down = 0.0 if wanted == 1 else i / (wanted - 1)
        across = down if shape[0] <= PATCH else (i * GOLDEN + 0.2 * (wanted > 1)) % 1.0
        top, left = round(down * (shape[0] - rows)), round(across * (shape[1] - cols))
        boxes.append(Box(top, top + rows, left, left + cols))
    return boxes


def _trials(
    block: Block,
    shape: tuple[int, int, int],
    windows: tuple[tuple[int, int], ...],
    basis: np.ndarray,
    powers: tuple[np.ndarray, ...],
    edges: np.ndarray,
    noise: np.ndarray,
    run: Run,
) -> list[Trial]:
    """Run the estimator on every patch as on a scene of its own."""
    trials = []
    for number, box in enumerate(patches(shape[:2])):
        y, _ = block(*box.slices)
        plan = Plan(window_sizes(box.shape, windows), powers, edges)
        rng = np.random.default_rng([7, number])
        trials.append(try_patch(y, basis, plan, noise, rng, run))
    return trials
