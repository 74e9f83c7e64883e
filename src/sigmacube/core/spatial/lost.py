"""Lost signal, placed where it was lost: by how much a pixel differs from its neighbours.

What Stein's identity finds beyond noise is signal that no window sees: faint texture has lost some
of it everywhere, sharp scenes under much noise have lost it at borders. Classes of pixels that are
told by the noisy data select on their noise, and the identity with them. The noise of directions of
B is independent: where pixels differ along one half of them says where errors along the other half
are, and nothing is selected.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

__all__ = ["contrast", "placed"]

# Shares of pixels that bound the classes of contrast: finer where it is large.
BOUNDS = np.array([0.25, 0.5, 0.75, 0.85, 0.92, 0.96, 0.985])
# Pixels of a class at least, and the standard errors that differences of classes must exceed.
FEWEST, SURELY = 100, 2.0


def contrast(estimate: np.ndarray) -> np.ndarray:
    """Return (rows, cols) mean squared distance of pixels (rows, cols, k) from their neighbours."""
    rows, cols = estimate.shape[:2]
    total = np.zeros((rows, cols), dtype=np.float32)
    if min(rows, cols) < 2:
        return total
    single = estimate.astype(np.float32, copy=False)
    padded = np.pad(single, ((1, 1), (1, 1), (0, 0)), mode="reflect")
    for i, j in ((0, 0), (0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1), (2, 2)):
        total += np.square(padded[i : i + rows, j : j + cols] - single).sum(axis=2)
    return total / np.float32(8)


def placed(
    estimates: Sequence[np.ndarray],
    errors: Sequence[np.ndarray],
    fitted: Sequence[np.ndarray],
    outside: Sequence[np.ndarray],
    share: float,
    mean: float,
    scatter: float,
    unsure: float,
) -> tuple[np.ndarray, np.ndarray]:
    """Return bounds of classes of contrast, and the lost signal (classes,) of their pixels.

    Parameters
    ----------
    estimates, errors
        (rows, cols, k) of every patch, and squared errors without bias.
    fitted
        (rows, cols) squared error of every pixel beside lost signal.
    outside
        (rows, cols) square of the data outside of B: how the noise differs between classes, which
        the identity would take for error. It is taken off, and what it was is doubted.
    share
        How much of that the even directions have.
    mean
        The lost signal of a pixel on average.
    scatter
        Variance of the squared error of a pixel.
    unsure
        Standard error of the noise of a class, where that of the scene is not sure of its pixels.
    """
    every = np.concatenate([contrast(x).ravel() for x in estimates])
    shares = BOUNDS[BOUNDS * (1 - BOUNDS) * every.size > FEWEST]
    k = estimates[0].shape[2]
    if k < 2 or not len(shares):
        return np.zeros(0), np.array([mean])
    total = np.concatenate([part.ravel() for part in fitted])
    beyond = np.concatenate([part.ravel() for part in outside])
    beyond = k * (beyond / max(float(beyond.mean()), 1e-12) - 1)
    found, level, number = np.zeros((3, len(shares) + 1))
    for first in (0, 1):
        own = np.concatenate([contrast(x[..., first::2]).ravel() for x in estimates])
        other = np.concatenate([e[..., 1 - first :: 2].sum(axis=2).ravel() for e in errors])
        other -= total * (1 - share if first == 0 else share)
        label = np.searchsorted(np.quantile(own, shares), own)
        number = np.maximum(np.bincount(label, minlength=len(found)), 1)
        found += np.bincount(label, other, minlength=len(found)) / number
        level += np.bincount(label, beyond, minlength=len(found)) / number / 2
    found -= level
    found += mean - np.average(found, weights=number)  # in all it is known better than here
    rising = _rising(found, number)
    distance = float(np.sum(np.square(rising - mean) / (scatter / number + unsure**2 + level**2)))
    lost = mean + max(1 - SURELY**2 / max(distance, 1e-30), 0.0) * (rising - mean)
    return np.quantile(every, shares), np.maximum(lost, 0.0)


def _rising(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the nearest values that do not fall (pools of adjacent violators).

    Examples
    --------
    >>> _rising(np.array([1.0, 3.0, 2.0, 5.0]), np.ones(4))
    array([1. , 2.5, 2.5, 5. ])
    """
    pools: list[list[float]] = []
    for value, weight in zip(values.tolist(), weights.tolist(), strict=True):
        pools.append([value, weight, 1])
        while len(pools) > 1 and pools[-2][0] >= pools[-1][0]:
            last, before = pools.pop(), pools.pop()
            both = last[1] + before[1]
            mean = (last[0] * last[1] + before[0] * before[1]) / both
            pools.append([mean, both, last[2] + before[2]])
    return np.concatenate([np.full(int(count), value) for value, _, count in pools])
