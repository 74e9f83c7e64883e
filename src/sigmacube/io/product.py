"""Products as labelled datasets, in the layout of `sigmacube.io.cf`, and as tables."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from sigmacube.io import cf as cubes
from sigmacube.io import maps, writer_of
from sigmacube.io.atomic import staged
from sigmacube.io.metadata import to_json
from sigmacube.io.ortho import lookup_of
from sigmacube.io.places import local_path

if TYPE_CHECKING:
    import pandas as pd

    from sigmacube.products import Product

SUFFIXES = (".nc", ".zarr", ".tif", ".csv")


def to_dataset(product: Product) -> xr.Dataset:
    """Return a product as a CF-1.11 dataset: values, ``<name>_uncertainty`` and flags.

    Examples
    --------
    >>> import numpy as np
    >>> from sigmacube.products import Product
    >>> made = to_dataset(Product("ndvi", np.zeros((2, 3)), np.ones((2, 3)), ("row", "col")))
    >>> sorted(made.data_vars), made["ndvi"].dims
    (['ndvi', 'ndvi_uncertainty'], ('y', 'x'))
    """
    from sigmacube.products import FLAGS

    name = re.sub(r"\W", "_", product.name, flags=re.ASCII) or "product"
    dims = _dims(product)
    made = xr.Dataset(attrs=_attributes(product))
    made = made.assign_coords(_coordinates(product, dims))
    about = _about(product, name)
    made[name] = _variable(product, product.estimate, dims, about)
    made[f"{name}_uncertainty"] = _variable(product, product.std, dims, _sigma(product, name))
    if product.flags is not None:
        what = "why a value or its standard deviation is missing"
        flags = cubes.flag_attributes(what, " ".join(FLAGS.values()))
        made[f"{name}_flag"] = _variable(product, np.asarray(product.flags, np.int8), dims, flags)
    if "row" in dims:
        place = cubes.Dims(dims["row"], dims["col"], "band", ())
        if "xarray" not in product.metadata:
            cubes.add_place(made, product.metadata, place, name)
    return made


def labelled_arrays(product: Product) -> dict[str, xr.DataArray]:
    """Return the arrays of a product with its labels, axes in the order that they have."""
    made = to_dataset(product)
    name, dims = next(iter(made.data_vars)), _dims(product)
    found = {"estimate": made[name], "std": made[f"{name}_uncertainty"]}
    if product.flags is not None:
        found["flags"] = made[f"{name}_flag"]
    return {key: array.transpose(*dims.values()) for key, array in found.items()}


def to_dataframe(product: Product) -> pd.DataFrame:
    """Return a product as a table: one line per value, with ``std`` and, if there is one, flag."""
    arrays = labelled_arrays(product)
    columns = {"estimate": product.name, "std": "std", "flags": "flag"}
    plain = {columns[key]: array.drop_attrs() for key, array in arrays.items()}
    table = xr.Dataset(plain).to_dataframe()
    return table.drop(columns="spatial_ref", errors="ignore")


def _dims(product: Product) -> dict[str, str]:
    """Return the name of each dimension by its role."""
    names = {"row": "y", "col": "x", "region": "region"}
    labels = product.metadata.get("xarray")
    if labels:
        names["row"], names["col"] = labels["roles"][:2]
    names["band"] = cubes.band_dimension(product.wavelengths)
    return {role: names[role] for role in product.dims}


def _variable(
    product: Product, values: np.ndarray, dims: Mapping[str, str], attrs: Mapping[str, Any]
) -> xr.Variable:
    made = xr.Variable([dims[role] for role in product.dims], np.asarray(values), dict(attrs))
    return made.transpose(dims["band"], ...) if "row" in dims and "band" in dims else made


def _attributes(product: Product) -> dict[str, Any]:
    title = f"{product.name} with standard deviation"
    made = f"product {product.settings.get('product', product.name)}"
    about = cubes.file_attributes(product.metadata, title, made)
    return about | {"sigmacube_product": to_json(product.settings)}


def _about(product: Product, name: str) -> dict[str, Any]:
    attrs: dict[str, Any] = {"long_name": name, "units": cubes.units_of(product.metadata) or "1"}
    if product.bands:
        expression = product.settings.get("expression", "")
        used = ", ".join(f"b{asked:g}: {found:.1f} nm" for asked, _, found in product.bands)
        attrs["long_name"] = f"{name} = {expression}"
        attrs["comment"] = f"bands used: {used}"
    attached = [f"{name}_uncertainty"]
    attrs["unc_comps"] = list(attached)
    if product.flags is not None:
        attached.append(f"{name}_flag")
    attrs["ancillary_variables"] = " ".join(attached)
    return attrs


def _sigma(product: Product, name: str) -> dict[str, Any]:
    comment = (
        "Errors of neighbouring values are correlated. Means over them must not be given this "
        "error over the square root of their number; make them from the denoised cube. No "
        "correlation is stated here: taken as fully correlated, means get an upper bound."
    )
    return {
        "long_name": f"standard deviation of {name}",
        "units": cubes.units_of(product.metadata) or "1",
        "standard_error_multiplier": 1,
        "pdf_shape": "gaussian",
        "comment": comment,
    }


def _coordinates(product: Product, dims: Mapping[str, str]) -> dict[str, Any]:
    coords: dict[str, Any] = {}
    labels = product.metadata.get("xarray")
    if labels and "row" in dims:
        kept = labels["coords"].coords
        for key, value in kept.items():
            if set(value.dims) <= {dims["row"], dims["col"]}:
                coords[str(key)] = value
    if product.regions is not None:
        about = {"long_name": "label of the region", "units": "1"}
        coords["region"] = ("region", product.regions, about)
    if "band" in dims and product.wavelengths is not None:
        centres = np.asarray(product.wavelengths, dtype=float)
        coords["wavelength"] = (dims["band"], centres, dict(cubes.CENTRE))
    return coords


def write(
    product: Product, path: str | Path, *, overwrite: bool = False, ortho: bool = False
) -> Path:
    """Write a product; the suffix decides the format: .nc, .zarr, .tif, or .csv for regions.

    ``ortho`` puts a scene in sensor geometry on a map, nearest neighbour.
    """
    path = local_path(path)
    check(product.dims, path)
    if path.suffix.lower() in maps.SUFFIXES:
        return maps.write_product(product, path, ortho=ortho, overwrite=overwrite)
    product = _on_map(product) if ortho else product
    with staged([path], overwrite=overwrite, stale=[]) as (temporary,):
        if path.suffix.lower() == ".csv":
            temporary.write_text(_table(product), encoding="utf-8")
        else:
            made = to_dataset(product)
            encoding = cubes.encoding_of(made)
            for key, how in encoding.items():
                how |= {"zlib": True} if path.suffix.lower() == ".nc" and made[key].ndim else {}
            writer_of(path).put(made, temporary, encoding)
    return path


def _on_map(product: Product) -> Product:
    """Return a product on a map."""
    rows, cols = product.estimate.shape[:2]
    lookup = lookup_of(product.metadata, (rows, cols))
    arrays: dict[str, Any] = {
        name: lookup.gather(np.asarray(getattr(product, name))) for name in ("estimate", "std")
    }
    if product.flags is not None:
        found = lookup.gather(np.asarray(product.flags, dtype=np.float32))
        arrays["flags"] = np.where(np.isfinite(found), found, 1).astype(np.int8)
    metadata = lookup.metadata(product.metadata)
    settings = {**product.settings, "ortho": lookup.source}
    return replace(product, **arrays, independent_std=None, metadata=metadata, settings=settings)


def check(dims: tuple[str, ...], path: Path) -> None:
    """Refuse a suffix that a product of these dimensions cannot have."""
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise ValueError(
            f"{path}: products cannot be written with suffix {path.suffix!r}. It must be one of "
            f"{', '.join(SUFFIXES)}."
        )
    if suffix == ".tif" and dims[0] == "region":
        raise ValueError(f"{path}: values of regions are no map. It must be .csv, .nc or .zarr.")
    if suffix == ".csv" and dims[0] != "region":
        raise ValueError(f"{path}: only values of regions can be written as .csv.")


def _table(product: Product) -> str:
    """Return the values of regions as text, one line per region, and band where there are any."""
    assert product.regions is not None
    estimate, std = np.asarray(product.estimate), np.asarray(product.std)
    flags = np.zeros(estimate.shape, int) if product.flags is None else np.asarray(product.flags)
    banded = estimate.ndim == 2
    lines = ["region," + ("band,wavelength," if banded else "") + f"{product.name},std,flag"]
    for where in np.ndindex(estimate.shape):
        label = str(product.regions[where[0]])
        if banded:
            centre = "" if product.wavelengths is None else f"{product.wavelengths[where[1]]:.6g}"
            label += f",{where[1]},{centre}"
        lines.append(f"{label},{estimate[where]:.8g},{std[where]:.6g},{flags[where]}")
    return "\n".join(lines) + "\n"
