"""From finished tiles to the output that the user named."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from sigmacube import io
from sigmacube.estimators import estimator
from sigmacube.io import cf
from sigmacube.io.atomic import commit, flush, remove
from sigmacube.io.error_models import creating, pack
from sigmacube.io.zarr import library
from sigmacube.result import DenoisedCube
from sigmacube.tiles.faults import passing
from sigmacube.tiles.job import Job


def create_arrays(job: Job) -> None:
    """Make the empty cubes that tiles are written to, one chunk never belonging to two tiles."""
    import dask.array as da
    import xarray as xr

    rows, cols, bands = job.survey.shape
    chunk_rows, chunk_cols, chunk_bands = job.tiles.chunks
    chunks = (chunk_bands, chunk_rows, chunk_cols)
    dims = job.run["dims"]
    order, kind = (dims[2], *dims[:2]), job.run["dtype"]
    empty = da.full((bands, rows, cols), np.nan, dtype=kind, chunks=chunks)
    variables = dict.fromkeys(job.names.values(), (order, empty))
    fill = np.array(np.nan, kind)[()]
    encoding: dict[str, Any] = {n: {"chunks": chunks, "_FillValue": fill} for n in variables}
    if "rejected" in job.names:
        variables["rejected"] = (order, da.zeros_like(empty, dtype=np.int8))
        encoding["rejected"]["_FillValue"] = None
    _clear(job, keep=set())
    xr.Dataset(variables).to_zarr(
        job.store, mode="a", compute=False, zarr_format=3, consolidated=False, encoding=encoding
    )


def write_output(job: Job, output: str) -> None:
    """Write the output of a run whose tiles are all done."""
    if job.run["address"] is not None:
        _complete_store(job)
        return
    path = Path(output)
    if path.suffix.lower() == ".zarr":
        store = Path(job.store)
        _complete_store(job)
        _sweep(store)
        passing("rename-before")
        commit([store], [path])
    else:
        _write_files(job, path)
    passing("rename-after")


def _complete_store(job: Job) -> None:
    """Add coordinates, noise, window maps and attributes to the store of a run."""
    result = _result(job)
    made = cf.from_result(result, result.error_correlation())
    root = library().open_group(job.store, mode="r+")
    cubes = set(job.names.values())
    _clear(job, keep=cubes)
    passing("metadata-before")
    small = made.drop_vars([*cubes])
    small["residual_ratio"] = small["residual_ratio"].astype(job.run["dtype"])
    encoding = cf.encoding_of(small)
    attrs, small.attrs = small.attrs, {}
    small.to_zarr(job.store, mode="a", zarr_format=3, consolidated=False, encoding=encoding)
    passing("metadata-during")
    if job.keeps_factors:
        with creating(job.store, zarr=True) as (create, _):
            attrs["sigmacube_factors"] = pack(job.factors, create)
    for name in cubes:
        extra = {"coordinates": made[name].encoding.get("coordinates")}
        found = {**made[name].attrs, **{k: v for k, v in extra.items() if v}}
        root[name].update_attributes({str(k): _plain(v) for k, v in found.items()})
    # The attributes that make the store a result come last.
    root.update_attributes({str(key): _plain(value) for key, value in attrs.items()})
    passing("metadata-after")


def _clear(job: Job, keep: set[str]) -> None:
    """Remove arrays of an earlier attempt from the store, whole or not."""
    if job.run["address"] is None:
        store = Path(job.store)
        found = [path for path in store.iterdir() if path.is_dir()] if store.is_dir() else []
        for path in found:
            if path.name not in keep:
                remove(path)
        return
    root = library().open_group(job.store, mode="a", zarr_format=3)
    for name in [name for name in root.array_keys() if name not in keep]:
        del root[name]


def _plain(value: Any) -> Any:
    """Return an attribute as JSON knows it."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


def _sweep(store: Path) -> None:
    """Remove what killed writers left of chunks they had not renamed."""
    for folder, _, names in os.walk(store):
        for name in names:
            if name.endswith(".partial"):
                Path(folder, name).unlink()


def _write_files(job: Job, path: Path) -> None:
    """Write netCDF, ENVI or GeoTIFF in order, under other names, and rename them."""
    writer = io.writer_of(path)
    uncertainty = job.settings.uncertainty
    finals: list[Path] = writer.files(
        path, uncertainty=uncertainty, rejected="rejected" in job.names
    )
    every: list[Path] = writer.files(path, uncertainty=True, rejected=True)
    folder = Path(job.folder.place, "output")
    remove(folder)
    folder.mkdir()
    temporary = [folder / final.name for final in finals]
    passing("metadata-before")
    names = dict(zip(finals, temporary, strict=True))
    result = _result(job)
    stated = {"correlation": result.error_correlation()} if writer.holds_errors else {}
    writer.write(result, names, path, job.run["dtype"], **stated)
    if job.keeps_factors:
        with creating(names[path], zarr=False) as (create, tell):
            tell(pack(job.factors, create))
    passing("metadata-after")
    for file in temporary:
        flush(file)
    passing("rename-before")
    commit(temporary, finals, [file for file in every if file not in finals])


def _result(job: Job) -> DenoisedCube:
    """Return the result in the store, as Dask arrays."""
    import dask.array as da

    source, survey = job.source, job.survey
    cubes = {what: da.from_zarr(array).transpose(1, 2, 0) for what, array in job.arrays.items()}
    maps = window_maps(job, job.finished(check=False).values())
    return DenoisedCube(
        estimate=cubes["estimate"],
        std=cubes.get("std"),
        ranks=maps["ranks"],
        noise=survey.noise,
        noise_power=estimator(job.settings).noise_power(survey),
        noise_scale=maps.get("noise_scale"),
        unexplained=maps.get("unexplained"),
        residual_ratio=maps["residual_ratio"],
        rejected=cubes.get("rejected"),
        wavelengths=source.wavelengths,
        metadata=dict(source.metadata),
        settings=survey.record(),
        filled_bands=np.isin(np.arange(survey.shape[2]), survey.bands),
    )


def window_maps(job: Job, records: Iterable[Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Put the maps of windows together from the records of the tiles, in their order."""
    grid = job.survey.grid
    shape = grid.shape if len(grid.bands) > 1 else grid.shape[:2]
    maps = {"ranks": np.zeros(shape, dtype=np.int64), "residual_ratio": np.full(shape, np.nan)}
    scale = np.ones(job.survey.shape[:2])
    listed, rest = [], {}
    for tile, record in zip(job.tiles, records, strict=True):
        rows, cols = tile.windows(grid)
        for name, whole in maps.items():
            whole[slice(*rows), slice(*cols)] = record[name]
        if "noise_scale" in record:
            scale[tile.slices] = record["noise_scale"]
            rest["noise_scale"] = scale
        if "unexplained" in record:
            listed.append(record["unexplained"])
    if listed:
        rest["unexplained"] = np.unique(np.concatenate(listed), axis=0)
    return maps | rest
