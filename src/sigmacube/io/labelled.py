"""Results as labelled datasets: netCDF-4 and Zarr, in the layout of `sigmacube.io.dataset`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import xarray as xr

    from sigmacube.result import DenoisedCube

__all__ = ["NETCDF", "ZARR"]

#: Longest side of a chunk: bands, rows and columns are all read in part by some user.
_CHUNK = 64


def _dataset(result: DenoisedCube, dtype: str) -> xr.Dataset:
    from sigmacube.io import dataset

    made = dataset.from_result(result)
    name = made.attrs["sigmacube_variable"]
    for key in (name, f"{name}_uncertainty", "residual_ratio"):
        if key in made:
            made[key] = made[key].astype(dtype)
    return made


def _chunks(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(min(size, _CHUNK) for size in shape)


def _fill(variable: xr.Variable, cubes: bool) -> Any:
    return np.array(np.nan, variable.dtype)[()] if cubes and variable.dtype.kind == "f" else None


class _NetCDF:
    """netCDF-4 through h5netcdf."""

    @staticmethod
    def files(path: Path, *, uncertainty: bool, rejected: bool) -> list[Path]:
        return [path]

    @staticmethod
    def write(result: DenoisedCube, names: Mapping[Path, Path], path: Path, dtype: str) -> None:
        made = _dataset(result, dtype)
        encoding: dict[str, dict[str, Any]] = {}
        for key, variable in made.variables.items():
            # Coordinates must not carry a fill value.
            settings: dict[str, Any] = {"_FillValue": _fill(variable, key in made.data_vars)}
            if variable.ndim and variable.dtype.kind in "iuf":
                settings |= {"zlib": True, "complevel": 4, "shuffle": True}
                settings["chunksizes"] = _chunks(variable.shape)
            encoding[str(key)] = settings
        made.to_netcdf(names[path], engine="h5netcdf", format="NETCDF4", encoding=encoding)

    @staticmethod
    def read(path: Path) -> DenoisedCube:
        import xarray as xr

        from sigmacube.io import dataset

        try:
            with xr.open_dataset(path, engine="h5netcdf") as opened:
                loaded = opened.load()
        except OSError as error:
            reason = " ".join(str(error).split())
            raise ValueError(f"not readable as netCDF ({reason}).") from None
        return dataset.to_result(loaded)


class _Zarr:
    """Zarr format 3, with consolidated metadata left out as its specification is not final."""

    @staticmethod
    def files(path: Path, *, uncertainty: bool, rejected: bool) -> list[Path]:
        from sigmacube.io.zarr import library

        library()
        return [path]

    @staticmethod
    def write(result: DenoisedCube, names: Mapping[Path, Path], path: Path, dtype: str) -> None:
        made = _dataset(result, dtype)
        encoding = {
            str(key): {"_FillValue": _fill(variable, key in made.data_vars)}
            | ({"chunks": _chunks(variable.shape)} if variable.ndim else {})
            for key, variable in made.variables.items()
        }
        made.to_zarr(names[path], mode="w-", zarr_format=3, consolidated=False, encoding=encoding)

    @staticmethod
    def read(path: Path) -> DenoisedCube:
        import xarray as xr

        from sigmacube.io import dataset
        from sigmacube.io.zarr import library

        library()
        try:
            with xr.open_zarr(path, consolidated=False, chunks=None) as opened:
                loaded = opened.load()
        except (OSError, KeyError) as error:
            reason = " ".join(str(error).split())
            raise ValueError(f"not readable as Zarr ({reason}).") from None
        return dataset.to_result(loaded)


NETCDF = _NetCDF()
ZARR = _Zarr()
