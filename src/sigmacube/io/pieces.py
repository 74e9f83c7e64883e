"""Results read by piece: a spectrum, a block, or one band of the scene thinned to a picture.

What looks at a result (report, viewer) must not need the memory that made it. A `ResultSource`
holds what is small (wavelengths, noise, ranks, settings) and reads the cubes on demand; pictures
that were read are kept in a cache of bounded size.
"""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np

from sigmacube.core.windows import Axis
from sigmacube.io.correlation import window_sides

if TYPE_CHECKING:
    import xarray as xr

    from sigmacube.core.errors import ErrorModel
    from sigmacube.result import DenoisedCube

__all__ = [
    "Observed",
    "Piecewise",
    "ResultSource",
    "find_observed",
    "mean_spectrum",
    "open_observed",
    "open_result",
]

#: Bytes that one read may take, and that all pictures kept for later may take together.
_TILE_BYTES = 32_000_000
_CACHE_BYTES = 256_000_000

Progress = Callable[[np.ndarray], bool]


@dataclass(frozen=True, eq=False)
class Piecewise:
    """One cube of a result, read by block."""

    shape: tuple[int, int, int]
    """(rows, cols, bands)."""
    chunks: tuple[int, int, int]
    """Sides of the blocks that the file stores together."""
    load: Callable[[slice, slice, slice], np.ndarray]
    """Values (row, col, band) of contiguous slices."""


