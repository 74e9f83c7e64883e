"""A result in a file, read by block: a spectrum, a picture, or a part with its error model.

What looks at a result (report, viewer, products of large scenes) must not need the memory that
made it. A `ResultFile` holds what is small (wavelengths, noise, ranks, settings) and reads the
cubes on demand; pictures that were read are kept in a cache of bounded size.
"""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np

from sigmacube.core.card import Card, size_of, span_of
from sigmacube.core.parallel import strips
from sigmacube.core.validity import check_pixel
from sigmacube.core.whitening import std_of_noise
from sigmacube.core.windows import Span, nearest_windows
from sigmacube.io.places import check_plain, guarded, local_path, reading

if TYPE_CHECKING:
    from sigmacube.core.errors import ErrorModel
    from sigmacube.core.stored import StoredErrors
    from sigmacube.result import DenoisedCube

#: Bytes that one read may take, and that all pictures kept for later may take together.
_TILE_BYTES = 32_000_000
_CACHE_BYTES = 256_000_000
#: Elements that are looked at together.
_STREAMED = 4_000_000

Growing = Callable[[np.ndarray], bool]
"""Takes a picture as it grows; the reading stops where it returns False."""
Load = Callable[[str, slice, slice, slice], np.ndarray]


class ResultFile(Card):
    """A result, opened but not read.

    Parameters
    ----------
    name
        What to call it: the file's name.
    about
        The result with one pixel of its cubes: everything that is small.
    cubes
        Names of the cubes there are: ``estimate`` and perhaps ``std`` and ``rejected``.
    shape, chunks
        Of the cubes (row, col, band), and of the blocks that the file stores together.
    load
        Reads values (row, col, band) of the named cube in contiguous slices.
    correlation
        Reads the stored error correlation ``(axis, slice)`` along rows (0) or columns (1); None
        where the file states none.
    errors
        The stored error model, where the file has one.
    closing
        What to close at the end.

    Examples
    --------
    >>> import sigmacube as sc
    >>> noisy = sc.synthetic.add_noise(sc.synthetic.scene((24, 30, 40), rng=1), 0.05, rng=2)
    >>> source = open_result(sc.denoise(noisy, 0.05, window=12))
    >>> source.shape, source.spectrum("std", 3, 4).shape
    ((24, 30, 40), (40,))
    >>> source.image("estimate", 7, step=2).shape
    (12, 15)
    """

    def __init__(
        self,
        name: str,
        about: DenoisedCube,
        cubes: tuple[str, ...],
        shape: tuple[int, int, int],
        chunks: tuple[int, int, int],
        load: Load,
        *,
        correlation: Callable[[int, slice], np.ndarray] | None = None,
        errors: StoredErrors | None = None,
        closing: ExitStack | None = None,
    ) -> None:
        self.name, self.about, self.cubes = name, about, cubes
        self.shape, self.chunks, self._load = shape, chunks, guarded(name, load)
        self.correlation = None if correlation is None else guarded(name, correlation)
        self.errors = errors
        self._closing = closing or ExitStack()
        self._kept: OrderedDict[Any, np.ndarray] = OrderedDict()
        self._lock = Lock()

    def _facts(self) -> Mapping[str, str]:
        facts = {"file": self.name, "size": size_of(self.shape)} | span_of(self.wavelengths)
        return facts | {"holds": ", ".join(self.cubes)}

    def __enter__(self) -> ResultFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._closing.close()

    @property
    def wavelengths(self) -> np.ndarray | None:
        """(bands,) centres in nm."""
        return self.about.wavelengths

    @property
    def has_errors(self) -> bool:
        """Whether there is an error model."""
        return self.errors is not None or self.about.error_model is not None

    @cached_property
    def error_model(self) -> ErrorModel | None:
        """Covariances of the errors, read on first use; None where they were not kept."""
        with reading(self.name):
            return self.about.error_model if self.errors is None else self.errors.read()

    def known_errors(self) -> StoredErrors:
        """Return the stored error model, or say that there is none."""
        if self.errors is None:
            raise ValueError(
                f"{self.name}: no window factors. It must have been written by "
                "'sigmacube denoise --keep-factors', as .nc or .zarr."
            )
        return self.errors

    @property
    def noise_std(self) -> np.ndarray:
        """(bands,) standard deviation of the noise."""
        return np.broadcast_to(std_of_noise(self.about.noise), (self.shape[2],))

    @property
    def good_bands(self) -> np.ndarray:
        """(bands,) False where the input calls a band bad."""
        good = self.about.metadata.get("good_bands")
        if good is None or len(good) != self.shape[2]:
            return np.ones(self.shape[2], dtype=bool)
        return np.asarray(good, dtype=bool)

    def spectrum(self, name: str, row: int, col: int) -> np.ndarray:
        """Return the (bands,) values of one pixel."""
        check_pixel(row, col, self.shape, "result")
        return self.block(name, slice(row, row + 1), slice(col, col + 1))[0, 0]

    def block(self, name: str, rows: slice, cols: slice) -> np.ndarray:
        """Return the (row, col, band) values of a block."""
        return self._load(name, rows, cols, slice(0, self.shape[2]))

    def load(self) -> DenoisedCube:
        """Read the whole result."""
        rows, cols, _ = self.shape
        read = {name: _native(self.block(name, slice(0, rows), slice(0, cols)))
                for name in self.cubes}  # fmt: skip
        return self._result(read, self.error_model)

    def part(self, rows: Span, cols: Span) -> tuple[DenoisedCube, Span]:
        """Read some rows and columns, and as much around them as their error model needs.

        Returns
        -------
        DenoisedCube, (int, int)
            The part, and the pixel of the whole scene that it starts at.
        """
        errors = self.known_errors()
        with reading(self.name):
            down, across = errors.span(rows, cols)
            model = errors.read(rows, cols)
        read = {name: _native(self.block(name, slice(*down), slice(*across)))
                for name in ("estimate", "std")}  # fmt: skip
        part = self._result(read, model)
        return replace(part, filled_bands=self.filled_bands), (down[0], across[0])

    def empty(self) -> DenoisedCube:
        """Return the result without pixels, to plan with."""
        none = np.empty((0, 0, self.shape[2]))
        return replace(self.about, estimate=none, std=None, filled_bands=self.filled_bands)

    def _result(self, read: dict[str, np.ndarray], errors: Any) -> DenoisedCube:
        rejected = read.get("rejected")
        return replace(
            self.about,
            estimate=read["estimate"],
            std=read.get("std"),
            rejected=None if rejected is None else rejected.astype(bool),
            error_model=errors,
        )

    def bytes_in_memory(self) -> float:
        """Return what the whole result takes in memory while a product is made of it."""
        rows, cols, bands = self.shape
        with reading(self.name):
            return self.known_errors().bytes_in_memory() + 24.0 * rows * cols * bands

    def strips(self) -> list[slice]:
        """Return rows that are looked at together, strip by strip."""
        height = max(1, _STREAMED // (self.shape[1] * self.shape[2]))
        return strips(0, self.shape[0], height)

    @cached_property
    def filled_bands(self) -> np.ndarray:
        """(band,) True for bands with any value."""
        found = np.zeros(self.shape[2], dtype=bool)
        for rows in self.strips():
            block = self.block("estimate", rows, slice(0, self.shape[1]))
            found |= np.isfinite(block).any(axis=(0, 1))
        return found

    def image(
        self,
        name: str,
        band: int,
        *,
        rows: slice | None = None,
        cols: slice | None = None,
        step: int = 1,
        progress: Growing | None = None,
    ) -> np.ndarray:
        """Return one band of a part of the scene, every ``step``-th pixel of it.

        A file stores neighbouring bands together, so they are kept too, as far as the cache holds:
        the next band then costs nothing.

        Parameters
        ----------
        name
            ``"estimate"``, ``"std"`` or ``"rejected"``.
        band
            Index of the band.
        rows, cols
            The part; all by default.
        step
            Distance of the pixels taken.
        progress
            Called with the unfinished picture as it grows; the reading stops where it returns
            False.
        """
        if not 0 <= band < self.shape[2]:
            raise ValueError(f"Invalid band {band}. It must be from 0 to {self.shape[2] - 1}.")
        rows, cols = rows or slice(0, self.shape[0]), cols or slice(0, self.shape[1])
        depth = self.chunks[2]
        count = len(range(rows.start, rows.stop, step)) * len(range(cols.start, cols.stop, step))
        if 4 * count * depth > _CACHE_BYTES / 3:
            depth = 1
        first = band // depth * depth
        key = (name, first, depth, rows.start, rows.stop, cols.start, cols.stop, step)
        layer = self._known(key)
        if layer is None:
            report = None if progress is None else lambda part: progress(part[..., band - first])
            bands = slice(first, min(first + depth, self.shape[2]))
            layer, whole = self._gather(name, rows, cols, bands, step, report)
            if whole:
                self._keep(key, layer)
        return layer[..., band - first]

    def window_image(
        self,
        name: str,
        *,
        rows: slice | None = None,
        cols: slice | None = None,
        step: int = 1,
    ) -> np.ndarray:
        """Return ``ranks`` or ``residual_ratio`` per pixel: that of the window centred nearest."""
        values = np.asarray(getattr(self.about, name), dtype=np.float64)
        values = np.nanmax(values, axis=2) if values.ndim == 3 else values
        parts = (rows or slice(0, self.shape[0]), cols or slice(0, self.shape[1]))
        pixels = [np.arange(part.start, part.stop, step) for part in parts]
        chosen = nearest_windows(self.about.settings, self.shape, values.shape, pixels)
        return values[np.ix_(*chosen)]

    def thinned(self, limit: int) -> tuple[DenoisedCube, int]:
        """Return the result with every step-th pixel, of at most ``limit`` elements; and the step.

        Rank and residual ratio stay those of the windows of the whole scene.
        """
        rows, cols, bands = self.shape
        step = 1
        while -(-rows // step) * -(-cols // step) * bands > limit:
            step += 1
        every = (slice(0, rows), slice(0, cols), slice(0, bands))
        read = {name: self._gather(name, *every, step)[0] for name in self.cubes}
        return self._result(read, self.about.error_model), step

    def _known(self, key: Any) -> np.ndarray | None:
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
            return self._kept.get(key)

    def _keep(self, key: Any, layer: np.ndarray) -> None:
        with self._lock:
            self._kept[key] = layer
            while sum(item.nbytes for item in self._kept.values()) > _CACHE_BYTES:
                self._kept.popitem(last=False)

    def _gather(
        self,
        name: str,
        rows: slice,
        cols: slice,
        bands: slice,
        step: int,
        progress: Growing | None = None,
    ) -> tuple[np.ndarray, bool]:
        """Return every step-th pixel of a part, read by tiles, and whether it is whole."""
        at = [np.arange(part.start, part.stop, step) for part in (rows, cols)]
        depth = bands.stop - bands.start
        out = np.full((len(at[0]), len(at[1]), depth), np.nan, dtype=np.float32)
        sides = _tile_sides(self.chunks, (rows.stop - rows.start, cols.stop - cols.start), depth)
        for i in _groups(at[0], sides[0]):
            for j in _groups(at[1], sides[1]):
                r, c = at[0][i], at[1][j]
                part = slice(int(r[0]), int(r[-1]) + 1), slice(int(c[0]), int(c[-1]) + 1)
                out[i, j] = self._load(name, *part, bands)[::step, ::step]
                if progress is not None and not progress(out):
                    return out, False
        return out, True


def _tile_sides(chunks: tuple[int, int, int], size: tuple[int, int], depth: int) -> tuple[int, int]:
    """Return sides of tiles: multiples of the chunks that stay below `_TILE_BYTES`."""
    rows, cols = (min(chunk, whole) for chunk, whole in zip(chunks, size, strict=False))
    cols *= max(1, min(-(-size[1] // cols), _TILE_BYTES // (4 * rows * cols * depth)))
    rows *= max(1, min(-(-size[0] // rows), _TILE_BYTES // (4 * rows * cols * depth)))
    return rows, cols


def _groups(at: np.ndarray, side: int) -> Iterator[slice]:
    """Yield the runs of positions that lie in one tile."""
    cuts = np.flatnonzero(np.diff(at // side)) + 1
    edges = [0, *cuts.tolist(), len(at)]
    yield from (slice(a, b) for a, b in itertools.pairwise(edges))


def _native(values: np.ndarray) -> np.ndarray:
    """Return an array in the order of this machine."""
    return np.ascontiguousarray(values, dtype=values.dtype.newbyteorder("="))


def open_result(source: DenoisedCube | str | Path) -> ResultFile:
    """Open a result, in memory or in a file that `sigmacube.io.write` made, without reading it.

    Parameters
    ----------
    source
        A result, or its path as it was given to `DenoisedCube.save`.
    """
    if not isinstance(source, str | Path):
        return _in_memory(source)
    from sigmacube.io import writer_of

    path = local_path(source)
    check_plain(path)
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file.")
    with reading(path):
        opened: ResultFile = writer_of(path, "no result has the suffix {suffix}").open(path)
        try:
            _check(opened)
        except BaseException:
            opened.close()
            raise
    return opened


def _check(opened: ResultFile) -> None:
    """Refuse a result whose parts do not fit each other: the file is damaged."""
    about, (rows, cols, bands) = opened.about, opened.shape
    noise, ranks = np.asarray(about.noise), np.asarray(about.ranks)
    ratio = np.asarray(about.residual_ratio)
    rules = {
        "cubes of numbers": min(rows, cols, bands) > 0 and about.estimate.dtype.kind in "iuf"
        and (about.std is None or about.std.dtype.kind in "iuf"),
        "a noise of numbers, one per band or a covariance": noise.dtype.kind in "iuf"
        and noise.shape in ((), (bands,), (bands, bands)),
        "one rank per window": ranks.dtype.kind in "iuf" and ranks.ndim in (2, 3)
        and ranks.size > 0 and ratio.dtype.kind in "iuf" and ratio.shape == ranks.shape,
        "one wavelength per band": about.wavelengths is None
        or np.shape(about.wavelengths) == (bands,),
        "one factor per pixel": about.noise_scale is None
        or np.shape(about.noise_scale) == (rows, cols),
    }  # fmt: skip
    for rule, holds in rules.items():
        if not holds:
            raise ValueError(f"damaged: a result of {rows} x {cols} x {bands} needs {rule}.")


def _in_memory(result: DenoisedCube) -> ResultFile:
    arrays = {"estimate": result.estimate, "std": result.std, "rejected": result.rejected}
    there = {key: values for key, values in arrays.items() if values is not None}
    name = str(result.metadata.get("source") or result.metadata.get("name") or "result")
    rows, cols, bands = result.estimate.shape

    def load(key: str, rows: slice, cols: slice, bands: slice) -> np.ndarray:
        return np.asarray(there[key][rows, cols, bands])

    return ResultFile(name, result, tuple(there), (rows, cols, bands), (rows, cols, 1), load)
