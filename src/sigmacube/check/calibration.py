"""Scale σ of every band by what hidden elements show."""

from __future__ import annotations

import numpy as np

from sigmacube.check.holdout import Holdout, holdout
from sigmacube.cube import Cube
from sigmacube.result import DenoisedCube

__all__ = ["calibrated"]

# Standard errors that a band's factor must be away from one to be used.
SIGNIFICANT = 3.0


def calibrated(result: DenoisedCube, cube: Cube, check: Holdout | None = None) -> DenoisedCube:
    """Return the result with σ of the bands scaled where hidden elements say so clearly.

    The root mean square z of n hidden elements has the standard error 1/√(2n): a band is left
    alone unless it is three of them away from one, and its factor is drawn towards one by the share
    of sampling in what bands differ by. Where something is wrong that a factor per band cannot
    mend (clipped values, coarse steps, impulses, noise kept as signal), nothing is changed.
    """
    check = holdout(cube, result=result) if check is None else check
    known = np.isfinite(check.band_factors)
    if check.beyond_scaling or not known.any():
        return result.calibrated(np.ones(len(check.band_factors)))
    sampling = np.count_nonzero(known) / (2 * max(check.n_elements, 1))
    away = np.where(known, check.band_factors, 1.0) - 1
    share = np.maximum(away**2 - sampling, 0) / np.maximum(away**2, 1e-300)
    far = np.abs(away) > SIGNIFICANT * np.sqrt(sampling)
    return result.calibrated(np.where(far, 1 + share * away, 1.0))