class ResultSource:
    """A result, opened but not read.

    Parameters
    ----------
    name
        What to call it: the file's name.
    about
        The result with one pixel of its cubes: everything that is small.
    cubes
        ``estimate`` and, where they exist, ``std`` and ``rejected``.
    correlation
        Reads the stored error correlation ``(axis, slice)`` along rows (0) or columns (1); None
        where the file states none.
    errors
        Reads the window factors, where the file has them.
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
        cubes: Mapping[str, Piecewise],
        *,
        correlation: Callable[[int, slice], np.ndarray] | None = None,
        errors: Callable[[], ErrorModel | None] | None = None,
        closing: ExitStack | None = None,
    ) -> None:
        self.name, self.about, self.cubes = name, about, dict(cubes)
        self.shape = self.cubes["estimate"].shape
        self.correlation = correlation
        self.has_errors = errors is not None
        self._errors = errors
        self._closing = closing or ExitStack()
        self._kept: OrderedDict[Any, np.ndarray] = OrderedDict()
        self._lock = Lock()

    def __enter__(self) -> ResultSource:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._closing.close()

    @property
    def wavelengths(self) -> np.ndarray | None:
        """(bands,) centres in nm."""
        return self.about.wavelengths

    @cached_property
    def error_model(self) -> ErrorModel | None:
        """Covariances of the errors, read on first use; None where factors were not kept."""
        return None if self._errors is None else self._errors()

    @property
    def noise_std(self) -> np.ndarray:
        """(bands,) standard deviation of the noise."""
        level = np.asarray(self.about.noise, dtype=np.float64)
        std = np.sqrt(np.diag(level)) if level.ndim == 2 else level
        return np.broadcast_to(std, (self.shape[2],))

    @property
    def good_bands(self) -> np.ndarray:
        """(bands,) False where the input calls a band bad."""
        good = self.about.metadata.get("good_bands")
        if good is None or len(good) != self.shape[2]:
            return np.ones(self.shape[2], dtype=bool)
        return np.asarray(good, dtype=bool)

    def spectrum(self, name: str, row: int, col: int) -> np.ndarray:
        """Return the (bands,) values of one pixel."""
        rows, cols, bands = self.shape
        if not (0 <= row < rows and 0 <= col < cols):
            raise ValueError(f"Invalid pixel ({row}, {col}). The result has {rows}×{cols} pixels.")
        read = self.cubes[name].load(slice(row, row + 1), slice(col, col + 1), slice(0, bands))
        return np.asarray(read[0, 0])

    def block(self, name: str, rows: slice, cols: slice) -> np.ndarray:
        """Return the (row, col, band) values of a block."""
        return np.asarray(self.cubes[name].load(rows, cols, slice(0, self.shape[2])))

    def image(
        self,
        name: str,
        band: int,
        *,
        rows: slice | None = None,
        cols: slice | None = None,
        step: int = 1,
        progress: Progress | None = None,
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
        cube = self.cubes[name]
        if not 0 <= band < self.shape[2]:
            raise ValueError(f"Invalid band {band}. It must be from 0 to {self.shape[2] - 1}.")
        rows, cols = rows or slice(0, self.shape[0]), cols or slice(0, self.shape[1])
        depth = cube.chunks[2]
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
        chosen = []
        for axis, part in enumerate((rows, cols)):
            size, count = self.shape[axis], values.shape[axis]
            part = part or slice(0, size)
            pixels = np.arange(part.start, part.stop, step)
            centres = self._window_centres(axis, count)
            chosen.append(np.abs(pixels[:, None] - centres).argmin(axis=1))
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
        rejected = read.get("rejected")
        thin = replace(
            self.about,
            estimate=read["estimate"],
            std=read.get("std"),
            rejected=None if rejected is None else rejected.astype(bool),
        )
        return thin, step

    def _window_centres(self, axis: int, count: int) -> np.ndarray:
        settings = self.about.settings
        window, step = window_sides(settings, "window"), window_sides(settings, "step")
        size = self.shape[axis]
        if window is not None and step is not None and window[axis] <= size:
            starts = Axis(size, window[axis], step[axis]).starts
            if len(starts) == count:
                return np.asarray(starts + (window[axis] - 1) / 2)
        return (np.arange(count) + 0.5) * size / count - 0.5

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
        progress: Progress | None = None,
    ) -> tuple[np.ndarray, bool]:
        """Return every step-th pixel of a part, read by tiles, and whether it is whole."""
        cube = self.cubes[name]
        at = [np.arange(part.start, part.stop, step) for part in (rows, cols)]
        depth = bands.stop - bands.start
        out = np.full((len(at[0]), len(at[1]), depth), np.nan, dtype=np.float32)
        sides = _tile_sides(cube.chunks, (rows.stop - rows.start, cols.stop - cols.start), depth)
        for i in _groups(at[0], sides[0]):
            for j in _groups(at[1], sides[1]):
                r, c = at[0][i], at[1][j]
                tile = cube.load(
                    slice(int(r[0]), int(r[-1]) + 1), slice(int(c[0]), int(c[-1]) + 1), bands
                )
                out[i, j] = tile[::step, ::step]
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


def open_result(source: DenoisedCube | str | Path) -> ResultSource:
    """Open a result, in memory or in a file that `sigmacube.io.write` made, without reading it.

    Parameters
    ----------
    source
        A result, or its path as it was given to `DenoisedCube.save`.
    """
    if not isinstance(source, str | Path):
        return _in_memory(source)
    path = Path(source)
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file.")
    suffix = path.suffix.lower()
    try:
        if suffix in (".nc", ".nc4", ".zarr"):
            return _labelled(path, zarr=suffix == ".zarr")
        if suffix in (".hdr", ".img", ".tif", ".tiff"):
            return _rasters(path, tiff=suffix.startswith(".tif"))
    except ValueError as error:
        text = str(error)
        raise ValueError(text if str(path) in text else f"{path}: {text}") from None
    raise ValueError(
        f"{path}: no result has the suffix {suffix!r}. "
        "It must be one of .nc, .nc4, .zarr, .hdr, .img, .tif, .tiff."
    )


def _in_memory(result: DenoisedCube) -> ResultSource:
    arrays = {"estimate": result.estimate, "std": result.std, "rejected": result.rejected}
    cubes = {key: _array(values) for key, values in arrays.items() if values is not None}
    name = str(result.metadata.get("source") or result.metadata.get("name") or "result")
    model = result.error_model
    return ResultSource(name, result, cubes, errors=None if model is None else lambda: model)


def _array(values: np.ndarray) -> Piecewise:
    rows, cols, bands = values.shape
    return Piecewise((rows, cols, bands), (rows, cols, 1), lambda r, c, b: values[r, c, b])


def _labelled(path: Path, *, zarr: bool) -> ResultSource:
    """Open netCDF or Zarr through xarray's lazy arrays."""
    import xarray as xr

    from sigmacube.io import dataset
    from sigmacube.io.factors import read_factors
    from sigmacube.io.zarr import library

    closing = ExitStack()
    try:
        if zarr:
            library()
            opened = xr.open_dataset(path, engine="zarr", consolidated=False, cache=False)
        else:
            opened = xr.open_dataset(path, engine="h5netcdf", cache=False)
    except (OSError, KeyError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"not readable as {'Zarr' if zarr else 'netCDF'} ({reason}).") from None
    closing.enter_context(opened)
    axes = tuple(str(opened.attrs.get("sigmacube_axes", "")).split())
    name = str(opened.attrs.get("sigmacube_variable", ""))
    one_pixel = {axis: slice(0, 1) for axis in axes[:2] if axis in opened.dims}
    try:
        about = dataset.to_result(_without_factors(opened).isel(one_pixel))
    except ValueError:
        closing.close()
        raise
    stored = {"estimate": name, "std": f"{name}_uncertainty", "rejected": "rejected"}
    cubes = {key: _lazy(opened[v], axes) for key, v in stored.items() if v in opened}

    def correlation(axis: int, part: slice) -> np.ndarray:
        dim = axes[axis]
        return np.asarray(opened[f"err_corr_{dim}"][{dim: part, f"{dim}_2": part}].values)

    def errors() -> ErrorModel | None:
        return read_factors(opened, about.noise, about.estimate.shape[2])

    return ResultSource(
        path.name,
        about,
        cubes,
        correlation=correlation if all(f"err_corr_{a}" in opened for a in axes[:2]) else None,
        errors=errors if "sigmacube_factors" in opened.attrs else None,
        closing=closing,
    )


