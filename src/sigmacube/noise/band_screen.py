"""Bands that need care before noise is estimated: constant, duplicated, saturated, coarse."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from sigmacube.core.parallel import ParallelMap, at_once, in_turn
from sigmacube.noise.clipping import Bounds, find_bounds

__all__ = ["BandScreen", "screen_bands", "smallest_step"]

# Two bands whose correlation misses one by less than this hold the same measurement: real sensors
# at a signal-to-noise ratio of 1000 stay above 1e-6.
DUPLICATE = 1e-9
DUPLICATE_SAMPLE = 1000
# A band counts as saturated where this share of its pixels sits on its upper bound.
SATURATED_SHARE = 0.005
LATTICE_SAMPLE = 512
LATTICE_TOLERANCE = 0.01


@dataclass(frozen=True, eq=False)
class BandScreen:
    """What stands out in the bands of a scene; one entry per band."""

    constant: np.ndarray
    """True where a band holds one value only: dead, or filled by the provider."""
    duplicate_of: np.ndarray
    """Index of the earlier band that a band repeats; −1 for none."""
    step: np.ndarray
    """Quantisation step; 0 where values are not on a lattice."""
    bounds: Bounds
    """What values were clipped to."""

    def clipped_share(self, std: np.ndarray) -> float:
        """Return the share of values on the bounds of their band, over bands with a measurement.

        Bands on a lattice that is coarse beside their noise ``std`` crowd on its last step anyway.
        """
        share = np.where(self.step > std, 0, self.bounds.share_low + self.bounds.share_high)
        return float(share[~self.constant].mean()) if (~self.constant).any() else 0.0

    @property
    def usable(self) -> np.ndarray:
        """True for bands that carry a measurement of their own."""
        return ~self.constant & (self.duplicate_of < 0)

    def named(self) -> dict[str, np.ndarray]:
        """Return where bands stand out, by what makes them."""
        return {
            "constant": self.constant,
            "duplicated": self.duplicate_of >= 0,
            "saturated": self.bounds.share_high > SATURATED_SHARE,
        }


def screen_bands(spectra: np.ndarray, run: ParallelMap = in_turn) -> BandScreen:
    """Screen the bands of some spectra.

    Parameters
    ----------
    spectra
        (pixels, bands) valid spectra, as they come from the file; NaN where values are missing.
    run
        Parallel map.

    Examples
    --------
    >>> import numpy as np
    >>> spectra = np.random.default_rng(0).integers(0, 900, size=(600, 4))
    >>> spectra[:, 1] = 7
    >>> spectra[:, 3] = spectra[:, 0]
    >>> screen = screen_bands(spectra)
    >>> screen.constant
    array([False,  True, False, False])
    >>> screen.duplicate_of
    array([-1, -1, -1,  0])
    >>> screen.step
    array([1., 0., 1., 1.])
    """
    # Bands of integers are never NaN; the others may be where values are missing.
    top, bottom = np.fmax.reduce(spectra), np.fmin.reduce(spectra)
    constant = ~(top > bottom)
    step, duplicates = at_once(
        run, partial(smallest_step, spectra), partial(_duplicates, spectra, constant)
    )
    return BandScreen(constant, duplicates, step, find_bounds(spectra, step, (bottom, top), run))


def _duplicates(spectra: np.ndarray, constant: np.ndarray) -> np.ndarray:
    """Return for each band the first earlier band that is a multiple of it; −1 for none."""
    part = spectra[:: max(1, len(spectra) // DUPLICATE_SAMPLE)].astype(np.float64)
    known = ~np.isnan(part)
    mean = np.where(known, part, 0.0).sum(axis=0) / np.maximum(known.sum(axis=0), 1)
    unit = np.where(known, part - mean, 0.0)
    norm = np.sqrt(np.einsum("uv,uv->v", unit, unit))
    unit /= np.where(constant | (norm == 0), 1, norm)
    same = np.triu(unit.T @ unit > 1 - DUPLICATE, k=1) & ~constant[:, None] & ~constant
    return np.where(same.any(axis=0), same.argmax(axis=0), -1)


def smallest_step(spectra: np.ndarray) -> np.ndarray:
    """Return the quantisation step of each band, 0 where its values are not on a lattice.

    Examples
    --------
    >>> import numpy as np
    >>> values = np.random.default_rng(0).normal(size=(300, 2))
    >>> values[:, 1] = np.round(values[:, 1] / 0.25) * 0.25
    >>> smallest_step(values)
    array([0.  , 0.25])
    """
    every = max(1, len(spectra) // LATTICE_SAMPLE)
    values = np.sort(spectra[::every].astype(np.float64), axis=0)
    gaps = np.diff(values, axis=0)
    gaps = np.where(np.isnan(gaps), 0.0, gaps)
    span = gaps.sum(axis=0)
    smallest = np.where(gaps > 1e-9 * span, gaps, np.inf).min(axis=0, initial=np.inf)
    smallest = np.where(np.isfinite(smallest), smallest, 0.0)
    counts = gaps / np.where(smallest > 0, smallest, 1)
    # Many gaps that are whole multiples of the smallest one do not happen by chance.
    on_lattice = np.all(np.abs(counts - np.round(counts)) < LATTICE_TOLERANCE, axis=0)
    step = np.where(on_lattice, smallest, 0.0)
    if spectra.dtype.kind in "iu":  # also where the sample shows a single value
        step = np.maximum(step, np.ptp(spectra, axis=0) > 0)
    return step
