"""Sets of pixels to average over: blocks of a coarser grid, or labelled regions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sigmacube.core.errors import PixelSets
from sigmacube.products._types import Product, history, keeps_labels, of_bands, std_of
from sigmacube.result import EstimatedCube


@dataclass(frozen=True, eq=False)
class Supports(PixelSets):
    """Sets of pixels to average over; weights are 1 / number of pixels of the set."""

    grid: tuple[int, int] | None = None
    """Blocks along rows and columns."""
    size: tuple[int, int] = (1, 1)
    """Pixels of a block along rows and columns."""
    ids: np.ndarray | None = None
    """Labels of regions."""

    @classmethod
    def blocks(cls, cube: EstimatedCube, size: int | tuple[int, int], least: float) -> Supports:
        """Cut the scene to blocks; those with less than a share of valid pixels are left out."""
        sides = (size, size) if isinstance(size, int | np.integer) else tuple(size)
        rows, cols = cube.estimate.shape[:2]
        if len(sides) != 2 or not all(
            isinstance(s, int | np.integer) and 1 <= s <= n
            for s, n in zip(sides, (rows, cols), strict=True)
        ):
            raise ValueError(
                f"Invalid aggregate {size!r}. It must be a number of pixels from 1 to the cube's "
                f"{rows}×{cols}, or two (rows, cols)."
            )
        if not 0 <= least <= 1:
            raise ValueError(f"Invalid min_valid {least}. It must be between 0 and 1.")
        return cls.blocks_of(cube, (int(sides[0]), int(sides[1])), least)

    @classmethod
    def blocks_of(
        cls,
        cube: EstimatedCube,
        size: tuple[int, int],
        least: float,
        part: tuple[slice, slice] | None = None,
        origin: tuple[int, int] = (0, 0),
    ) -> Supports:
        """Cut a part of a cube to blocks, where the cube is itself a part of the scene.

        Parameters
        ----------
        cube
            The cube.
        size
            Rows and columns of a block.
        least
            Share of a block's pixels that must be valid.
        part
            Rows and columns of the cube to cut, from a corner of a block on; all by default.
        origin
            Pixel of the scene that the cube starts at.
        """
        rows, cols = cube.estimate.shape[:2]
        inner = part or (slice(0, rows), slice(0, cols))
        numbers, ends = [], []
        for length, own, side, first in zip((rows, cols), inner, size, origin, strict=True):
            inside = (np.arange(length) >= own.start) & (np.arange(length) < own.stop)
            numbers.append(np.where(inside, (np.arange(length) - own.start) // side, -1))
            begins = np.arange(own.start, own.stop, side)
            ends.append(np.stack([begins, np.minimum(begins + side, own.stop)]).T + first)
        grid = (len(ends[0]), len(ends[1]))
        labels = numbers[0][:, None] * grid[1] + numbers[1]
        labels = np.where((numbers[0][:, None] >= 0) & (numbers[1] >= 0), labels, -1)
        boxes = np.concatenate(
            [np.repeat(ends[0], grid[1], axis=0), np.tile(ends[1], (grid[0], 1))], axis=1
        )
        return cls._counted(cube, labels, grid[0] * grid[1], least * size[0] * size[1], grid=grid,
                            size=size, boxes=boxes)  # fmt: skip

    @classmethod
    def regions(cls, cube: EstimatedCube, labels: np.ndarray) -> Supports:
        """Give numbers to the regions of a label image or a mask."""
        labels = np.asarray(labels)
        if labels.shape != cube.estimate.shape[:2] or labels.dtype.kind not in "biu":
            raise ValueError(
                f"Invalid labels of shape {labels.shape} and type {labels.dtype}. They must be "
                f"integers or booleans of shape {cube.estimate.shape[:2]}."
            )
        ids = np.unique(labels[labels > 0])
        if not len(ids):
            raise ValueError("Invalid labels: no pixel has a label above 0.")
        numbers = np.where(labels > 0, np.searchsorted(ids, labels), -1)
        return cls._counted(cube, numbers, len(ids), 0.0, ids=ids.astype(np.int64))

    @classmethod
    def _counted(
        cls, cube: EstimatedCube, labels: np.ndarray, count: int, least: float, **fields: Any
    ) -> Supports:
        """Leave out masked pixels, and supports with too few pixels left."""
        # A pixel is valid in all bands that hold data, or in none.
        valid = np.isfinite(cube.estimate).any(axis=2)
        labels = np.where(valid, labels, -1)
        pixels = np.bincount(labels[labels >= 0], minlength=count)
        kept = (pixels >= least) & (pixels > 0)
        labels = np.where((labels >= 0) & kept[labels], labels, -1)
        weights = np.where(labels >= 0, 1 / np.maximum(pixels, 1)[labels], 0.0)
        return cls(labels, weights, count, **fields)

    def sum(self, maps: np.ndarray, power: int = 1) -> np.ndarray:
        """Return (supports, n) Σ weight^power · maps (row, col, n); NaN for empty supports."""
        inside = self.labels >= 0
        number = self.labels[inside]
        each = self.weights[inside][:, None] ** power * maps[inside]
        total = np.stack([np.bincount(number, column, self.count) for column in each.T], axis=-1)
        total = total.astype(np.float64, copy=False)  # counts, where there is nothing to sum
        total[np.bincount(number, minlength=self.count) == 0] = np.nan
        return total

    def mean(self, maps: np.ndarray) -> np.ndarray:
        """Return (supports, n) means of maps (row, col, n)."""
        return self.sum(np.asarray(maps, dtype=np.float64))

    def shaped(self, product: Product) -> Product:
        """Return a product of one row per support on its grid, or as a table of regions."""
        if self.grid is None:
            return replace(product, dims=("region", *product.dims[2:]), regions=self.ids)
        arrays: dict[str, Any] = {}
        for name in ("estimate", "std", "flags", "independent_std"):
            array = getattr(product, name)
            arrays[name] = None if array is None else array.reshape(*self.grid, *array.shape[1:])
        metadata = dict(product.metadata)
        if metadata.get("transform") is not None:
            a, b, c, d, e, f = metadata["transform"]
            height, width = self.size
            metadata["transform"] = [a * width, b * height, c, d * width, e * height, f]
        for key in ("map_info", "location", "xarray"):
            metadata.pop(key, None)
        settings = {**product.settings, "aggregate": list(self.size)}
        return replace(product, **arrays, metadata=metadata, settings=settings)


@keeps_labels
def aggregate(
    cube: EstimatedCube,
    size: int | tuple[int, int],
    *,
    min_valid: float = 0.5,
    workers: int | None = None,
) -> Product:
    """Average blocks of pixels to a coarser grid, with the standard deviation of every mean.

    Parameters
    ----------
    cube
        Result of `sigmacube.denoise`.
    size
        Side of the blocks in pixels, or (rows, cols).
    min_valid
        Share of a block's pixels that must be valid; blocks with fewer are NaN. Pixels beyond the
        edge of the scene are not valid.
    workers
        Threads; the number of processors by default.

    Examples
    --------
    >>> import numpy as np, sigmacube as sc
    >>> from sigmacube import products
    >>> noisy = sc.synthetic.add_noise(sc.synthetic.scene((24, 30, 40), rng=1), 0.05, rng=2)
    >>> coarse = products.aggregate(sc.denoise(noisy, 0.05, window=12), 3)
    >>> coarse.estimate.shape
    (8, 10, 40)
    >>> bool(np.median(coarse.std / coarse.independent_std) > 1.1)
    True
    """
    supports = Supports.blocks(cube, size, min_valid)
    return means(cube, supports, "aggregate", workers)


@keeps_labels
def region_means(cube: EstimatedCube, labels: np.ndarray, *, workers: int | None = None) -> Product:
    """Average the spectra of regions, with the standard deviation of every mean.

    Parameters
    ----------
    cube
        Result of `sigmacube.denoise`.
    labels
        (row, col) integers, one per region, 0 for none; or a boolean mask.
    workers
        Threads; the number of processors by default.

    Examples
    --------
    >>> import numpy as np, sigmacube as sc
    >>> from sigmacube import products
    >>> noisy = sc.synthetic.add_noise(sc.synthetic.scene((24, 30, 40), rng=1), 0.05, rng=2)
    >>> labels = np.zeros((24, 30), dtype=int)
    >>> labels[2:9, 3:12], labels[12:20, 15:28] = 1, 2
    >>> products.region_means(sc.denoise(noisy, 0.05, window=12), labels).estimate.shape
    (2, 40)
    """
    return means(cube, Supports.regions(cube, labels), "region_means", workers)


def means(cube: EstimatedCube, supports: Supports, name: str, workers: int | None) -> Product:
    """Average the spectra of any sets of pixels."""
    errors = cube.known_errors()
    known = np.flatnonzero(cube.has_values())
    rows = np.eye(errors.shape[2])[known]
    variance = np.full((supports.count, errors.shape[2]), np.nan)
    variance[:, known] = errors.support_covariance(supports, rows, rows, workers)
    estimate = supports.mean(cube.estimate)
    std = np.where(np.isfinite(estimate), np.sqrt(variance), np.nan)
    naive = np.sqrt(supports.sum(np.square(std_of(cube)), power=2))
    settings = history(cube, {"product": name})
    return supports.shaped(of_bands(cube, estimate, std, naive, settings=settings))
