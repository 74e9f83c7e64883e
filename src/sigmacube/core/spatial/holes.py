"""Pixels with missing elements: what their kept bands say of the scene's directions.

With Ω the kept bands of a pixel, A = BᵀΩB says how much of each direction was observed. With U the
rows of B that are gone, A = I − UᵀU, so that a few missing bands are a small matrix: with C
diagonal, (C − UᵀU)⁻¹ = C⁻¹ + C⁻¹Uᵀ(I − UC⁻¹Uᵀ)⁻¹UC⁻¹.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sigmacube.core.parallel import ParallelMap, in_turn, strips

__all__ = ["Few", "Holes", "Many", "find_holes"]

# Elements of a stack of matrices.
MOST = 200_000


@dataclass(frozen=True, eq=False)
class Few:
    """Pixels that miss few bands, each padded to the same number m of them."""

    index: np.ndarray
    """(pixels,) which of the pixels with holes."""
    rows: np.ndarray
    """(pixels, m, k) U, zero where padded."""

    def solve(self, right: np.ndarray, c: np.ndarray) -> np.ndarray:
        """Return (C − UᵀU)⁻¹ right (pixels, k), C diagonal (pixels, k)."""
        alone = right / c
        inner = np.matmul(self.rows / c[:, None], self.rows.transpose(0, 2, 1))
        inner = np.eye(inner.shape[1]) - inner
        beside = np.linalg.solve(inner, np.matmul(self.rows, alone[:, :, None]))
        return np.asarray(alone + self._back(beside) / c)

    def unseen(self, z: np.ndarray) -> np.ndarray:
        """Return UᵀU z (pixels, k)."""
        return self._back(np.matmul(self.rows, z[:, :, None]))

    def per(self, basis: np.ndarray) -> int:
        """Return of how many pixels a diagonal is found at a time."""
        return max(MOST // (self.rows.shape[1] * len(basis)), 1)

    def diagonal(self, basis: np.ndarray, c: float, some: slice) -> np.ndarray:
        """Return (pixels, P) the diagonal of B (cI − UᵀU)⁻¹ Bᵀ of some pixels."""
        rows, own = self.rows[some], np.sum(basis**2, axis=1)
        inner = c * np.eye(rows.shape[1]) - np.matmul(rows, rows.transpose(0, 2, 1))
        # With LLᵀ the inner matrix, the diagonal is a sum of squares of L⁻¹UBᵀ.
        half = np.matmul(np.linalg.inv(np.linalg.cholesky(inner)), rows).astype(np.float32)
        half = np.matmul(half, basis.T.astype(np.float32))
        return np.asarray(own + np.einsum("pmv,pmv->pv", half, half)) / c

    def part(self, number: np.ndarray) -> Few:
        """Return the pixels that have a new number (pixels,), −1 for none."""
        mine = number[self.index]
        return Few(mine[mine >= 0], self.rows[mine >= 0])

    def _back(self, inner: np.ndarray) -> np.ndarray:
        return np.matmul(self.rows.transpose(0, 2, 1), inner)[:, :, 0]


@dataclass(frozen=True, eq=False)
class Many:
    """Pixels that miss more bands than there are directions, or nearly so."""

    index: np.ndarray
    """(pixels,) which of the pixels with holes."""
    matrix: np.ndarray
    """(pixels, k, k) UᵀU."""

    def solve(self, right: np.ndarray, c: np.ndarray) -> np.ndarray:
        """Return (C − UᵀU)⁻¹ right (pixels, k), C diagonal (pixels, k)."""
        left = c[..., None] * np.eye(right.shape[1]) - self.matrix
        return np.asarray(np.linalg.solve(left, right[:, :, None])[:, :, 0])

    def unseen(self, z: np.ndarray) -> np.ndarray:
        """Return UᵀU z (pixels, k)."""
        return np.asarray(np.matmul(self.matrix, z[:, :, None])[:, :, 0])

    def per(self, basis: np.ndarray) -> int:
        """Return of how many pixels a diagonal is found at a time."""
        return max(MOST // basis.size, 1)

    def diagonal(self, basis: np.ndarray, c: float, some: slice) -> np.ndarray:
        """Return (pixels, P) the diagonal of B (cI − UᵀU)⁻¹ Bᵀ of some pixels."""
        inverse = np.linalg.inv(c * np.eye(basis.shape[1]) - self.matrix[some])
        return np.asarray(np.einsum("pvk,vk->pv", np.matmul(basis, inverse), basis))

    def part(self, number: np.ndarray) -> Many:
        """Return the pixels that have a new number (pixels,), −1 for none."""
        mine = number[self.index]
        return Many(mine[mine >= 0], self.matrix[mine >= 0])


@dataclass(frozen=True, eq=False)
class Holes:
    """Pixels with missing elements in a part of the scene."""

    where: np.ndarray
    """(row, col) bool."""
    groups: Sequence[Few | Many]
    """Those pixels, by how much they miss."""
    share: np.ndarray
    """(row, col) mean of A's diagonal: how much of a pixel was observed."""

    def solve(self, seen: np.ndarray, guess: np.ndarray, trust: np.ndarray) -> np.ndarray:
        """Return (A + δ)⁻¹ (BᵀΩy + δ guess) (pixels, k), δ diagonal (k,) or (pixels, 1)."""
        right, out = seen + trust * guess, np.empty_like(seen)
        c = np.broadcast_to(1 + trust, seen.shape)
        for group in self.groups:
            out[group.index] = group.solve(right[group.index], c[group.index])
        return out

    def unseen(self, z: np.ndarray) -> np.ndarray:
        """Return (I − A) z (pixels, k)."""
        out = np.empty_like(z)
        for group in self.groups:
            out[group.index] = group.unseen(z[group.index])
        return out

    def diagonal(self, basis: np.ndarray, delta: float, run: ParallelMap = in_turn) -> np.ndarray:
        """Return (pixels, P) the diagonal of B (A + δI)⁻¹ Bᵀ, in single precision."""
        out = np.empty((int(self.where.sum()), len(basis)), dtype=np.float32)

        def fill(item: tuple[Few | Many, slice]) -> None:
            group, some = item
            out[group.index[some]] = group.diagonal(basis, 1 + delta, some)

        run(
            fill, [(g, some) for g in self.groups for some in strips(0, len(g.index), g.per(basis))]
        )
        return out

    def part(self, inside: tuple[slice, slice]) -> Holes:
        """Return the holes of some rows and columns."""
        chosen = np.zeros(self.where.shape, dtype=bool)
        chosen[inside] = self.where[inside]
        mine = chosen[self.where]
        number = np.where(mine, np.cumsum(mine) - 1, -1)
        groups = [group.part(number) for group in self.groups]
        return Holes(self.where[inside], [g for g in groups if len(g.index)], self.share[inside])


