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

from sigmacube.core.lowrank.eigen import Certificate

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
        values, vectors, residual = _rayleigh_ritz(_Rest(grams), block)
        found = cls(grams, floors, values, vectors, residual, np.zeros(len(grams), dtype=int))
        found._judge()
        return found

    @property
    def is_above(self) -> np.ndarray:
        """(matrices, k) whether a value is above the floor."""
        return self.values > self.floors[:, None]

    @property
    def above(self) -> np.ndarray:
        """(matrices,) how many values are above the floor."""
        return np.count_nonzero(self.is_above, axis=1)

    @property
    def possible(self) -> np.ndarray:
        """(matrices,) False where the block is too small to hold all pairs above the floor."""
        return ~self.is_above[:, -1]

    @property
    def cuts(self) -> np.ndarray:
        """(matrices,) values below which the filter damps."""
        return np.maximum(self.values[:, -1], 1e-6 * self.floors)

    def _excess(self) -> np.ndarray:
        """Return (matrices, k) residuals over what is tolerated.

        An error of a vector by the angle residual / gap moves the component by √value times that.
        """
        values, floors = self.values, self.floors[:, None]
        scale = np.minimum(values - values[:, -1:], np.sqrt(np.abs(values) * floors))
        return self.residual / (TOLERANCE * np.maximum(scale, TOLERANCE * floors))

    def _judge(self) -> None:
        """Count further pairs as ready."""
        fine = (self._excess() <= 1) & self.is_above
        fine |= np.arange(fine.shape[1]) < self.ready[:, None]
        self.ready = np.count_nonzero(np.logical_and.accumulate(fine, axis=1), axis=1)

    def _degrees(self, which: np.ndarray) -> np.ndarray:
        """Return the degree of the filter that brings all pairs of a matrix to convergence.

        A filter step shrinks the error of a value x cuts large by y + √(y² − 1), y = 2x − 1. The
        strongest component outgrows the weakest by 4x a step; too far, and the weaker ones would
        drown in rounding errors of the stronger before they are made orthogonal again.
        """
        values, ready = self.values[which], self.ready[which]
        waiting = self.is_above[which] & (np.arange(values.shape[1]) >= ready[:, None])
        times_cut = np.where(waiting, values / self.cuts[which, None], 2.0)
        y = 2 * times_cut - 1
        steps = np.log(np.maximum(self._excess()[which], 1)) / np.log(y + np.sqrt(y * y - 1))
        needed = np.ceil(np.max(np.where(waiting, steps, 0.0), axis=1)) + 1
        strongest = np.max(np.where(waiting, times_cut, 1.0), axis=1)
        safe = np.clip(np.floor(GROWTH / np.log10(4 * strongest)), 1, MAX_DEGREE)
        return np.minimum(needed, safe).astype(int)

    def filter(self, which: np.ndarray) -> None:
        """Filter the unfinished pairs of some matrices once, and judge all anew."""
        ready = self.ready[which]
        is_ready = np.arange(self.values.shape[1]) < ready[:, None]
        vectors, known = self.vectors[which], np.where(is_ready, self.values[which], 0.0)
        matrices = self.grams if len(which) == len(self.grams) else self.grams[which]
        rest = _Rest(matrices, vectors, known)
        # Pairs that are ready have the value zero now; they go last and stay as they are.
        block = _rolled(vectors, ready)
        block = _chebyshev_filter(rest, block, self.cuts[which], self._degrees(which))
        for own, new in zip(
            (self.values, self.vectors, self.residual),
            _rayleigh_ritz(rest, _orthonormal(block)),
            strict=True,
        ):
            keep = is_ready if own.ndim == 2 else is_ready[..., None]
            own[which] = np.where(keep, own[which], _rolled(new, -ready))
        self._judge()

    def proved(self) -> list[tuple[np.ndarray, np.ndarray] | None]:
        """Return the pairs above the floor of all matrices that have no others."""
        pairs: list[tuple[np.ndarray, np.ndarray] | None] = [None] * len(self.grams)
        certificate, above = Certificate(self.grams.shape[1]), self.above
        for i in np.flatnonzero(self.possible & (above > 0) & (self.ready == above)):
            values, vectors = self.values[i, : above[i]], self.vectors[i, : above[i]]
            if certificate.holds(self.grams[i], values, vectors, float(self.floors[i])):
                pairs[i] = values, vectors.T
        return pairs


@dataclass(frozen=True, eq=False)
class _Rest:
    """Matrices without Σ value · vector vectorᵀ over some of their eigenpairs."""

    matrices: np.ndarray
    vectors: np.ndarray | None = None
    """(matrices, k, bands)."""
    values: np.ndarray | None = None
    """(matrices, k), zero for vectors that stay."""

    def images(self, block: np.ndarray) -> np.ndarray:
        """Return what the matrices make of the rows of every block (matrices, k, bands)."""
        images = block @ self.matrices
        if self.vectors is not None and self.values is not None:
            parts = block @ self.vectors.swapaxes(1, 2)
            parts *= self.values[:, None]
            images -= parts @ self.vectors
        return images


def _rolled(rows: np.ndarray, shifts: np.ndarray) -> np.ndarray:
    """Return the rows (matrices, k, ...) of every matrix, moved to the front by its shift."""
    size = rows.shape[1]
    order = (np.arange(size) + shifts[:, None]) % size
    return np.take_along_axis(rows, order.reshape(*order.shape, *(1,) * (rows.ndim - 2)), axis=1)


def _orthonormal(block: np.ndarray) -> np.ndarray:
    """Return orthonormal bases of the rows of every block."""
    columns = np.linalg.qr(block.swapaxes(1, 2))[0]
    return np.ascontiguousarray(columns.swapaxes(1, 2))


def _rayleigh_ritz(rest: _Rest, bases: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return Ritz values (descending), Ritz vectors and residual norms on orthonormal bases."""
    images = rest.images(bases)
    values, rotations = np.linalg.eigh(images @ bases.swapaxes(1, 2))
    values = values[:, ::-1].copy()
    rotations = np.ascontiguousarray(rotations.swapaxes(1, 2)[:, ::-1])
    vectors = rotations @ bases
    errors = rotations @ images
    errors -= values[..., None] * vectors
    return values, vectors, np.sqrt(np.einsum("mij,mij->mi", errors, errors))


def _chebyshev_filter(
    rest: _Rest, block: np.ndarray, cuts: np.ndarray, degrees: np.ndarray
) -> np.ndarray:
    """Apply the polynomials that damp eigenvalues in [0, cut] to the rows of every block."""
    scale = (2.0 / cuts)[:, None, None]
    filtered = np.empty_like(block)
    previous, current = block, scale * rest.images(block) - block
    for done in range(1, int(degrees.max()) + 1):
        if done > 1:
            following = rest.images(current)
            following *= 2 * scale
            following -= 2 * current
            following -= previous
            previous, current = current, following
        finished = degrees == done
        filtered[finished] = current[finished]
        current[finished] = previous[finished] = 0.0  # on and on, it would overflow
    return filtered