def _without_factors(opened: xr.Dataset) -> xr.Dataset:
    """Return a dataset without its window factors, which are as large as the cubes."""
    names = [name for name in opened.variables if str(name).startswith("factor_")]
    small = opened.drop_vars(names)
    small.attrs = {key: v for key, v in opened.attrs.items() if key != "sigmacube_factors"}
    return small


def _lazy(array: xr.DataArray, axes: tuple[str, ...]) -> Piecewise:
    chunks = array.encoding.get("chunks") or array.encoding.get("chunksizes") or array.shape
    by_name = dict(zip(map(str, array.dims), chunks, strict=True))
    rows, cols, bands = (array.sizes[axis] for axis in axes)
    sides = tuple(int(by_name[axis]) for axis in axes)

    order = [list(array.dims).index(axis) for axis in axes]

    def load(r: slice, c: slice, b: slice) -> np.ndarray:
        part = array[dict(zip(axes, (r, c, b), strict=True))]
        # Read first: xarray reads a lazily transposed array element by element.
        return np.asarray(part.values).transpose(order)

    return Piecewise((rows, cols, bands), (sides[0], sides[1], sides[2]), load)


def _rasters(path: Path, *, tiff: bool) -> ResultSource:
    """Open an ENVI or GeoTIFF result; what lies beside it tells which parts there are."""
    from sigmacube.io import rasters

    layout = rasters.GEOTIFF if tiff else rasters.ENVI
    about = layout.read(path, slice(0, 1))
    parts = {"estimate": "", "std": "_uncert", "rejected": "_rejected"}
    there = {"estimate": about.estimate, "std": about.std, "rejected": about.rejected}
    cubes = {}
    for key, part in parts.items():
        if there[key] is None:
            continue
        source = layout.get(path, part)
        # A memory map reads single bands; other rasters give whole blocks of rows and columns.
        bands = 1 if source.lazy else source.shape[2]
        sides = (min(64, source.shape[0]), source.shape[1], bands)
        cubes[key] = Piecewise(source.shape, sides, _from_blocks(source.load))
    return ResultSource(path.name, about, cubes)


