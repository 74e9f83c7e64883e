"""Noise of a scene, estimated from the scene itself."""

from __future__ import annotations

import numpy as np

from sigmacube.core.scene import valid_parts

__all__ = ["estimate_noise"]


def estimate_noise(
    values: np.ndarray, method: str = "regression", *, mask: np.ndarray | None = None
) -> np.ndarray:
    """Return the noise of a cube, one standard deviation per band.

    Parameters
    ----------
    values
        (row, col, band) cube.
    method
        ``"regression"``: the residual of every band regressed on all others.
    mask
        True where values are valid.
    """
    if method != "regression":
        raise ValueError(f"Invalid noise {method!r}. An estimator must be 'regression'.")
    bands, valid = valid_parts(values, mask)
    spectra = values[..., bands][valid].astype(np.float64)
    n, p = spectra.shape
    if n < 2 * p:
        raise ValueError(
            f"Invalid scene for band regression: {n} valid pixels for {p} bands. It needs twice as "
            "many pixels as bands; give the noise instead."
        )
    precision = np.linalg.pinv(spectra.T @ spectra, hermitian=True)
    # The residual of band v regressed on the others has the sum of squares 1 / precision_vv.
    std = np.full(values.shape[2], np.nan)
    std[bands] = np.sqrt(1 / np.diag(precision) / (n - p + 1))
    std[np.isnan(std)] = 1.0
    return std
