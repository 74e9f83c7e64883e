"""What the iterative solvers share: a low-rank matrix, kept by its factors and moved by steps.

An influence function ψ bounds what a residual may do. L is low-rank and solves
"the low-rank part of L + ψ(Y − L) is L"; the iteration is L ← low-rank part of L + ψ(Y − L)/q with
q the mean slope of ψ, the Newton step of the average element. With ψ(r) = r it is least squares on
the values that are there.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from sigmacube.core.rank import is_below, leading_eigenpairs, noise_edge

Influence = Callable[[np.ndarray], tuple[np.ndarray, float]]
"""Takes residuals (zero where missing); returns ψ of them and its mean slope."""


# Largest value, in units of the noise, that single precision holds to 1e-4 of the noise.
SINGLE_PRECISION_RANGE = 1500.0
# The square of the noise edge, relative to the sum of all squares, below which a float64 Gram
# matrix no longer resolves the noise floor and the patch itself is decomposed.
GRAM_RESOLUTION = 1e-11
MAX_STEPS = 100
# Slopes below this share make steps so long that they may not settle.
SMALLEST_SLOPE = 0.2
# Steps that have become longer by this factor do not settle either: where most values are missing,
# that of the average element is too long for a pixel that has all of its own. They are halved,
# down to ψ itself.
GROWING = 2.0
POWER_STEPS = 4
# Columns and steps of the block iteration that looks for further components.
BLOCK = 8
BLOCK_STEPS = 4


@dataclass(frozen=True, eq=False)
class LowRank:
    """L = left rightᵀ, with orthonormal columns in ``right``.

    Examples
    --------
    >>> import numpy as np
    >>> patch = np.outer([1.0, 2.0, 2.0, 0.0], [0.6, 0.8, 0.0])
    >>> low = LowRank.leading(patch, 1)
    >>> np.allclose(low.matrix(), patch)
    True
    >>> low.step(np.zeros((4, 3))).rank
    1
    """

    left: np.ndarray
    """(pixels, rank)."""
    right: np.ndarray
    """(bands, rank)."""

    @property
    def rank(self) -> int:
        """Number of components."""
        return self.right.shape[1]

    @classmethod
    def leading(cls, patch: np.ndarray, rank: int) -> LowRank:
        """Return the ``rank`` leading components of a patch."""
        vectors = components(patch, count=min(rank, *patch.shape))[1].astype(patch.dtype)
        return cls(patch @ vectors, vectors)

    @classmethod
    def above_noise(cls, patch: np.ndarray) -> LowRank:
        """Return the components of a patch above the edge of its own noise.

        The level of the noise is what the components leave, at least one, and the edge follows
        from it.
        """
        values, vectors = components(patch, count=min(patch.shape))
        energy, (n, p), rank, found = float(np.vdot(patch, patch)), patch.shape, -1, 0
        while found > rank:
            rank = found
            left_over = max(energy - float(np.sum(values[:rank] ** 2)), 0.0)
            level = max(math.sqrt(left_over / max((n - rank) * (p - rank), 1)), 1.0)
            found = int(np.count_nonzero(values > level * noise_edge(n, p)))
        right = vectors[:, :rank].astype(patch.dtype)
        return cls(patch @ right, right)

    @classmethod
    def dominant(cls, patch: np.ndarray) -> LowRank:
        """Return about the first component, by a few power iterations from the mean spectrum."""
        vector = patch.mean(axis=0)
        if not np.any(vector):
            vector = np.ones_like(vector)
        with np.errstate(invalid="ignore"):  # small products of BLAS raise it for what they pad
            for _ in range(POWER_STEPS):
                vector = (patch @ vector) @ patch
                vector = vector / max(float(np.linalg.norm(vector)), 1e-30)
        right = vector[:, None]
        return cls(patch @ right, right)

    def matrix(self) -> np.ndarray:
        """Return L, (pixels, bands)."""
        return self.left @ self.right.T

    def step(self, change: np.ndarray) -> LowRank:
        """Return the projection of L + change, by one subspace iteration from L's own factors."""
        if self.rank == 0:
            return self
        image = self.left + change @ self.right
        basis = np.linalg.qr(image)[0]
        rows = (basis.T @ self.left) @ self.right.T + basis.T @ change
        right, triangle = np.linalg.qr(rows.T)
        return LowRank(basis @ triangle.T, right)

    def above(self, change: np.ndarray, edge: float, *, proof: bool = True) -> LowRank:
        """Return the components of L + change above an edge; itself if these are as many.

        With ``proof`` none is missed, not even one just above the edge.
        """
        moved = self.step(change)
        strong = _drop_below(moved, edge)
        rest = self.matrix()
        rest += change
        if moved.rank:
            rest -= moved.matrix()
        vectors = _all_above(rest, edge) if proof else _find_above(rest, edge)
        if vectors.shape[1] == 0:
            return self if strong.rank == self.rank else strong
        right = np.linalg.qr(np.concatenate([strong.right, vectors], axis=1))[0]
        return LowRank(self.left @ (self.right.T @ right) + change @ right, right)

    def factors(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return U, d, V of L in double precision."""
        right, triangle = np.linalg.qr(self.right.astype(np.float64))
        left, values, rotation = np.linalg.svd(
            self.left.astype(np.float64) @ triangle.T, full_matrices=False
        )
        real = values > 1e-14 * max(values.max(initial=0.0), 1e-300)
        return left[:, real], values[real], (right @ rotation.T)[:, real]


@dataclass(frozen=True, eq=False)
class Observed:
    """A patch in working precision, with what is missing in it."""

    values: np.ndarray
    """(pixels, bands)."""
    present: np.ndarray | None
    """(pixels, bands) one where a value is there, zero where it is missing; None is all ones."""
    share: float
    """Share of the values that are there."""

    @classmethod
    def create(cls, values: np.ndarray, missing: np.ndarray | None) -> Observed:
        """Note what is missing in a patch."""
        if missing is None:
            return cls(values, None, 1.0)
        present = np.subtract(1, missing, dtype=values.dtype)
        return cls(values, present, 1 - np.count_nonzero(missing) / missing.size)

    def residual(self, matrix: np.ndarray) -> np.ndarray:
        """Return Y − L, zero where values are missing."""
        residual = self.values - matrix
        if self.present is not None:
            residual *= self.present
        return residual


@dataclass(frozen=True, eq=False)
class MEstimate:
    """State of the iteration."""

    low: LowRank
    matrix: np.ndarray
    """L."""
    change: float = np.inf
    """Root mean square of the last step, in noise std."""


def iterate(
    data: Observed,
    start: LowRank,
    influence: Influence,
    tolerance: float,
    max_steps: int = MAX_STEPS,
) -> MEstimate:
    """Iterate with a fixed rank until a step moves L by less than ``tolerance`` noise std."""
    low, matrix, least, longest = start, start.matrix(), np.inf, 1 / SMALLEST_SLOPE
    for _ in range(max_steps):
        low = low.step(correction(data, matrix, influence, longest))
        moved = low.matrix()
        change = rms(np.subtract(moved, matrix, out=matrix))
        matrix = moved
        if change <= tolerance:
            break
        if change > GROWING * least:
            least, longest = change, max(longest / 2, 1.0)
        least = min(least, change)
    return MEstimate(low, matrix, change)


def correction(
    data: Observed, matrix: np.ndarray, influence: Influence, longest: float = 1 / SMALLEST_SLOPE
) -> np.ndarray:
    """Return ψ(Y − L)/q, zero where values are missing, with 1/q no more than ``longest``."""
    bounded, slope = influence(data.residual(matrix))
    slope -= 1 - data.share  # missing values have residual zero, where the slope is one
    bounded *= min(1 / max(slope, SMALLEST_SLOPE), longest)  # longer ones may not settle
    return bounded


def full_influence(residual: np.ndarray) -> tuple[np.ndarray, float]:
    """Let every residual count in full: least squares."""
    return residual, 1.0


def _find_above(matrix: np.ndarray, edge: float) -> np.ndarray:
    """Return right vectors of components clearly above an edge, by a short block iteration."""
    size = min(BLOCK, *matrix.shape)
    block = np.random.default_rng(0).standard_normal((size, len(matrix)), dtype=np.float32)
    block = block.astype(matrix.dtype, copy=False)
    for step in range(BLOCK_STEPS):
        rows = (block @ matrix).T
        if step % 2:  # two steps spread the columns little enough to orthonormalise after
            rows = np.linalg.qr(rows)[0]
        image = matrix @ rows
        block = image.T
    _, values, rotation = np.linalg.svd(image, full_matrices=False)
    return rows @ rotation[values > edge].T


def _all_above(matrix: np.ndarray, edge: float) -> np.ndarray:
    """Return the right vectors of all components above an edge.

    A Cholesky factorisation tells whether there are any; only then are they computed.
    """
    gram = matrix.T @ matrix
    if is_below(gram, edge**2):
        return np.empty((len(gram), 0), dtype=matrix.dtype)
    vectors = leading_eigenpairs(gram.astype(np.float64), floor=edge**2)[1]
    return vectors.astype(matrix.dtype)


def _drop_below(low: LowRank, edge: float) -> LowRank:
    """Return the components with singular values above an edge."""
    if low.rank == 0:
        return low
    left, values, rotation = np.linalg.svd(low.left, full_matrices=False)
    keep = values > edge
    if keep.all():
        return low
    return LowRank(left[:, keep] * values[keep], low.right @ rotation[keep].T)


def components(
    patch: np.ndarray, *, floor: float | None = None, count: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return singular values d of a patch, descending, and its right vectors (bands, rank).

    By its Gram matrix, or by the patch itself where the Gram matrix would lose the noise floor.

    Parameters
    ----------
    patch
        (pixels, bands).
    floor
        Values must exceed this. Give either ``floor`` or ``count``.
    count
        How many at most; fewer where the patch has a lower rank.

    Examples
    --------
    >>> import numpy as np
    >>> components(np.diag([2.0, 5.0]), count=1)[0]
    array([5.])
    """
    double = patch.astype(np.float64, copy=False)
    gram = double.T @ double
    if resolves(float(np.trace(gram)), patch.shape):
        above = None if floor is None else floor**2
        values, vectors = leading_eigenpairs(gram, floor=above, count=count)
        values, tiny = np.sqrt(np.maximum(values, 0)), 1e-7
    else:
        _, values, rows = np.linalg.svd(double, full_matrices=False)
        values, vectors, tiny = values[:count], rows[:count].T, 1e-14
        if floor is not None:
            values, vectors = values[values > floor], vectors[:, values > floor]
    real = values > tiny * values.max(initial=0.0)  # a patch of lower rank than asked for
    return values[real], vectors[:, real]


def resolves(energy: float, shape: tuple[int, ...]) -> bool:
    """Tell whether a Gram matrix in double precision holds the noise of a patch of unit noise."""
    return energy > 0 and noise_edge(shape[0], shape[1]) ** 2 >= GRAM_RESOLUTION * energy


def working_precision(patch: np.ndarray) -> np.ndarray:
    """Return the patch in single precision where that resolves its noise, else as it is."""
    largest = max(float(patch.max()), -float(patch.min()))
    return patch.astype(np.float32) if largest <= SINGLE_PRECISION_RANGE else patch


def rms(array: np.ndarray) -> float:
    """Return the root mean square of all elements."""
    return math.sqrt(float(np.vdot(array, array)) / max(array.size, 1))
