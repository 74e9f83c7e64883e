"""Means over blocks and regions of pixels, with sigma."""

from __future__ import annotations

import numpy as np

from sigmacube.estimated import EstimatedCube
from sigmacube.products._supports import Supports
from sigmacube.products._types import Product, history, keeps_labels, std_of

__all__ = ["aggregate", "region_means"]


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
    made = Product(
        str(cube.metadata.get("name", "estimate")),
        estimate,
        std,
        ("row", "col", "band"),
        np.where(np.isfinite(estimate), 0, 1).astype(np.uint8),
        np.sqrt(supports.sum(np.square(std_of(cube)), power=2)),
        wavelengths=cube.wavelengths,
        metadata=cube.metadata,
        settings=history(cube, {"product": name}),
    )
    return supports.shaped(made)
