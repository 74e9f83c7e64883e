"""Window factors in files, so that products can be made from a file alone.

Windows have different ranks, so their components are packed one after the other: row n of
``factor_left`` and ``factor_right`` is a component of U and V of the whitened windows, in the order
of ``factor_rank`` (window row, band window, window col), or, in results made tile by tile, from
``factor_first`` of their window on. Single precision is enough: errors are known to a few per cent.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from sigmacube.core.factors import Factors
from sigmacube.core.functionals import ErrorModel
from sigmacube.core.noise import Noise
from sigmacube.core.windows import WindowGrid

if TYPE_CHECKING:
    from sigmacube.result import DenoisedCube

__all__ = ["ARRAYS", "add_factors", "component_rows", "described", "factor_bytes", "read_factors"]

#: Versions of the layout: components in the order of the windows, or anywhere (``factor_first``).
IN_ORDER, ANYWHERE = 1, 2

_WINDOWS = ("factor_window_row", "factor_band_window", "factor_window_col")
_PIXELS = ("factor_row", "factor_col")

#: Dimensions, type and meaning of the stored arrays.
ARRAYS: dict[str, tuple[tuple[str, ...], str, str]] = {
    "factor_rank": (_WINDOWS, "int16", "components of the window"),
    "factor_first": (_WINDOWS, "int64", "where the components of the window begin"),
    "factor_left": (
        ("factor_component", "factor_pixel"),
        "float32",
        "left singular vector of the whitened window, pixels by rows",
    ),
    "factor_right": (
        ("factor_component", "factor_band"),
        "float32",
        "right singular vector of the whitened window",
    ),
    "factor_singular_value": (
        ("factor_component",), "float64", "singular value, in units of noise",
    ),
    "factor_residual": (_WINDOWS, "float64", "sum of squares left of the window"),
    "factor_valid_pixels": ((_WINDOWS[0], _WINDOWS[2]), "int32", "valid pixels"),
    "factor_cube_bands": (("factor_cube_band",), "int32", "bands of the cube with data, from 0"),
    "factor_weight": (
        (*_WINDOWS, "factor_pixel"),
        "float32",
        "weight of the window at its pixels, not normalised",
    ),
    "factor_noise_variance": (
        (*_PIXELS, "factor_band_cell"),
        "float32",
        "variance of kept pure noise, relative to the noise",
    ),
    "factor_pixel_scale": (_PIXELS, "float64", "factor of the pixel on its noise"),
    "factor_band_scale": (
        ("factor_calibrated_band",), "float64", "factor of a calibration on the std",
    ),
    "factor_inflation": (
        (*_PIXELS, "factor_band_known"), "float32", "factor of left-out elements on the std",
    ),
}  # fmt: skip


def described(grid: WindowGrid, *, finite_noise: bool, weighting: str, layout: int) -> str:
    """Return the attribute ``sigmacube_factors`` that makes stored arrays window factors."""
    return json.dumps(
        {
            "layout": layout,
            "shape": list(grid.cube_shape),
            "window": list(grid.window),
            "step": [axis.step for axis in (grid.rows, grid.cols, grid.bands)],
            "finite_noise": finite_noise,
            "weighting": weighting,
        }
    )


def factor_bytes(result: DenoisedCube) -> int:
    """Return how many bytes the window factors of a result take, before compression.

    Examples
    --------
    >>> import sigmacube as sc
    >>> noisy = sc.synthetic.add_noise(sc.synthetic.scene((24, 30, 40), rng=1), 0.05, rng=2)
    >>> factor_bytes(sc.denoise(noisy, 0.05, window=12)) < 8 * noisy.values.size
    True
    """
    factors = _window_errors(result).factors
    components = int(factors.ranks.sum())
    pixels = factors.grid.rows.size * factors.grid.cols.size
    weights = 0 if factors.weighting == "uniform" else 4 * factors.ranks.size * pixels
    return components * (4 * (pixels + factors.grid.bands.size) + 8) + weights


def add_factors(dataset: xr.Dataset, result: DenoisedCube) -> None:
    """Add the window factors of a result to its dataset."""
    model = _window_errors(result)
    factors = model.factors
    ranks = factors.ranks
    used = np.arange(factors.left.shape[3]) < ranks[..., None]
    arrays = {
        "factor_rank": ranks,
        "factor_left": factors.left[used].reshape(int(ranks.sum()), -1),
        "factor_right": factors.right[used],
        "factor_singular_value": factors.singular_values[used],
        "factor_residual": factors.residual,
        "factor_valid_pixels": factors.n_valid,
        "factor_cube_bands": model.bands,
        "factor_pixel_scale": model.pixel_scale,
        "factor_band_scale": model.band_scale,
        "factor_inflation": model.inflation,
    }
    if factors.weighting != "uniform":
        arrays["factor_weight"] = factors.pixel_weights.reshape(*ranks.shape, -1)
    if model.noise_variance is not None and np.any(model.noise_variance):
        arrays["factor_noise_variance"] = model.noise_variance
    for name, values in arrays.items():
        if values is not None:
            dims, kind, about = ARRAYS[name]
            dataset[name] = (dims, values.astype(kind), {"long_name": about, "units": "1"})
    dataset.attrs["sigmacube_factors"] = described(
        factors.grid,
        finite_noise=factors.finite_noise,
        weighting=factors.weighting,
        layout=IN_ORDER,
    )


def _window_errors(result: DenoisedCube) -> ErrorModel:
    model = result.known_errors()
    if not isinstance(model, ErrorModel):
        raise ValueError("Invalid result: only a denoised cube has window factors to keep.")
    return model


def read_factors(dataset: xr.Dataset, noise: float | np.ndarray, n_bands: int) -> ErrorModel | None:
    """Return the error model that a dataset holds, or None."""
    text = dataset.attrs.get("sigmacube_factors")
    if text is None:
        return None
    about = json.loads(str(text))
    if about.get("layout") not in (IN_ORDER, ANYWHERE):
        raise ValueError(
            f"window factors of layout {about.get('layout')!r}. This version reads {IN_ORDER} and "
            f"{ANYWHERE}."
        )
    grid = WindowGrid.create(
        tuple(about["shape"]), window=tuple(about["window"]), step=tuple(about["step"])
    )
    bands = dataset["factor_cube_bands"].values.astype(int)
    factors = Factors(
        grid,
        Noise.create(noise, n_bands).select(bands),
        *_unpacked(dataset, grid),
        residual=dataset["factor_residual"].values.astype(np.float64),
        energy=np.zeros((*grid.cube_shape[:2], grid.shape[2])),
        n_valid=dataset["factor_valid_pixels"].values.astype(int),
        finite_noise=bool(about["finite_noise"]),
        weighting=str(about["weighting"]),
        stored_weights=_weights(dataset, grid),
    )
    variance, *scales = (
        None if name not in dataset else dataset[name].values.astype(np.float64)
        for name in (
            "factor_noise_variance",
            "factor_pixel_scale",
            "factor_band_scale",
            "factor_inflation",
        )
    )
    return ErrorModel(factors, variance, bands, n_bands, *scales)


def _unpacked(dataset: xr.Dataset, grid: WindowGrid) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return U, V and d of all windows, padded with zeros to the largest rank."""
    ranks = dataset["factor_rank"].values.astype(int)
    expected = (grid.shape[0], grid.shape[2], grid.shape[1])
    values = dataset["factor_singular_value"].values
    if ranks.shape != expected or int(ranks.sum()) != len(values):
        raise ValueError(
            f"damaged window factors: {len(values)} components of {ranks.shape} windows. There "
            f"must be {int(ranks.sum())} of {expected}."
        )
    order: slice | np.ndarray = slice(None)
    if "factor_first" in dataset:
        order = component_rows(dataset["factor_first"].values, ranks)
    most = max(int(ranks.max(initial=0)), 1)
    used = np.arange(most) < ranks[..., None]
    rows, cols, bands = grid.window
    left = np.zeros((*used.shape, rows, cols))
    left[used] = dataset["factor_left"].values[order].reshape(-1, rows, cols)
    right = np.zeros((*used.shape, bands))
    right[used] = dataset["factor_right"].values[order]
    singular = np.zeros(used.shape)
    singular[used] = values[order]
    return left, right, singular


def component_rows(first: np.ndarray, ranks: np.ndarray) -> np.ndarray:
    """Return where the components of some windows lie, window by window.

    Parameters
    ----------
    first
        Where the components of each window begin.
    ranks
        How many each has; of the same shape.

    Examples
    --------
    >>> component_rows(np.array([7, 0, 4]), np.array([2, 3, 0]))
    array([7, 8, 0, 1, 2])
    """
    counts = ranks.ravel()
    before = np.cumsum(counts) - counts
    return np.repeat(first.ravel() - before, counts) + np.arange(counts.sum())


def _weights(dataset: xr.Dataset, grid: WindowGrid) -> np.ndarray | None:
    if "factor_weight" not in dataset:
        return None
    weights = dataset["factor_weight"].values.astype(np.float64)
    return weights.reshape(*weights.shape[:3], grid.rows.size, grid.cols.size)
