"""Cubes in a store, as arrays that are read by piece."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

__all__ = ["StoredCube"]

#: Elements held at a time while planes are handed out one by one.
_SLAB = 16_000_000


class StoredCube:
    """A (row, col, band) view of a stored (band, row, col) cube, for writers that go by planes.

    It has what they use: a shape, ``transpose``, iteration over planes, indexing. Planes come from
    slabs that are read once each.
    """

    ndim = 3

    def __init__(self, array: Any, axes: tuple[int, int, int] = (1, 2, 0)) -> None:
        self._array, self._axes = array, axes
        self._held: tuple[int, int, int, np.ndarray] | None = None
        self.dtype = np.dtype(array.dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape in the order of the axes."""
        return tuple(self._array.shape[axis] for axis in self._axes)

    def transpose(self, axes: tuple[int, ...]) -> StoredCube:
        """Return the same cube with its axes in another order."""
        a, b, c = (self._axes[axis] for axis in axes)
        return StoredCube(self._array, (a, b, c))

    def astype(self, dtype: Any) -> StoredCube:
        """Return the cube; those who write it convert plane by plane."""
        return self

    def __len__(self) -> int:
        return self.shape[0]

    def __iter__(self) -> Iterator[np.ndarray]:
        return (self._plane(0, index) for index in range(len(self)))

    def __getitem__(self, key: Any) -> np.ndarray:
        key = key if isinstance(key, tuple) else (key,)
        key = (*key, *(slice(None),) * (3 - len(key)))
        for axis, part in enumerate(key):
            others = [k for n, k in enumerate(key) if n != axis]
            if isinstance(part, int) and all(k == slice(None) for k in others):
                return self._plane(axis, part)
        stored = [slice(None)] * 3
        for axis, part in zip(self._axes, key, strict=True):
            stored[axis] = part if isinstance(part, slice) else slice(part, part + 1)
        block = np.asarray(self._array[tuple(stored)]).transpose(self._axes)
        return block[tuple(slice(None) if isinstance(k, slice) else 0 for k in key)]

    def _plane(self, axis: int, index: int) -> np.ndarray:
        """Return one plane across an axis of this order, from a slab of neighbouring ones."""
        if (
            self._held is None
            or self._held[0] != axis
            or not (self._held[1] <= index < self._held[2])
        ):
            size = int(np.prod([n for i, n in enumerate(self.shape) if i != axis]))
            stop = min(index + max(1, _SLAB // size), self.shape[axis])
            stored = [slice(None)] * 3
            stored[self._axes[axis]] = slice(index, stop)
            slab = np.asarray(self._array[tuple(stored)]).transpose(self._axes)
            self._held = (axis, index, stop, slab)
        return self._held[3][(slice(None),) * axis + (index - self._held[1],)]