def find_holes(kept: np.ndarray, basis: np.ndarray) -> Holes:
    """Return which pixels miss elements (row, col, P), and what of their directions is unseen."""
    where = ~kept.all(axis=2)
    gone, k = ~kept[where], basis.shape[1]
    count = np.count_nonzero(gone, axis=1)
    padded = np.where(count > k // 2, 0, 2 ** np.ceil(np.log2(np.maximum(count, 1))).astype(int))
    groups: list[Few | Many] = []
    unseen = np.zeros(len(gone))
    for m in np.unique(padded).tolist():
        index = np.flatnonzero(padded == m)
        if m:
            pixel, band = np.nonzero(gone[index])
            first = np.cumsum(count[index]) - count[index]
            rows = np.zeros((len(index), m, k))
            rows[pixel, np.arange(len(pixel)) - first[pixel]] = basis[band]
            unseen[index] = np.square(rows).sum(axis=(1, 2))
            groups.append(Few(index, rows))
            continue
        pairs = (basis[:, :, None] * basis[:, None, :]).reshape(len(basis), k * k)
        matrix = (gone[index].astype(np.float64) @ pairs).reshape(-1, k, k)
        unseen[index] = np.trace(matrix, axis1=1, axis2=2)
        groups.append(Many(index, matrix))
    share = np.ones(where.shape)
    share[where] = np.clip(1 - unseen / k, 0, 1)
    return Holes(np.asarray(where), groups, share)
