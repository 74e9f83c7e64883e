"""A result in a file, read by rows and columns: what products of large scenes are made from."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import xarray as xr

from sigmacube.core.lowrank.errors import LowRankErrors, mean_gap_factor
from sigmacube.io.dataset import Header, read_cube, read_header
from sigmacube.io.factors import StoredFactors
from sigmacube.result import DenoisedCube

__all__ = ["OpenedResult", "ResultPart", "open_result"]

Span = tuple[int, int]
#: Elements that are looked at together.
STREAMED = 4_000_000


@dataclass(frozen=True, eq=False)
class ResultPart(DenoisedCube):
    """Some rows and columns of a result, with the windows over them."""

    with_values: np.ndarray | None = None
    """(band,) True for bands with any value in the whole result."""
    origin: Span = (0, 0)
    """Pixel of the whole result that this part starts at."""

    def has_values(self) -> np.ndarray:
        """Return (band,) True for bands with any value in the whole result."""
        assert self.with_values is not None
        return self.with_values


@dataclass(frozen=True, eq=False)
class OpenedResult:
    """A result with window factors in an open file."""

    path: Path
    dataset: xr.Dataset
    header: Header
    factors: StoredFactors

    @cached_property
    def shape(self) -> tuple[int, int, int]:
        """Rows, columns and bands."""
        rows, cols, bands = (self.dataset.sizes[dim] for dim in self.header.axes)
        return rows, cols, bands

    def bytes_in_memory(self) -> float:
        """Return what the whole result takes in memory while a product is made of it."""
        grid = self.factors.grid
        window = grid.rows.size * grid.cols.size
        components = int(self.factors.ranks.sum()) * (window + grid.bands.size)
        padding = self.factors.ranks.size * max(int(self.factors.ranks.max(initial=1)), 1)
        padded = padding * (window + grid.bands.size)
        cubes = self.shape[0] * self.shape[1] * self.shape[2] * 24
        return 4.0 * components + 12.0 * padded + 12.0 * self.factors.ranks.size * window + cubes

    def strips(self) -> Iterator[slice]:
        """Yield rows that are looked at together."""
        height = max(1, STREAMED // (self.shape[1] * self.shape[2]))
        for start in range(0, self.shape[0], height):
            yield slice(start, min(start + height, self.shape[0]))

    def estimate(self, rows: slice, cols: slice = slice(None)) -> np.ndarray:
        """Return (row, col, band) the estimate of some rows and columns."""
        return self._cube(self.header.name, rows, cols)

    def _cube(self, key: str, rows: slice, cols: slice) -> np.ndarray:
        here = self.dataset[[key]].isel({self.header.axes[0]: rows, self.header.axes[1]: cols})
        found = read_cube(here, self.header, key)
        assert found is not None
        return found

    @cached_property
    def with_values(self) -> np.ndarray:
        """(band,) True for bands with any value."""
        found = np.zeros(self.shape[2], dtype=bool)
        for rows in self.strips():
            found |= np.isfinite(self.estimate(rows)).any(axis=(0, 1))
        return found

    @cached_property
    def _mean_gap_factor(self) -> np.ndarray | None:
        if "factor_inflation" not in self.dataset:
            return None
        strips = (self.factors.gap_factor(rows) for rows in self.strips())
        return mean_gap_factor(strip for strip in strips if strip is not None)

    def empty(self) -> ResultPart:
        """Return a part without pixels, to plan with."""
        return self._part(np.empty((0, 0, self.shape[2])), None, None, (0, 0))

    def part(self, windows: tuple[Span, Span]) -> ResultPart:
        """Return the pixels that some windows (first, stop) along rows and columns span."""
        errors = self.factors.read(self.header.noise, self.shape[2], windows)
        errors = replace(errors, mean_gap_factor=self._mean_gap_factor)
        grid = errors.factors.grid
        rows, cols = (
            slice(axis.origin, axis.origin + axis.length) for axis in (grid.rows, grid.cols)
        )
        std = self._cube(f"{self.header.name}_uncertainty", rows, cols)
        return self._part(self.estimate(rows, cols), std, errors, grid.origin)

    def _part(
        self,
        estimate: np.ndarray,
        std: np.ndarray | None,
        errors: LowRankErrors | None,
        origin: Span,
    ) -> ResultPart:
        header, none = self.header, np.empty((0, 0))
        return ResultPart(
            estimate,
            std,
            none,
            header.noise,
            none,
            wavelengths=header.wavelengths,
            metadata=header.metadata,
            settings=header.settings,
            error_model=errors,
            with_values=self.with_values,
            origin=origin,
        )


@contextmanager
def open_result(path: str | Path) -> Iterator[OpenedResult]:
    """Open a result that was written with its window factors; nothing large is read.

    Parameters
    ----------
    path
        A .nc file or .zarr store that `sigmacube denoise --keep-factors` wrote.
    """
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file.")
    with _open(path) as dataset:
        try:
            header, factors = read_header(dataset), StoredFactors.open(dataset)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None
        if factors is None:
            raise ValueError(
                f"{path}: no window factors. It must have been written by "
                "'sigmacube denoise --keep-factors'."
            )
        yield OpenedResult(path, dataset, header, factors)


def _open(path: Path) -> xr.Dataset:
    """Open a dataset whose arrays are read when they are asked for, and not kept."""
    try:
        if path.suffix.lower() == ".zarr":
            from sigmacube.io.zarr import library

            library()
            return xr.open_dataset(path, engine="zarr", consolidated=False, cache=False)
        if path.suffix.lower() in (".nc", ".nc4"):
            return xr.open_dataset(path, engine="h5netcdf", cache=False)
    except (OSError, KeyError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"{path}: not readable as a result ({reason}).") from None
    raise ValueError(f"{path}: only .nc and .zarr can keep the window factors.")
