"""Eigenpairs above the noise edge of several Gram matrices at once, by subspace iteration.

Neighbouring windows need the few eigenpairs above a floor, and the scene's own dominant directions
are close to them. Filtered subspace iteration from there takes half the time of LAPACK. It goes by
stacks of matrices: a step for one window takes twenty microseconds, and threads that hand the
interpreter lock to each other so often gain nothing from a second processor.

A Cholesky factorisation proves in the end that no eigenvalue above the floor was missed
(Sylvester's law of inertia). Where it cannot, there is no answer, and LAPACK has to decide. What is
computed for one matrix does not depend on the others of its stack, to the last bit.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sigmacube.core.eigen import all_below

__all__ = ["iterate_above"]

# By how much of the noise std an iteration that stops may still move the estimate.
TOLERANCE = 1e-7
MAX_ROUNDS = 6
MAX_DEGREE = 12
# Digits by which the filter may let the strongest component outgrow the weakest.
GROWTH = 12.0


def iterate_above(
    grams: np.ndarray, floors: np.ndarray, start: np.ndarray
) -> list[tuple[np.ndarray, np.ndarray] | None]:
    """Return all eigenpairs above the floor of every matrix; None where that cannot be proved.

    Parameters
    ----------
    grams
        (matrices, bands, bands) symmetric positive semi-definite.
    floors
        (matrices,) eigenvalues must exceed these.
    start
        (bands, k) orthonormal columns close to the wanted spaces.

    Returns
    -------
    list
        (values, vectors) per matrix: (r,) eigenvalues in descending order and (bands, r). None
        also where nothing is above the floor.

    Examples
    --------
    >>> import numpy as np
    >>> grams = np.stack([np.diag([1.0, 900.0, 1.0, 1.0]), np.diag([1.0, 2.0, 1.0, 400.0])])
    >>> start = np.eye(4)[:, [1, 3, 0]]
    >>> [values for values, _ in iterate_above(grams, np.array([4.0, 4.0]), start)]
    [array([900.]), array([400.])]
    """
    found = _Found.begin(grams, floors, start)
    for _ in range(MAX_ROUNDS):
        unfinished = np.flatnonzero(found.possible & (found.ready < found.above))
        if len(unfinished) == 0:
            break
        found.filter(unfinished)
    return found.proved()


@dataclass(eq=False)
class _Found:
    """Ritz pairs of every matrix; vectors are rows.

    The first ``ready`` pairs have converged. The others are those of the matrix without them, so
    that the filter sees a spectrum of smaller range.
    """

    grams: np.ndarray
    floors: np.ndarray
    values: np.ndarray
    """(matrices, k) descending."""
    vectors: np.ndarray
    """(matrices, k, bands)."""
    residual: np.ndarray
    """(matrices, k) norms of what a pair leaves of its equation."""
    ready: np.ndarray
    """(matrices,)."""

    @classmethod
    def begin(cls, grams: np.ndarray, floors: np.ndarray, start: np.ndarray) -> _Found:
        block = _orthonormal(_orthonormal(start.T @ grams) @ grams)
        values, vectors, residual = _rayleigh_ritz(grams, block)
        found = cls(grams, floors, values, vectors, residual, np.zeros(len(grams), dtype=int))
        found._judge()
        return found

    @property
    def above(self) -> np.ndarray:
        """(matrices,) how many values are above the floor."""
        return np.count_nonzero(self.values > self.floors[:, None], axis=1)

    @property
    def possible(self) -> np.ndarray:
        """(matrices,) False where the block is too small to hold all pairs above the floor."""
        return self.values[:, -1] < self.floors

    def _excess(self) -> np.ndarray:
        """Return (matrices, k) residuals over what is tolerated.

        An error of a vector by the angle residual / gap moves the component by √value times that.
        """
        values, floors = self.values, self.floors[:, None]
        scale = np.minimum(values - values[:, -1:], np.sqrt(np.abs(values) * floors))
        return self.residual / (TOLERANCE * np.maximum(scale, TOLERANCE * floors))

    def _judge(self) -> None:
        """Count further pairs as ready."""
        fine = (self._excess() <= 1) & (self.values > self.floors[:, None])
        fine |= np.arange(fine.shape[1]) < self.ready[:, None]
        self.ready = np.count_nonzero(np.logical_and.accumulate(fine, axis=1), axis=1)

    def _degrees(self, which: np.ndarray) -> np.ndarray:
        """Return the degree of the filter that brings all pairs of a matrix to convergence.

        A filter step shrinks the error of a value x cuts large by y + √(y² − 1), y = 2x − 1. The
        strongest component outgrows the weakest by 4x a step; too far, and the weaker ones would
        drown in rounding errors of the stronger before they are made orthogonal again.
        """
        values, ready = self.values[which], self.ready[which]
        waiting = values > self.floors[which, None]
        waiting &= np.arange(values.shape[1]) >= ready[:, None]
        times_cut = np.where(waiting, values / values[:, -1:], 2.0)
        y = 2 * times_cut - 1
        steps = np.log(np.maximum(self._excess()[which], 1)) / np.log(y + np.sqrt(y * y - 1))
        needed = np.ceil(np.max(np.where(waiting, steps, 0.0), axis=1)) + 1
        strongest = np.max(np.where(waiting, times_cut, 1.0), axis=1)
        safe = np.clip(np.floor(GROWTH / np.log10(4 * strongest)), 1, MAX_DEGREE)
        return np.minimum(needed, safe).astype(int)

    def filter(self, which: np.ndarray) -> None:
        """Filter the unfinished pairs of some matrices once, and judge all anew."""
        degrees = self._degrees(which)
        order = np.argsort(-degrees, kind="stable")  # the filter stops for the last ones first
        which, degrees = which[order], degrees[order]
        ready = self.ready[which]
        matrices = self._without_pairs(which, ready)
        # Pairs that are ready have the value zero now; they go last and stay as they are.
        block = _rolled(self.vectors[which], ready)
        block = _chebyshev_filter(matrices, block, self.values[which, -1], degrees)
        is_ready = np.arange(block.shape[1]) < ready[:, None]
        for own, new in zip(
            (self.values, self.vectors, self.residual),
            _rayleigh_ritz(matrices, _orthonormal(block)),
            strict=True,
        ):
            keep = is_ready if own.ndim == 2 else is_ready[..., None]
            own[which] = np.where(keep, own[which], _rolled(new, -ready))
        self._judge()

    def _without_pairs(
        self, which: np.ndarray, counts: np.ndarray, dtype: type = np.float64
    ) -> np.ndarray:
        """Return some matrices without Σ value · vector vectorᵀ over their first pairs."""
        first = np.arange(self.values.shape[1]) < counts[:, None]
        vectors = self.vectors[which]
        weighted = vectors * (self.values[which] * first)[..., None]
        rest = np.empty((len(which), *self.grams.shape[1:]), dtype=dtype)
        known = np.empty(self.grams.shape[1:])
        for n, i in enumerate(which):  # one by one, because a matrix just fits into the cache
            np.matmul(weighted[n].T, vectors[n], out=known)
            np.subtract(self.grams[i], known, out=rest[n], casting="same_kind")
        return rest

    def proved(self) -> list[tuple[np.ndarray, np.ndarray] | None]:
        """Return the pairs above the floor of all matrices that have no others."""
        pairs: list[tuple[np.ndarray, np.ndarray] | None] = [None] * len(self.grams)
        above = self.above
        which = np.flatnonzero(self.possible & (above > 0) & (self.ready == above))
        left = self._without_pairs(which, above[which], np.float32)
        for i, below in zip(which, all_below(left, self.floors[which]), strict=True):
            if below:
                pairs[i] = self.values[i, : above[i]], self.vectors[i, : above[i]].T
        return pairs


def _rolled(rows: np.ndarray, shifts: np.ndarray) -> np.ndarray:
    """Return the rows (matrices, k, ...) of every matrix, moved to the front by its shift."""
    size = rows.shape[1]
    order = (np.arange(size) + shifts[:, None]) % size
    return np.take_along_axis(rows, order.reshape(*order.shape, *(1,) * (rows.ndim - 2)), axis=1)


def _orthonormal(block: np.ndarray) -> np.ndarray:
    """Return orthonormal bases of the rows of every block."""
    columns = np.linalg.qr(block.swapaxes(1, 2))[0]
    return np.ascontiguousarray(columns.swapaxes(1, 2))


def _rayleigh_ritz(
    matrices: np.ndarray, bases: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return Ritz values (descending), Ritz vectors and residual norms on orthonormal bases."""
    images = bases @ matrices
    values, rotations = np.linalg.eigh(images @ bases.swapaxes(1, 2))
    values = values[:, ::-1].copy()
    rotations = np.ascontiguousarray(rotations.swapaxes(1, 2)[:, ::-1])
    vectors = rotations @ bases
    errors = rotations @ images
    errors -= values[..., None] * vectors
    return values, vectors, np.sqrt(np.einsum("mij,mij->mi", errors, errors))


def _chebyshev_filter(
    matrices: np.ndarray, block: np.ndarray, cuts: np.ndarray, degrees: np.ndarray
) -> np.ndarray:
    """Apply the polynomials that damp eigenvalues in [0, cut] to the rows of every block.

    Degrees are in descending order.
    """
    scale = (2.0 / cuts)[:, None, None]
    filtered = np.empty_like(block)
    previous, current = block, scale * (block @ matrices) - block
    for done in range(1, int(degrees[0])):
        n = int(np.count_nonzero(degrees > done))
        filtered[n : len(current)] = current[n:]
        following = current[:n] @ matrices[:n]
        following *= 2 * scale[:n]
        following -= 2 * current[:n]
        following -= previous[:n]
        previous, current = current, following
    filtered[: len(current)] = current
    return filtered
