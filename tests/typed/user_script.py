"""A user's script: `mypy` sees the types of the package here, or `make check` fails."""

from typing import Any, assert_type

import numpy as np
import xarray as xr

import sigmacube as sc
from sigmacube.check.holdout import Holdout
from sigmacube.products import Product

Array = np.ndarray[tuple[Any, ...], np.dtype[Any]]

cube = sc.read("scene.hdr")
assert_type(cube, sc.Cube)
result = sc.denoise(cube, 0.1)
assert_type(result, sc.DenoisedCube)
assert_type(result.estimate, Array)
assert_type(result.std, Array | None)
labelled = sc.denoise(xr.DataArray(np.zeros((3, 4, 5))), progress=True)
assert_type(labelled.estimate, xr.DataArray)
ndvi = sc.products.index(result, "ndvi")
assert_type(ndvi, Product)
assert_type(ndvi.interval(0.9), tuple[Array, Array])
assert_type(sc.holdout(cube), Holdout)
assert_type(sc.datasets.load("fields").truth, sc.Cube)
result.sigma  # type: ignore[attr-defined]  # noqa: B018
sc.denoize  # type: ignore[attr-defined]  # noqa: B018
