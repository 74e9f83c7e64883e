"""Window factors in files, so that products can be made from a file alone.

Windows have different ranks, so their components are packed one after the other: row n of
``factor_left`` and ``factor_right`` is a component of U and V of the whitened windows, in the order
of ``factor_rank`` (window row, band window, window col), or, in results made tile by tile, from
``factor_first`` of their window on. Single precision is enough: errors are known to a few per cent.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from sigmacube.core.lowrank.errors import LowRankErrors
from sigmacube.core.lowrank.factors import Factors
from sigmacube.core.whitening import Noise
from sigmacube.core.windows import WindowGrid

if TYPE_CHECKING:
    from sigmacube.result import DenoisedCube

__all__ = [
    "ARRAYS",
    "StoredFactors",
    "add_factors",
    "component_rows",
    "described",
    "factor_bytes",
    "read_factors",
]

#: Versions of the layout: components in the order of the windows, or anywhere (``factor_first``).
IN_ORDER, ANYWHERE = 1, 2
#: Components that are read together: a chunk of the stored arrays, or several.
RUN = 2048

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
        "factor_inflation": model.gap_factor,
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


def _window_errors(result: DenoisedCube) -> LowRankErrors:
    model = result.known_errors()
    if not isinstance(model, LowRankErrors):
        raise ValueError("Invalid result: only a denoised cube has window factors to keep.")
    return model


Span = tuple[int, int]


@dataclass(frozen=True, eq=False)
class StoredFactors:
    """Window factors in an open dataset, to be read whole or in part."""

    dataset: xr.Dataset
    grid: WindowGrid
    """All windows."""
    bands: np.ndarray
    """Indices of the cube's bands that they hold."""
    finite_noise: bool
    weighting: str

    @classmethod
    def open(cls, dataset: xr.Dataset) -> StoredFactors | None:
        """Return the factors of a dataset, or None; nothing large is read."""
        text = dataset.attrs.get("sigmacube_factors")
        if text is None:
            return None
        about = json.loads(str(text))
        if about.get("layout") not in (IN_ORDER, ANYWHERE):
            raise ValueError(
                f"window factors of layout {about.get('layout')!r}. This version reads {IN_ORDER} "
                f"and {ANYWHERE}."
            )
        grid = WindowGrid.create(
            tuple(about["shape"]), window=tuple(about["window"]), step=tuple(about["step"])
        )
        bands = dataset["factor_cube_bands"].values.astype(int)
        return cls(dataset, grid, bands, bool(about["finite_noise"]), str(about["weighting"]))

    @cached_property
    def ranks(self) -> np.ndarray:
        """(I, K, J) components of every window."""
        ranks = self.dataset["factor_rank"].values.astype(int)
        grid = self.grid
        expected, count = (grid.shape[0], grid.shape[2], grid.shape[1]), self._count
        if ranks.shape != expected or int(ranks.sum()) != count:
            raise ValueError(
                f"damaged window factors: {count} components of {ranks.shape} windows. There "
                f"must be {int(ranks.sum())} of {expected}."
            )
        return ranks

    @property
    def _count(self) -> int:
        return int(self.dataset["factor_singular_value"].shape[0])

    @cached_property
    def _first(self) -> np.ndarray:
        if "factor_first" in self.dataset:
            return np.asarray(self.dataset["factor_first"].values)
        return np.cumsum(self.ranks).reshape(self.ranks.shape) - self.ranks

    def read(
        self, noise: float | np.ndarray, n_bands: int, windows: tuple[Span, Span] | None = None
    ) -> LowRankErrors:
        """Return the error model of a result, or of the pixels that some windows span.

        Parameters
        ----------
        noise
            Noise of the result.
        n_bands
            Bands of the cube.
        windows
            First window and end along rows and columns; all by default.
        """
        grid = self.grid if windows is None else self.grid.part(*windows)
        rows, cols = (slice(*span) for span in windows or ((0, None), (0, None)))
        (top, side), (height, width, _) = grid.origin, grid.cube_shape
        pixels = (slice(top, top + height), slice(side, side + width))
        factors = Factors(
            grid,
            Noise.create(noise, n_bands).select(self.bands),
            *self._unpacked(grid, rows, cols),
            residual=self.dataset["factor_residual"][rows, :, cols].values.astype(np.float64),
            energy=np.zeros((height, width, grid.shape[2])),
            n_valid=self.dataset["factor_valid_pixels"][rows, cols].values.astype(int),
            finite_noise=self.finite_noise,
            weighting=self.weighting,
            stored_weights=self._weights(rows, cols),
        )
        variance, scale, gap_factor = (
            self._of_pixels(name, pixels)
            for name in ("factor_noise_variance", "factor_pixel_scale", "factor_inflation")
        )
        calibration = self._of_pixels("factor_band_scale", ())
        return LowRankErrors(factors, variance, self.bands, n_bands, scale, calibration, gap_factor)

    def _of_pixels(self, name: str, part: tuple[slice, ...]) -> np.ndarray | None:
        if name not in self.dataset:
            return None
        return np.asarray(self.dataset[name][part].values, dtype=np.float64)

    def gap_factor(self, rows: slice) -> np.ndarray | None:
        """Return (row, col, band) the gap factor of some rows; None where there is none."""
        return self._of_pixels("factor_inflation", (rows,))

    def _unpacked(
        self, grid: WindowGrid, rows: slice, cols: slice
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return U, V and d of some windows, padded with zeros to their largest rank."""
        ranks = self.ranks[rows, :, cols]
        order = component_rows(self._first[rows, :, cols], ranks)
        most = max(int(ranks.max(initial=0)), 1)
        used = np.arange(most) < ranks[..., None]
        height, width, bands = grid.window
        left = np.zeros((*used.shape, height, width))
        left[used] = self._rows("factor_left", order).reshape(-1, height, width)
        right = np.zeros((*used.shape, bands))
        right[used] = self._rows("factor_right", order)
        singular = np.zeros(used.shape)
        singular[used] = self._rows("factor_singular_value", order)
        return left, right, singular

    def _rows(self, name: str, order: np.ndarray) -> np.ndarray:
        """Return some rows of an array, read in runs of neighbouring ones."""
        array = self.dataset[name]
        found = np.empty((len(order), *array.shape[1:]), dtype=array.dtype)
        chunk = order // RUN
        by_chunk = np.argsort(chunk, kind="stable")
        for members in np.split(by_chunk, np.flatnonzero(np.diff(chunk[by_chunk])) + 1):
            if len(members):
                wanted = order[members]
                low = int(wanted.min())
                found[members] = array[low : int(wanted.max()) + 1].values[wanted - low]
        return found

    def _weights(self, rows: slice, cols: slice) -> np.ndarray | None:
        if "factor_weight" not in self.dataset:
            return None
        weights = self.dataset["factor_weight"][rows, :, cols].values.astype(np.float64)
        return np.asarray(
            weights.reshape(*weights.shape[:3], self.grid.rows.size, self.grid.cols.size)
        )


def read_factors(
    dataset: xr.Dataset, noise: float | np.ndarray, n_bands: int
) -> LowRankErrors | None:
    """Return the error model that a dataset holds, or None."""
    stored = StoredFactors.open(dataset)
    return None if stored is None else stored.read(noise, n_bands)


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
