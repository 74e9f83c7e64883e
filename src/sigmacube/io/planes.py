"""Cubes handed to writers plane by plane, from memory or from an array that is read when asked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

__all__ = ["planes"]

#: Elements read together.
_SLAB = 16_000_000


def planes(values: Any, axis: int) -> Iterator[np.ndarray]:
    """Yield the planes of a cube across an axis, the other axes in their order.

    An array that is not in memory, such as Dask's, is read in slabs of many planes, each once.

    Examples
    --------
    >>> [plane.shape for plane in planes(np.zeros((4, 5, 2)), 2)]
    [(4, 5), (4, 5)]
    """
    sizes = values.shape
    plane = max(int(np.prod([n for i, n in enumerate(sizes) if i != axis])), 1)
    step = max(1, _SLAB // plane)
    for start in range(0, sizes[axis], step):
        key: list[slice] = [slice(None)] * 3
        key[axis] = slice(start, min(start + step, sizes[axis]))
        yield from np.moveaxis(np.asarray(values[tuple(key)]), axis, 0)
