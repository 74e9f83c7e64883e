"""Error models as named arrays: what an estimator keeps, so that a file alone gives its errors.

An error model that can be stored has ``to_arrays(rows, cols)``, which gives what belongs to some
rows and columns of the scene, and a row in `KINDS`: the class that reads it back. What a scene in
memory keeps and what each tile of a large one keeps is the same thing, so both are written by the
same code (`sigmacube.io.error_models`), which knows nothing of any model.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np

from sigmacube.core.errors import ErrorModel
from sigmacube.core.tables import load
from sigmacube.core.windows import Span, WindowGrid

#: Where each kind of error model is read, as ``module:class``.
KINDS = {
    "windows": "sigmacube.core.lowrank.storage:StoredFactors",
    "spatial": "sigmacube.core.spatial.storage:StoredSpatialErrors",
}


def is_packed(dim: str) -> bool:
    """Tell whether parts follow one another along a dimension: one called component something.

    Examples
    --------
    >>> is_packed("component"), is_packed("component_window_0"), is_packed("row")
    (True, True, False)
    """
    return dim.split("_")[0] == "component"


@dataclass(frozen=True)
class ArraySpec:
    """One of the arrays that a kind of error model is stored in."""

    dims: tuple[str, ...]
    """Names of its dimensions. Those that `ModelArrays.places` names lie side by side in the whole
    scene; the first one of others may be packed (see `is_packed`): parts follow one another."""
    dtype: str
    about: str
    fill: float = 0.0
    """Value in parts that do not have this array, where others do."""
    counts: bool = False
    """Whether values are positions along ``component``, counted from the part's first."""


@dataclass(frozen=True, eq=False)
class ModelArrays:
    """What an error model keeps of some rows and columns."""

    kind: str
    about: Mapping[str, Any]
    """What else is needed to read it, JSON-like; the same for all parts of a scene."""
    arrays: Mapping[str, np.ndarray]
    places: Mapping[str, tuple[int, int, int]]
    """Where the part lies along a dimension, and how long that is: (first, stop, whole)."""
    shapes: Mapping[str, tuple[int, ...]]
    """Shapes of ``arrays``, which may not have been read yet."""

    @classmethod
    def create(
        cls,
        kind: str,
        about: Mapping[str, Any],
        arrays: Mapping[str, np.ndarray],
        places: Mapping[str, tuple[int, int, int]],
    ) -> ModelArrays:
        """Return a part in memory, its arrays in the types they are stored in."""
        specs = reader_of(kind).arrays
        stored = {name: np.asarray(array, specs[name].dtype) for name, array in arrays.items()}
        shapes = {name: array.shape for name, array in stored.items()}
        return cls(kind, about, stored, places, shapes)

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays as they are stored, before compression."""
        specs = reader_of(self.kind).arrays
        return sum(
            math.prod(shape) * np.dtype(specs[name].dtype).itemsize
            for name, shape in self.shapes.items()
        )


class StoredErrors(Protocol):
    """An error model in an open file, to be read whole or in part."""

    arrays: ClassVar[Mapping[str, ArraySpec]]
    """All arrays that this kind may have."""

    @classmethod
    def from_arrays(
        cls,
        about: Mapping[str, Any],
        arrays: Mapping[str, Any],
        noise: float | np.ndarray,
        n_bands: int,
    ) -> StoredErrors:
        """Return the model that arrays hold, which are read when they are indexed."""
        ...

    def span(self, rows: Span, cols: Span) -> tuple[Span, Span]:
        """Return the rows and columns that `read` gives the model of for those asked for."""
        ...

    def read(self, rows: Span | None = None, cols: Span | None = None) -> ErrorModel:
        """Return the model of the whole scene, or of what some rows and columns need."""
        ...

    def bytes_in_memory(self) -> float:
        """Return what the whole model takes in memory while a product is made with it."""
        ...

    @property
    def grid(self) -> WindowGrid:
        """The windows that tiles of products are cut along."""
        ...

    def product_bytes(self, tile: tuple[int, int], count: int) -> float:
        """Return what the model of a tile takes while ``count`` covariances of bands are found."""
        ...


def reader_of(kind: str) -> type[StoredErrors]:
    """Return the class that reads a kind of error model.

    Examples
    --------
    >>> reader_of("windows").__name__
    'StoredFactors'
    """
    if kind not in KINDS:
        raise ValueError(
            f"error model of the kind {kind!r}. This version reads {', '.join(KINDS)}."
        )
    found: type[StoredErrors] = load(KINDS[kind])
    return found
