"""Results as netCDF-4 and Zarr, in the layout of `sigmacube.io.cf`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sigmacube.io.atomic import write_netcdf
from sigmacube.io.error_models import arrays_of, creating, open_errors, pack
from sigmacube.io.hdf import check_lengths
from sigmacube.io.places import reason_of
from sigmacube.io.result_file import ResultFile
from sigmacube.io.zarr import library, local_store

if TYPE_CHECKING:
    import xarray as xr

    from sigmacube.error_correlation import ErrorCorrelation
    from sigmacube.result import DenoisedCube

#: Longest side of a chunk: bands, rows and columns are all read in part by some user.
_CHUNK = 64


class _Labelled(ABC):
    """What both formats share."""

    holds_errors = True
    """There is a place for the error model, and for how errors are correlated."""
    is_zarr: bool

    def files(self, path: Path, *, uncertainty: bool, rejected: bool) -> list[Path]:
        return [path]

    def write(
        self,
        result: DenoisedCube,
        names: Mapping[Path, Path],
        path: Path,
        dtype: str,
        correlation: ErrorCorrelation | None = None,
        keep_factors: bool = False,
    ) -> None:
        from sigmacube.io import cf

        made = cf.from_result(result, correlation)
        name = made.attrs["sigmacube_variable"]
        for key in (name, f"{name}_uncertainty", "residual_ratio"):
            if key in made:
                made[key] = made[key].astype(dtype)
        encoding = cf.encoding_of(made)
        for key, variable in made.variables.items():
            encoding[str(key)] |= self.stored_as(variable)
        self.put(made, names[path], encoding)
        if keep_factors:
            kept = arrays_of(result)
            with creating(names[path], zarr=self.is_zarr) as (create, tell):
                tell(pack(lambda: iter([kept]), create))

    def open(self, path: Path) -> ResultFile:
        from sigmacube.io import cf

        closing = ExitStack()
        try:
            dataset = closing.enter_context(self.get(path))
            about = cf.to_result(dataset)
            errors = open_errors(dataset, about.noise, about.estimate.shape[2])
        except (OSError, KeyError) as error:
            closing.close()
            raise ValueError(f"not readable as {self.name} ({reason_of(error)}).") from None
        except BaseException:
            closing.close()
            raise
        names, axes = cf.cubes_in(dataset), cf.axes_of(dataset)

        def load(key: str, rows: slice, cols: slice, bands: slice) -> np.ndarray:
            return cf.read_cube(dataset, names[key], rows, cols, bands)

        def correlation(axis: int, part: slice) -> np.ndarray:
            dim = axes[axis]
            stored = dataset[f"err_corr_{dim}"][{dim: part, f"{dim}_2": part}]
            return np.asarray(stored.values)

        stated = all(f"err_corr_{axis}" in dataset for axis in axes[:2])
        rows, cols, bands = (dataset.sizes[axis] for axis in axes)
        return ResultFile(
            path.name, about, tuple(names), (rows, cols, bands),
            _stored_chunks(dataset[names["estimate"]], axes), load,
            correlation=correlation if stated else None, errors=errors, closing=closing,
        )  # fmt: skip

    name: str

    @abstractmethod
    def stored_as(self, variable: xr.Variable) -> dict[str, Any]:
        """Return how a variable is stored."""

    @abstractmethod
    def put(self, made: xr.Dataset, path: Path, encoding: dict[str, dict[str, Any]]) -> None:
        """Write a dataset."""

    @abstractmethod
    def get(self, path: Path) -> xr.Dataset:
        """Open a dataset whose arrays are read when they are asked for, and not kept."""


def _stored_chunks(array: xr.DataArray, axes: tuple[str, ...]) -> tuple[int, int, int]:
    chunks = array.encoding.get("chunks") or array.encoding.get("chunksizes") or array.shape
    by_name = dict(zip(map(str, array.dims), chunks, strict=True))
    rows, cols, bands = (int(by_name[axis]) for axis in axes)
    return rows, cols, bands


def _chunks(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(min(size, _CHUNK) for size in shape)


class _NetCDF(_Labelled):
    """netCDF-4 through h5netcdf."""

    name, is_zarr = "netCDF", False

    def stored_as(self, variable: xr.Variable) -> dict[str, Any]:
        if not variable.ndim or variable.dtype.kind not in "iuf":
            return {}
        how = {"zlib": True, "complevel": 4, "shuffle": True}
        return {**how, "chunksizes": _chunks(variable.shape)}

    def put(self, made: xr.Dataset, path: Path, encoding: dict[str, dict[str, Any]]) -> None:
        write_netcdf(made, path, encoding)

    def get(self, path: Path) -> xr.Dataset:
        import xarray as xr

        check_lengths(path)
        return xr.open_dataset(path, engine="h5netcdf", cache=False, phony_dims="access")


class _Zarr(_Labelled):
    """Zarr format 3, with consolidated metadata left out as its specification is not final."""

    name, is_zarr = "Zarr", True

    def files(self, path: Path, *, uncertainty: bool, rejected: bool) -> list[Path]:
        library()
        return [path]

    def stored_as(self, variable: xr.Variable) -> dict[str, Any]:
        return {"chunks": _chunks(variable.shape)} if variable.ndim else {}

    def put(self, made: xr.Dataset, path: Path, encoding: dict[str, dict[str, Any]]) -> None:
        library()
        made.to_zarr(path, mode="w-", zarr_format=3, consolidated=False, encoding=encoding)

    def get(self, path: Path) -> xr.Dataset:
        import xarray as xr

        store = local_store(path)
        return xr.open_dataset(store, engine="zarr", consolidated=False, cache=False)


NETCDF = _NetCDF()
ZARR = _Zarr()
