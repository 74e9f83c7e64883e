"""Noise of every band from its regression on all other bands."""

from __future__ import annotations

import numpy as np

__all__ = ["regression_by", "regression_noise"]


def regression_noise(spectra: np.ndarray) -> np.ndarray:
    """Return (bands,) the residual standard deviation of each band regressed on the others.

    Noise that bands share is predicted along with the signal, so it is not seen here; local
    changes of the signal that one regression for the whole scene cannot follow count as noise.

    Parameters
    ----------
    spectra
        (pixels, bands) spectra; twice as many pixels as bands at least.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> signal = rng.normal(size=(4000, 3)) @ rng.normal(size=(3, 60))
    >>> std = regression_noise(signal + 0.1 * rng.normal(size=signal.shape))
    >>> bool(abs(np.median(std) / 0.1 - 1) < 0.05)
    True
    """
    n, p = spectra.shape
    if n < 2 * p:
        raise ValueError(
            f"Invalid scene for band regression: {n} valid pixels for {p} bands. It needs twice as "
            "many pixels as bands; give the noise, or use noise='residual'."
        )
    return regression_by(spectra.T @ spectra, n)


def regression_by(total: np.ndarray, count: int) -> np.ndarray:
    """Return what `regression_noise` does from the sum of y yᵀ (bands, bands) of some spectra."""
    p = len(total)
    # Bands on one scale: different units cost the inverse its digits.
    scale = np.sqrt(np.diag(total) / count)
    if not scale.any():  # nothing differs, so nothing shows the noise
        return np.zeros(p)
    scale[scale == 0] = 1
    # The residual of band v regressed on the others has the sum of squares 1 / precision_vv.
    precision = np.diag(_inverse(total / np.outer(scale, scale)))
    power = np.divide(1, precision, out=np.zeros(p), where=precision > 0)
    return scale * np.sqrt(power / (count - p + 1))


def _inverse(gram: np.ndarray) -> np.ndarray:
    """Return the inverse of a Gram matrix; rounding decides where bands depend on each other."""
    from scipy.linalg.lapack import dpotrf, dpotri

    factor, failed = dpotrf(gram, lower=1)
    if not failed and np.min(np.diag(factor)) > 1e-7 * np.max(np.diag(factor)):
        return dpotri(factor, lower=1)[0]
    values, vectors = np.linalg.eigh(gram)
    values = np.maximum(values, 1e-15 * values[-1])
    return (vectors / values) @ vectors.T