def _from_blocks(
    load: Callable[[slice, slice], np.ndarray],
) -> Callable[[slice, slice, slice], np.ndarray]:
    return lambda rows, cols, bands: np.asarray(load(rows, cols)[..., bands])


class Observed:
    """The noisy input of a result, read by piece.

    Parameters
    ----------
    name
        What to call it.
    cube
        Its values; NaN where they are masked.
    """

    def __init__(self, name: str, cube: Piecewise) -> None:
        self.name, self.cube = name, cube

    def spectrum(self, row: int, col: int) -> np.ndarray:
        """Return the (bands,) values of one pixel."""
        bands = slice(0, self.cube.shape[2])
        return np.asarray(self.cube.load(slice(row, row + 1), slice(col, col + 1), bands)[0, 0])

    def mean(self, rows: slice, cols: slice) -> np.ndarray:
        """Return the (bands,) mean of a block; NaN for bands without a value."""
        return mean_spectrum(self.cube.load(rows, cols, slice(0, self.cube.shape[2])))

    def picture(self, bands: list[int], step: int) -> np.ndarray:
        """Return some bands of the whole scene, every ``step``-th pixel, read by strips."""
        rows, cols, depth = self.cube.shape
        # Whole groups of rows, so that every step-th one of them is every step-th of the scene.
        strip = max(1, _TILE_BYTES // (8 * cols * depth) // step) * step
        every = slice(0, depth)
        parts = [
            self.cube.load(slice(top, min(top + strip, rows)), slice(0, cols), every)
            for top in range(0, rows, strip)
        ]
        return np.concatenate([part[::step, ::step, bands] for part in parts])


def mean_spectrum(block: np.ndarray) -> np.ndarray:
    """Return the mean over the pixels of a block, band by band, without NaN."""
    finite = np.isfinite(block)
    count = finite.sum(axis=(0, 1))
    total = np.where(finite, block, 0).sum(axis=(0, 1), dtype=np.float64)
    return np.divide(total, count, out=np.full(count.shape, np.nan), where=count > 0)


def open_observed(given: Any, source: ResultSource) -> Observed:
    """Open the noisy input of a result: a file, a `Cube` or an array of the same shape."""
    if isinstance(given, str | Path):
        from sigmacube.io import open_source

        opened = open_source(given)
        name, shape = Path(given).name, opened.shape

        def load(rows: slice, cols: slice, bands: slice) -> np.ndarray:
            return _masked(opened.read_block(rows, cols))[..., bands]

    else:
        values = np.asarray(given.values if hasattr(given, "values") else given)
        name, shape = "observed", values.shape

        def load(rows: slice, cols: slice, bands: slice) -> np.ndarray:
            return np.asarray(values[rows, cols, bands])

    if tuple(shape) != tuple(source.shape):
        raise ValueError(
            f"Invalid observed {name} of shape {shape}. It must be that of the result, "
            f"{source.shape}."
        )
    return Observed(name, Piecewise(source.shape, (1, source.shape[1], source.shape[2]), load))


def _masked(cube: Any) -> np.ndarray:
    values = np.asarray(cube.values, dtype=np.float64)
    return values if cube.mask is None else np.where(cube.mask, values, np.nan)


def find_observed(path: str | Path, source: ResultSource) -> Observed | None:
    """Open the input that a result was made from, where it lies beside the result.

    It must be a plain file name, have the shape of the result and the same scale factor: another
    choice of bands or units would put wrong values beside the estimate.
    """
    metadata = source.about.metadata
    name = str(metadata.get("source") or "")
    beside = Path(path).parent / name
    if not name or Path(name).name != name or not beside.exists() or beside == Path(path):
        return None
    from sigmacube.io import open_source

    try:
        opened = open_source(beside)
        same = opened.metadata.get("scale_factor") == metadata.get("scale_factor")
        return open_observed(beside, source) if same else None
    except (ValueError, OSError):
        return None
