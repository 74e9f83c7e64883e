"""Bands of another sensor, with sigma."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sigmacube.products._types import (
    Product,
    history,
    keeps_labels,
    of_bands,
    std_of,
    without_bands,
)
from sigmacube.result import EstimatedCube


@keeps_labels
def resample(
    cube: EstimatedCube,
    centres: Sequence[float] | np.ndarray | None = None,
    fwhm: float | Sequence[float] | np.ndarray | None = None,
    *,
    responses: np.ndarray | None = None,
    shape: str = "gaussian",
    workers: int | None = None,
) -> Product:
    """Average bands to those of another sensor, with the standard deviation of every value.

    Parameters
    ----------
    cube
        Result of `sigmacube.denoise` or `fuse`.
    centres, fwhm
        (new bands,) centres and full widths at half maximum in nm.
    responses
        (new bands, bands) weights of the cube's bands instead; rows are scaled to a sum of one.
    shape
        Response for ``centres`` and ``fwhm``: ``"gaussian"``, or ``"box"`` for a plain band
        average.
    workers
        Threads; the number of processors by default.

    Notes
    -----
    Responses are sampled at the centres of the cube's bands; they should be wider than the bands
    are apart.

    Examples
    --------
    >>> import numpy as np, sigmacube as sc
    >>> from sigmacube import products
    >>> noisy = sc.synthetic.add_noise(sc.synthetic.scene((24, 30, 60), rng=1), 0.05, rng=2)
    >>> result = sc.denoise(noisy, 0.05, window=12)
    >>> products.resample(result, [665.0, 842.0], [80.0, 115.0]).estimate.shape
    (24, 30, 2)
    """
    errors = cube.known_errors()
    known = cube.has_values()
    if responses is None:
        if centres is None or fwhm is None:
            raise ValueError("Invalid request: give centres and fwhm, or responses.")
        rows = _responses(cube, np.atleast_1d(np.asarray(centres, float)), fwhm, shape, known)
    else:
        rows = _given_responses(responses, errors.shape[2], known)
    variance = errors.band_covariance(rows, rows, workers)
    values = np.where(known, cube.estimate, 0) @ rows.T
    std = np.where(np.isfinite(values), np.sqrt(variance), np.nan)
    naive = np.sqrt(np.where(known, np.square(std_of(cube)), 0) @ np.square(rows).T)
    if centres is None and cube.wavelengths is not None:
        centres = rows @ np.asarray(cube.wavelengths, dtype=np.float64)
    metadata = {
        **without_bands(cube),
        **{k: cube.metadata[k] for k in ("units", "name") if k in cube.metadata},
    }
    if fwhm is not None:
        metadata["fwhm"] = np.broadcast_to(np.asarray(fwhm, float), len(rows)).tolist()
    return of_bands(
        cube, values, std, naive,
        wavelengths=None if centres is None else np.asarray(centres, dtype=np.float64),
        metadata=metadata,
        settings=history(cube, {"product": "resample", "shape": shape}),
    )  # fmt: skip


def _responses(
    cube: EstimatedCube, centres: np.ndarray, fwhm: Any, shape: str, known: np.ndarray
) -> np.ndarray:
    """Return (new bands, bands) responses of a shape, of unit sum."""
    if cube.wavelengths is None:
        raise ValueError("Invalid centres: the cube has no wavelengths. Give responses instead.")
    if shape not in ("gaussian", "box"):
        raise ValueError(f"Invalid shape {shape!r}. It must be 'gaussian' or 'box'.")
    widths = np.broadcast_to(np.asarray(fwhm, dtype=np.float64), centres.shape)
    if not (np.all(widths > 0) and np.all(np.isfinite(widths)) and np.all(np.isfinite(centres))):
        raise ValueError("Invalid centres or fwhm. They must be finite, widths above 0.")
    offset = (np.asarray(cube.wavelengths, dtype=np.float64) - centres[:, None]) / widths[:, None]
    rows = np.exp(-4 * np.log(2) * offset**2) if shape == "gaussian" else np.abs(offset) <= 0.5
    # A tail that weighs nothing would only cost time.
    rows = np.where(known & (np.abs(offset) < 2), rows, 0.0)
    for centre, width, distance in zip(centres, widths, np.abs(offset), strict=True):
        if not np.any(known & (distance <= 0.5)):
            raise ValueError(
                f"Invalid band of {centre:g} nm with fwhm {width:g}: the cube has no band with "
                "data inside it."
            )
    return rows / rows.sum(axis=1, keepdims=True)


def _given_responses(responses: np.ndarray, n_bands: int, known: np.ndarray) -> np.ndarray:
    rows = np.atleast_2d(np.asarray(responses, dtype=np.float64))
    if rows.ndim != 2 or rows.shape[1] != n_bands or not np.all(np.isfinite(rows)):
        raise ValueError(
            f"Invalid responses of shape {rows.shape}. They must be finite, (new bands, {n_bands})."
        )
    rows = np.where(known, rows, 0)
    total = rows.sum(axis=1, keepdims=True)
    if np.any(total <= 0):
        raise ValueError(
            "Invalid responses: a row has no weight on bands with data. Its sum must be above 0."
        )
    return rows / total
