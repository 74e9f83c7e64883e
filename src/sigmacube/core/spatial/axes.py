"""Principal axes of windows: by a decomposition, or from those of almost the same data."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["Axes", "principal", "updated"]

TINY = float(np.finfo(np.float32).tiny)


@dataclass(frozen=True, eq=False)
class Axes:
    """Eigenvectors of the Gram matrices of some windows, of pixels or directions."""

    vectors: np.ndarray
    """(windows, m, m) float32, by falling eigenvalue."""
    rank: np.ndarray
    """(windows,) how many are above the noise edge."""


def principal(flat: np.ndarray, edge: float) -> tuple[np.ndarray, np.ndarray, Axes]:
    """Return squared singular values, falling, and directions (windows, k, m) of (windows, n, k).

    Of the Gram matrix of pixels or of directions, whichever is smaller, in double precision: by its
    square the noise may be a millionth of the signal.
    """
    across = flat.transpose(0, 2, 1)
    transposed = flat.shape[1] < flat.shape[2]
    gram = np.matmul(flat, across) if transposed else np.matmul(across, flat)
    power = np.trace(gram, axis1=1, axis2=2)
    noise = _all_below(gram, power / flat[0].size, edge)
    values, vectors = np.zeros(gram.shape[:2]), np.zeros(gram.shape, dtype=np.float32)
    values[noise] = power[noise, None] / gram.shape[1]  # of these only the sum is asked for
    if not noise.all():
        values[~noise], vectors[~noise] = np.linalg.eigh(gram[~noise].astype(np.float64))
    values, vectors = values[:, ::-1], vectors[:, :, ::-1]
    axes = Axes(vectors, np.count_nonzero(values > edge**2, axis=1))
    if transposed:
        scale = 1 / np.sqrt(np.maximum(values, TINY))
        vectors = np.matmul(across, vectors) * scale[:, None]
    return values, vectors.astype(np.float32, copy=False), axes


def _all_below(gram: np.ndarray, power: np.ndarray, edge: float) -> np.ndarray:
    """Return (windows,) whether surely no eigenvalue is above the edge: tr(G/edge²)³² is below one.

    A few products of small matrices, where most windows of a flat scene hold noise alone.
    """
    highest = np.einsum("aii->ai", gram).max(axis=1)
    below = (highest < edge**2) & (power < 1.5)  # noise alone has a power of about one
    if not below.any():
        return below
    part = (gram[below] / edge**2).astype(np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        for _ in range(4):
            part = np.matmul(part, part)
        below[below] = np.einsum("aij,aij->a", part, part) < 0.5
    return below


def updated(flat: np.ndarray, edge: float, near: Axes) -> tuple[np.ndarray, np.ndarray]:
    r"""Return what `principal` does to second order, from the axes of data that differ a little.

    Values above the edge come first, but need not fall.

    With T the Gram matrix along those axes, almost diagonal, axis j turns towards axis i by
    T_ij / (T_jj − T_ii), less where the two are alike. Of axes that are both below the edge only
    their sum matters: they are left. Some products instead of a decomposition, and since T is
    graded they need no more than single precision.
    """
    plain = near.rank == 0  # where there are no axes to start from
    if plain.any():
        m = near.vectors.shape[1]
        values, vectors = np.empty((len(flat), m)), np.empty((*flat.shape[::2], m), np.float32)
        values[plain], vectors[plain], _ = principal(flat[plain], edge)
        if not plain.all():
            rest = Axes(near.vectors[~plain], near.rank[~plain])
            values[~plain], vectors[~plain] = updated(flat[~plain], edge, rest)
        return values, vectors
    single = flat.astype(np.float32, copy=False)
    transposed = flat.shape[1] < flat.shape[2]
    along = near.vectors.transpose(0, 2, 1)
    seen = np.matmul(along, single) if transposed else np.matmul(single, near.vectors)
    T = np.matmul(seen, seen.transpose(0, 2, 1)) if transposed else np.matmul(
        seen.transpose(0, 2, 1), seen)  # fmt: skip
    turn = _turn(T, near.rank)
    values = np.einsum("aii->ai", T) + np.einsum("aij,aij->aj", T, turn)
    rotation = np.matmul(turn, turn)
    rotation *= np.float32(0.5)
    rotation += turn
    np.einsum("aii->ai", rotation)[...] += 1  # the exponential of the turn, to second order
    vectors = np.matmul(near.vectors, rotation)
    # Those above the edge come first; of the others nothing but the sum matters.
    above = values > edge**2
    mixed = np.any(above[:, 1:] > above[:, :-1], axis=1)
    if mixed.any():
        order = np.argsort(-values[mixed], axis=1, kind="stable")
        values[mixed] = np.take_along_axis(values[mixed], order, axis=1)
        vectors[mixed] = np.take_along_axis(vectors[mixed], order[:, None], axis=2)
    if transposed:  # of weak axes only those above the edge are used
        scale = 1 / np.sqrt(np.maximum(values, 1))
        vectors = np.matmul(single.transpose(0, 2, 1), vectors) * scale[:, None]
    return values.astype(np.float64), vectors


def _turn(T: np.ndarray, rank: np.ndarray) -> np.ndarray:
    """Return (windows, m, m) by how much axis j turns towards axis i, antisymmetric."""
    diagonal = np.einsum("aii->ai", T)
    gap = diagonal[:, None, :] - diagonal[:, :, None]
    size = np.abs(gap)
    size += np.abs(T)
    np.maximum(size, TINY, out=size)
    gap /= size
    mixed = T / size
    turn = gap * mixed
    gap *= gap
    mixed *= mixed
    mixed *= 2
    gap += mixed
    np.maximum(gap, TINY, out=gap)
    turn /= gap
    kept = np.arange(T.shape[1]) < rank[:, None]
    turn *= kept[:, :, None] | kept[:, None, :]
    return turn
