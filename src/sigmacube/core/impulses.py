"""Signs of impulses in what a solver that knows none has removed."""

from __future__ import annotations

import numpy as np

__all__ = ["advice_on_impulses"]

# Residuals beyond this many noise std: one Gaussian residual in two million.
WILD = 5.0
# Share of wild residuals from which on the user is told.
NOTABLE = 1e-4
# Elements that are looked at, roughly.
SAMPLE = 400_000


def advice_on_impulses(
    values: np.ndarray, estimate: np.ndarray, noise_std: np.ndarray
) -> str | None:
    """Return what to tell a user whose residual holds impulses; None where it does not.

    Parameters
    ----------
    values, estimate
        (row, col, band) before and after; NaN in the estimate where there is none.
    noise_std
        (bands,) or (row, col, band) noise.

    Examples
    --------
    >>> import numpy as np
    >>> noise = np.random.default_rng(0).normal(size=(30, 40, 8))
    >>> advice_on_impulses(noise, np.zeros_like(noise), np.ones(8)) is None
    True
    >>> noise[::5, ::4] = 9
    >>> print(advice_on_impulses(noise, np.zeros_like(noise), np.ones(8)))
    5 % of the residuals exceed 5 noise std: impulses, or signal that the windows miss. \
solver='robust' sets impulses aside.
    """
    stride = max(1, round(np.sqrt(values.size / SAMPLE)))
    rows = slice(None, None, stride)
    std = noise_std[rows, rows] if noise_std.ndim == 3 else noise_std
    with np.errstate(invalid="ignore"):
        residual = np.abs(values[rows, rows] - estimate[rows, rows]) / std
    known = int(np.count_nonzero(np.isfinite(residual)))
    share = int(np.count_nonzero(residual > WILD)) / max(known, 1)
    if share <= NOTABLE:
        return None
    return (
        f"{100 * share:.2g} % of the residuals exceed {WILD:g} noise std: impulses, or signal that "
        "the windows miss. solver='robust' sets impulses aside."
    )
