"""A cube in a file: what it is, and any block of its rows and columns as physical values.

`Source` is to a file what `sigmacube.Cube` is to memory: both have a shape, a type, wavelengths,
metadata and ``block(rows, cols)``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from sigmacube.core.card import Card, size_of, span_of
from sigmacube.core.parallel import strips
from sigmacube.core.validity import broadcast_mask
from sigmacube.cube import Cube
from sigmacube.io.metadata import PER_BAND

#: Elements read at a time when a whole cube is read: 64 MB of float64.
_BLOCK = 8_000_000


@dataclass(frozen=True, eq=False)
class Source(Card):
    """A cube in a file, opened but not read.

    Examples
    --------
    >>> import numpy as np
    >>> stored = np.arange(24, dtype="i2").reshape(2, 3, 4)
    >>> source = Source(Path("x"), (2, 3, 4), stored.dtype, lambda r, c: stored[r, c], scale=0.1)
    >>> values, mask = source.block(slice(0, 1), slice(1, 3))
    >>> values.shape, values.dtype, mask
    ((1, 2, 4), dtype('float32'), None)
    """

    path: Path
    shape: tuple[int, int, int]
    """(rows, cols, bands)."""
    stored_dtype: np.dtype
    """Type of the stored values."""
    load: Callable[[slice, slice], np.ndarray]
    """Stored values (row, col, band) of a block of rows and columns."""
    wavelengths: np.ndarray | None = None
    """(bands,) nm."""
    good_bands: np.ndarray | None = None
    """(bands,) bool, False for the bad ones."""
    nodata: float | None = None
    """Stored value that means no data."""
    scale: float | np.ndarray | None = None
    """Physical value = stored * scale + offset; scalars or one per band."""
    offset: float | np.ndarray | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    lazy: bool = False
    """Whether `load` gives views of a memory map, so that a whole cube need not be read."""
    mask: np.ndarray | None = None
    """(row, col, band) or broadcastable, the user's: False where values do not count."""
    quality: Callable[[slice, slice], np.ndarray] | None = None
    """(row, col, band or 1) of a block, the product's: False where a value was not measured."""
    files: tuple[Path, ...] = ()
    """What it is read from, where that is more than ``path``."""
    address: str | None = None
    """Where it lies if not on a disk, such as ``s3://bucket/cube.zarr``."""

    def _facts(self) -> Mapping[str, str]:
        facts = {"file": self.path.name, "size": size_of(self.shape)} | span_of(self.wavelengths)
        return facts | {"stored as": str(self.stored_dtype), "values": "not read yet"}

    def __post_init__(self) -> None:
        if min(self.shape) < 1:
            raise ValueError(f"{self.path}: empty cube of shape {self.shape}.")
        if self.stored_dtype.kind not in "iuf":
            raise ValueError(
                f"{self.path}: values of type {self.stored_dtype} are not supported. "
                "They must be real integers or floats."
            )
        for what, given in (("scale factor", self.scale), ("offset", self.offset)):
            values = np.asarray(0.0 if given is None else given, dtype=np.float64)
            with np.errstate(over="ignore", under="ignore"):
                kept = values.astype(self.dtype)
            lost = ~np.isfinite(kept) | ((kept == 0) & (what == "scale factor"))
            if given is not None and lost.any():
                raise ValueError(
                    f"{self.path}: invalid {what} {values[lost].flat[0]}. It must be finite"
                    f"{' and not 0' if what == 'scale factor' else ''}, as {self.dtype}."
                )

    @property
    def dtype(self) -> np.dtype:
        """Type of the physical values: the stored one unless a scale or an offset applies."""
        if self.scale is None and self.offset is None:
            return self.stored_dtype.newbyteorder("=")
        return np.result_type(self.stored_dtype.newbyteorder("="), np.float32)

    def block(self, rows: slice, cols: slice) -> tuple[np.ndarray, np.ndarray | None]:
        """Read physical values of some rows and columns, and where they are valid.

        The mask is as small as broadcasting allows, and None where every finite value is valid.
        Values are copied: what a memory map has touched counts as this process's memory until it
        is closed.
        """
        stored = self.load(rows, cols)
        mask = _compact(self._valid(stored, rows, cols))
        values = np.array(self._physical(stored)) if self.lazy else self._physical(stored)
        if self.mask is None:
            return values, mask
        own = self.mask[rows, cols]
        return values, own if mask is None else mask & own

    def read_part(self, rows: slice, cols: slice) -> Cube:
        """Read some rows and columns; the metadata stay those of the whole cube."""
        return self._cube(*self.block(rows, cols))

    def read(self) -> Cube:
        """Read the whole cube, block by block; a memory map without scale stays one."""
        rows, cols, bands = self.shape
        everything = slice(None)
        plain = self.scale is None and self.offset is None
        if self.lazy and plain and not self._needs_pass():
            return self._cube(self.load(everything, everything), self._joint(self._band_mask()))
        valid = np.ones(self.shape, dtype=bool) if self._needs_pass() else None
        values = None if self.lazy and plain else np.empty(self.shape, self.dtype)
        for block in strips(0, rows, max(1, _BLOCK // (cols * bands))):
            stored = self.load(block, everything)
            if values is not None:
                values[block] = self._physical(stored)
            if valid is not None:
                valid[block] = self._valid(stored, block, everything)
        if values is None:
            values = self.load(everything, everything)
        mask = self._band_mask() if valid is None else _compact(valid)
        return self._cube(values, self._joint(mask))

    def select_bands(self, bands: Any) -> Source:
        """Return the same source with some of its bands; see `parse_bands`."""
        index = parse_bands(bands, self.shape[2], self.wavelengths)
        step = np.diff(index)
        # A slice of a memory map stays a memory map; an index array would copy it.
        key: Any = index
        if len(index) == 1 or (step == 1).all():
            key = slice(int(index[0]), int(index[-1]) + 1)
        load, quality = self.load, self.quality

        def pick(item: Any) -> Any:
            return item[index] if isinstance(item, np.ndarray) and item.ndim == 1 else item

        metadata = dict(self.metadata)
        for name in PER_BAND:
            items = metadata.get(name)
            if isinstance(items, (list, tuple)) and len(items) == self.shape[2]:
                metadata[name] = [items[i] for i in index]
        return replace(
            self,
            shape=(self.shape[0], self.shape[1], len(index)),
            load=lambda rows, cols: load(rows, cols)[..., key],
            wavelengths=pick(self.wavelengths),
            good_bands=pick(self.good_bands),
            scale=pick(self.scale),
            offset=pick(self.offset),
            metadata=metadata,
            lazy=self.lazy and isinstance(key, slice),
            quality=None if quality is None else lambda r, c: _of_bands(quality(r, c), key),
        )

    def with_scale(self, scale: float) -> Source:
        """Return the same source with another scale factor and no offset."""
        if not (np.isfinite(scale) and scale != 0):
            raise ValueError(f"Invalid scale {scale}. It must be a finite number other than 0.")
        metadata = {**self.metadata, "scale_factor": float(scale)}
        metadata.pop("add_offset", None)
        factor = None if scale == 1 else float(scale)
        return replace(self, scale=factor, offset=None, metadata=metadata)

    def with_nodata(self, nodata: float) -> Source:
        """Return the same source with another no-data value (as stored, before the scale)."""
        return replace(
            self, nodata=float(nodata), metadata={**self.metadata, "nodata": float(nodata)}
        )

    def with_mask(self, mask: np.ndarray) -> Source:
        """Return the same source with a mask of the user's, (row, col) or (row, col, band)."""
        whole = broadcast_mask(mask, self.shape)
        small = np.shape(mask) == self.shape[:2]
        return replace(self, mask=np.asarray(mask)[..., None] if small else whole)

    def _joint(self, mask: np.ndarray | None) -> np.ndarray | None:
        """Return the mask of the file and the user's, as one."""
        if self.mask is None or mask is None:
            return mask if self.mask is None else self.mask
        return mask & self.mask

    def _physical(self, stored: np.ndarray) -> np.ndarray:
        if self.scale is None and self.offset is None:
            return stored
        with np.errstate(all="ignore"):  # what leaves the type's range is not valid
            values = stored.astype(self.dtype)
            if self.scale is not None:
                values *= np.asarray(self.scale, dtype=self.dtype)
            if self.offset is not None:
                values += np.asarray(self.offset, dtype=self.dtype)
        if self.nodata is not None:
            values[~self._has_data(stored)] = np.nan
        return values

    def _has_data(self, stored: np.ndarray) -> np.ndarray:
        if self.stored_dtype.kind == "f":
            has_data = np.isfinite(stored)
            if self.nodata is not None and np.isfinite(self.nodata):
                with np.errstate(over="ignore"):  # beyond the type's range it is infinite
                    has_data &= stored != self.stored_dtype.type(self.nodata)
            return has_data
        # A value outside the integer type's range cannot occur.
        if self.nodata is None or not float(self.nodata).is_integer():
            return np.ones(stored.shape, dtype=bool)
        return stored != int(self.nodata)

    def _valid(self, stored: np.ndarray, rows: slice, cols: slice) -> np.ndarray:
        valid = self._has_data(stored)
        if self.quality is not None:
            valid &= self.quality(rows, cols)
        return valid if self.good_bands is None else valid & self.good_bands

    def _needs_pass(self) -> bool:
        """Whether the values must be looked at to know which are valid."""
        if self.nodata is not None or self.quality is not None:
            return True
        return (
            self.stored_dtype.kind == "f"
            and self.good_bands is not None
            and not self.good_bands.all()
        )

    def _band_mask(self) -> np.ndarray | None:
        if self.good_bands is None or self.good_bands.all():
            return None
        return self.good_bands[None, None, :].copy()

    def _cube(self, values: np.ndarray, mask: np.ndarray | None) -> Cube:
        return Cube(values, self.wavelengths, mask, dict(self.metadata))


def _of_bands(flags: np.ndarray, key: Any) -> np.ndarray:
    """Return the flags of some bands; one flag for all bands stays one."""
    chosen: np.ndarray = flags if flags.shape[2] == 1 else flags[..., key]
    return chosen


def _compact(mask: np.ndarray) -> np.ndarray | None:
    """Return the smallest array that broadcasts to ``mask``; None when everything is valid."""
    if mask.all():
        return None
    for small in (mask[:1, :1, :], mask[:, :, :1]):
        if np.array_equal(np.broadcast_to(small, mask.shape), mask):
            return small.copy()
    return mask


def parse_bands(
    bands: Any, n_bands: int, wavelengths: np.ndarray | Sequence[float] | None = None
) -> np.ndarray:
    """Return the indices of the chosen bands.

    Parameters
    ----------
    bands
        Indices from 0, a boolean per band, a slice, or text: ``"0:50,60"`` in indices (the end is
        left out, as in Python) or ``"450nm:900nm"`` in wavelengths (the end is kept).

    Examples
    --------
    >>> parse_bands("0:3,7", 10).tolist()
    [0, 1, 2, 7]
    >>> parse_bands("450nm:600nm", 4, [400.0, 450.0, 550.0, 650.0]).tolist()
    [1, 2]
    """
    if isinstance(bands, str):
        index = _bands_from_text(bands, n_bands, wavelengths)
    elif isinstance(bands, slice):
        index = np.arange(n_bands)[bands]
    else:
        index = np.asarray(bands)
        if index.dtype == bool:
            if index.shape != (n_bands,):
                raise ValueError(
                    f"Invalid bands: {index.size} flags given for {n_bands} bands. "
                    "There must be one per band."
                )
            index = np.flatnonzero(index)
    if index.ndim != 1 or index.size == 0 or index.dtype.kind not in "iu":
        raise ValueError(f"Invalid bands {bands!r}. They must select at least one band.")
    if index.min() < 0 or index.max() >= n_bands:
        raise ValueError(
            f"Invalid bands {bands!r}. They must lie between 0 and {n_bands - 1}, "
            f"as there are {n_bands} bands."
        )
    if len(np.unique(index)) != len(index):
        raise ValueError(f"Invalid bands {bands!r}. Each band can be chosen once.")
    return index.astype(np.intp)


def _bands_from_text(
    text: str, n_bands: int, wavelengths: np.ndarray | Sequence[float] | None
) -> np.ndarray:
    chosen: list[int] = []
    for part in text.replace(" ", "").split(","):
        ends = part.split(":")
        try:
            if "nm" in part:
                if wavelengths is None:
                    raise ValueError(
                        f"Invalid bands {text!r}: the cube has no wavelengths. "
                        "Bands must be given by index, or wavelengths (--wavelengths) name a "
                        "file with the centres."
                    )
                low, high = (float(end.removesuffix("nm")) if end else None for end in ends)
                centres = np.asarray(wavelengths)
                inside = (centres >= (low or 0)) & (centres <= (np.inf if high is None else high))
                chosen += np.flatnonzero(inside).tolist()
            elif len(ends) == 1:
                chosen.append(int(part))
            else:
                start, stop = (int(end) if end else None for end in ends)
                if (stop or 0) > n_bands or (start or 0) < 0:
                    chosen += [start or 0, (stop or 1) - 1]  # reported as out of range
                else:
                    chosen += range(n_bands)[start:stop]
        except ValueError as error:
            if str(error).startswith("Invalid bands"):
                raise
            raise ValueError(
                f"Invalid bands {text!r}. They must be indices or ranges such as '0:50,60' "
                "or '450nm:900nm'."
            ) from None
    # Beyond the bands is beyond them, however many digits it has.
    return np.array([max(-1, min(index, n_bands)) for index in chosen], dtype=np.intp)


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
