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
    alone unless it is three of them away from one.
    """
    check = holdout(cube, result=result) if check is None else check
    per_band = max(check.n_elements / max(np.isfinite(check.band_factors).sum(), 1), 1)
    far = np.abs(check.band_factors - 1) > SIGNIFICANT / np.sqrt(2 * per_band)
    return result.calibrated(np.where(far, check.band_factors, 1.0))
