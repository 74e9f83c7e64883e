"""Values that were clipped: where the bounds lie, and what a clipped value says.

A detector that saturates, reflectances cut at zero and images kept in [0, 1] put every value beyond
a bound onto the bound. Such a value is neither an impulse nor exact: it says that the noisy value
lay at the bound or beyond.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from sigmacube.core.censoring import expected_beyond
from sigmacube.core.parallel import ParallelMap, at_once, in_turn

__all__ = ["Bounds", "censored", "find_bounds", "repeated_values"]

# A bound must hold this share of a band's values, and so many of them, and so many times as many as
# the step of the lattice next to it.
SHARE, FEWEST, CROWD = 0.002, 4, 3.0
# Where a value is the bound of other bands, so much of it will do.
SHARE_OF_KNOWN = 0.0002
# A value that no measurement repeats makes up this share of the elements looked at.
REPEATED, LOOKED_AT = 0.002, 200_000


@dataclass(frozen=True, eq=False)
class Bounds:
    """Bounds that the values of a cube were clipped to."""

    low: np.ndarray
    """(bands,) lower bound; −∞ where there is none."""
    high: np.ndarray
    """(bands,) upper bound; ∞ where there is none."""
    share_low: np.ndarray
    """(bands,) share of values at the lower bound; zero where there is none."""
    share_high: np.ndarray
    """(bands,) share of values at the upper bound."""

    @property
    def any(self) -> bool:
        """Whether any band has a bound."""
        return bool(np.isfinite(self.low).any() or np.isfinite(self.high).any())

    def at(self, values: np.ndarray) -> np.ndarray:
        """Return True where values (..., bands) lie on a bound of their band."""
        return np.asarray((values <= self.low) | (values >= self.high))

    def select(self, bands: np.ndarray) -> Bounds:
        """Return the bounds of some bands."""
        parts = (self.low, self.high, self.share_low, self.share_high)
        return Bounds(*(part[bands] for part in parts))


def find_bounds(
    spectra: np.ndarray,
    step: np.ndarray | None = None,
    ends: tuple[np.ndarray, np.ndarray] | None = None,
    run: ParallelMap = in_turn,
) -> Bounds:
    """Return the bounds that bands were clipped to, from the crowd of values on them.

    Continuous noise meets its own extreme once. On a lattice of some step the extreme may be met
    often, but not much more often than the value next to it.

    Parameters
    ----------
    spectra
        (pixels, bands) spectra; NaN where values are missing.
    step
        (bands,) quantisation step, 0 where values are not on a lattice; none by default.
    ends
        (bands,) least and largest values, if they are known.
    run
        Parallel map.

    Examples
    --------
    >>> import numpy as np
    >>> noise = np.random.default_rng(0).normal(size=(2000, 3))
    >>> find_bounds(noise).any
    False
    >>> noise[:, 1] = np.clip(noise[:, 1], -1, np.inf)
    >>> found = find_bounds(noise)
    >>> found.low, found.share_low.round(2)
    (array([-inf,  -1., -inf]), array([0.  , 0.15, 0.  ]))
    """
    step = np.zeros(spectra.shape[1]) if step is None else step
    if ends is None:
        ends = np.fmin.reduce(spectra), np.fmax.reduce(spectra)
    ends = ends[0].astype(np.float64), ends[1].astype(np.float64)
    unknown, *crowds = at_once(
        run,
        lambda: _hits(np.isnan(spectra)),
        *(partial(lambda end: _hits(spectra == end), end) for end in ends),
    )
    known, shares = np.maximum(len(spectra) - unknown, 1), []
    for end, on_end, inwards in zip(ends, crowds, (1, -1), strict=True):
        beside = np.zeros(len(end))
        stepped = np.flatnonzero(step > 0)
        if len(stepped):
            beside[stepped] = _hits(spectra[:, stepped] == (end + inwards * step)[stepped])
        crowded = (on_end >= FEWEST) & (on_end > CROWD * beside)
        shares.append(_share(end, on_end / known, crowded & (ends[0] < ends[1])))
    low, high = (np.where(s > 0, e, far) for s, e, far in zip(shares, ends, (-np.inf, np.inf),
                                                              strict=True))  # fmt: skip
    return Bounds(low, high, *shares)


def _hits(where: np.ndarray) -> np.ndarray:
    """Return (bands,) how often something (pixels, bands) is the case; fast where it is rare."""
    bands = where.shape[1]
    return np.bincount(np.flatnonzero(where) % bands, minlength=bands)


def _share(end: np.ndarray, share: np.ndarray, crowded: np.ndarray) -> np.ndarray:
    """Return the share of values on the ends of bands where they are bounds; zero elsewhere."""
    sure = crowded & (share > SHARE)
    known = crowded & np.isin(end, end[sure]) & (share > SHARE_OF_KNOWN)
    return np.where(sure | known, share, 0.0)


def repeated_values(spectra: np.ndarray, step: np.ndarray | None = None) -> np.ndarray:
    """Return the values that a share of all elements holds exactly: impulses, fill values, bounds.

    Values on a lattice repeat by themselves; bands on one are passed over.

    Parameters
    ----------
    spectra
        (pixels, bands) spectra; NaN where values are missing.
    step
        (bands,) quantisation step, 0 where values are not on a lattice; none by default.

    Examples
    --------
    >>> import numpy as np
    >>> noise = np.random.default_rng(0).normal(size=(500, 8))
    >>> noise[::50] = 0.25
    >>> repeated_values(noise)
    array([0.25])
    """
    free = spectra if step is None else spectra[:, step == 0]
    looked = free.ravel()[:: max(1, free.size // LOOKED_AT)]
    found, counts = np.unique(looked[~np.isnan(looked)], return_counts=True)
    return found[(counts >= FEWEST) & (counts > REPEATED * max(looked.size, 1))]


def censored(
    values: np.ndarray,
    estimate: np.ndarray,
    sigma: np.ndarray | float,
    bounds: tuple[np.ndarray | float, np.ndarray | float],
) -> tuple[np.ndarray, np.ndarray]:
    """Return what clipped values were before, given an estimate, and how uncertain that is.

    One step of expectation–maximisation for Gaussian noise that was clipped: with m the estimate,
    α = (low − m)/σ and λ = φ(α)/Φ(α), a value on the lower bound had the mean m − σλ and the
    variance σ²(1 − λ(λ + α)); the upper bound likewise. Other values stay, with variance zero.

    Parameters
    ----------
    values
        Observed values.
    estimate
        Current estimate of them.
    sigma
        Standard deviation of the noise.
    bounds
        Lower and upper bound; infinite where there is none. All broadcast against ``values``.

    Returns
    -------
    (imputed, variance)
        Like ``values``. σ² − variance is what an observation on a bound still tells.

    Examples
    --------
    >>> imputed, variance = censored(np.array([0.0, 0.4]), np.zeros(2), 0.1, (0.0, 1.0))
    >>> imputed.round(4), variance.round(5)
    (array([-0.0798,  0.4   ]), array([0.00363, 0.     ]))
    """
    imputed = np.array(values, dtype=np.float64)
    variance = np.zeros(imputed.shape)
    mean, std = (np.broadcast_to(a, imputed.shape) for a in (estimate, sigma))
    for sign, bound in zip((1, -1), bounds, strict=True):
        limit = np.broadcast_to(bound, imputed.shape)
        on = np.isfinite(limit) & (sign * (imputed - limit) <= 0)
        unit = std[on]
        expected, spread = expected_beyond(mean[on] / unit, limit[on] / unit, sign)
        imputed[on], variance[on] = expected * unit, spread * np.square(unit)
    return imputed, variance
