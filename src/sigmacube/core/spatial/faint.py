"""Signal outside the subspace, too faint to be seen: what there is of it.

Directions of B stand above the scene's noise edge; those of a real scene do not end there. Two
things tell of the rest: the strengths of those that are seen, whose law goes on, and the spectrum
in space of what lies outside of B, as noise is white and signal is not.
"""

from __future__ import annotations

import math
from functools import partial
from typing import NamedTuple

import numpy as np
from scipy.fft import dctn
from scipy.special import expit, log_ndtr

from sigmacube.core.parallel import ParallelMap, in_turn, strips

__all__ = ["HARDLY", "Faint", "Unseen", "faint_signal", "unseen"]

# Weakest directions whose law is continued to those that cannot be seen.
WEAKEST = 8
# The signal, over the least that can be seen, that surely would be; more where strengths keep to
# the law: directions that are many and close hide some of each other.
SURELY, EVEN = (1.0, 3.2), 0.15
# How probable it is that strengths go on by their law where they surely would, might, and where the
# next should have been seen; directions that a law can be read off.
SURE, MAYBE, HARDLY = 0.9, 0.1, 0.02
FEWEST = 4
# Standard errors below zero that are no less probable than more of them.
NOTHING = 10.0
# Strength of directions that are clearly seen, and how well it is known what noise they take.
CLEAR, UNSURE = 0.3, 0.25
# Bands that are looked at together.
TOGETHER = 32
# Bounds of rings of spatial frequency, in units of the highest along an axis.
RINGS = (0.16, 0.252, 0.357, 0.505, 0.667, 0.798, 0.944)


class Unseen(NamedTuple):
    """Signal per pixel along all directions that are too faint to be seen."""

    by_law: float
    """What there is if strengths go on as those that are seen."""
    chance: float
    """How probable it is that they do."""

    @property
    def expected(self) -> float:
        """What there is where nothing else is known of it."""
        return self.by_law if self.chance == SURE else 0.0

    def less(self, known: float) -> Unseen:
        """Return what there is beyond signal that is known of."""
        return self._replace(by_law=max(self.by_law - known, 0.0))

    def given(self, found: float, error: float) -> float:
        """Return what there is by what was found of it, with its standard error.

        Either there is none, or the law says how much to expect and what was found how much it is.
        Where the law is sure both count the same: the spectrum that signal was found by is known
        no better.

        Examples
        --------
        >>> [round(Unseen(2.0, MAYBE).given(found, 0.2), 2) for found in (0.0, 0.4, 2.0)]
        [0.0, 0.06, 1.98]
        >>> round(Unseen(2.0, SURE).given(1.0, 0.2), 2)
        1.49
        >>> round(Unseen(0.0, HARDLY).given(0.4, 0.2), 2)
        0.02
        """
        if error <= 0:
            return 0.0
        found, mean = max(found, -NOTHING * error), max(self.by_law, error)
        centre = found - error**2 / mean
        above = float(log_ndtr(centre / error))
        some = error**2 / (2 * mean**2) - found / mean + above - math.log(mean)
        none = -((found / error) ** 2) / 2 - math.log(error * math.sqrt(2 * math.pi))
        share = expit(math.log(self.chance / (1 - self.chance)) + some - none)
        density = math.exp(-((centre / error) ** 2) / 2 - above) / math.sqrt(2 * math.pi)
        drawn = float(share) * max(centre + error * density, 0.0)
        return (drawn + self.by_law) / 2 if self.chance == SURE else drawn


def unseen(strengths: np.ndarray, bands: int, least: float, imputed: bool = False) -> Unseen:
    """Return the signal that is too faint to be seen, by the law of the weakest that is.

    Strengths of real scenes fall like a power of their number, and go on below the noise: the law
    is continued to the last band. Where by that law more should have been seen, the scene has no
    more.

    Parameters
    ----------
    strengths
        Signal of the directions that are seen, in units of the noise, strongest first.
    least
        The weakest signal that can be seen.
    imputed
        Whether values were missing: what fills them makes weak directions, of which a law that is
        read off few directions knows nothing.

    Examples
    --------
    >>> law = 100 * np.arange(1, 60) ** -2.0
    >>> round(unseen(law[:20], 59, 0.25).expected, 2), float(round(law[20:].sum(), 2))
    (3.2, 3.2)
    >>> unseen(law[:3], 59, 0.25).expected
    0.0
    """
    k = len(strengths)
    if k < FEWEST or k >= bands:
        return Unseen(0.0, HARDLY)
    number = np.arange(1, bands + 1)
    last = slice(max(k - WEAKEST, 0), k)
    slope, level = np.polyfit(np.log(number[last]), np.log(strengths[last]), 1)
    law = np.exp(level + slope * np.log(number))
    even = k >= WEAKEST and bool(np.std(np.log(strengths[last] / law[last])) < EVEN)
    if law[k] > max(SURELY) * least:
        return Unseen(0.0, HARDLY)
    sure = k >= WEAKEST and law[k] <= SURELY[int(even)] * least
    if imputed and not (sure and even and k >= 2 * WEAKEST):
        return Unseen(0.0, HARDLY)
    return Unseen(float(law[k:].sum()), SURE if sure else MAYBE)


class Faint(NamedTuple):
    """What is found outside B."""

    signal: float
    """Signal per pixel."""
    error: float
    """Its standard error."""
    alike: float
    """Correlation of neighbouring pixels of all that lies there, signal or noise."""
    power: float
    """All that lies there per pixel, at the frequencies that were looked at."""


def faint_signal(patches: list[np.ndarray], basis: np.ndarray, run: ParallelMap = in_turn) -> Faint:
    """Return the signal per pixel outside B of unit-noise patches.

    The power of noise is the same at all spatial frequencies, whatever its level; that of signal
    too faint to be seen falls like that of the weakest that is. Of the noise B has taken, at each
    frequency, what its own coefficients have there.
    """
    bands, k = basis.shape
    patches = [y for y in patches if min(y.shape[:2]) > 1]
    if bands == k or not patches:
        return Faint(0.0, 0.0, 0.0, 0.0)
    spectra = run(partial(_spectrum, basis, run), patches)
    pixels = sum(float(part.number.sum()) for part in spectra)
    count, inside = (np.sum([getattr(p, n) for p in spectra], axis=0) for n in ("number", "inside"))
    outside = np.sum([part.outside for part in spectra], axis=0)
    taken = (bands - k) * (inside / np.maximum(inside.sum(axis=0), 1e-300)).sum(axis=1)
    alike = float(np.mean([part.alike for part in spectra]))
    weight, left = count / pixels, float(outside.sum()) / pixels
    shape = _shape(inside / np.maximum(count, 1)[:, None] - 1, weight)
    power = float(weight @ np.square(shape - 1))
    if power == 0:
        return Faint(0.0, math.sqrt(2 * bands / pixels), alike, left)
    found, lost = (float((shape - 1) @ part) / pixels / power for part in (outside, taken))
    error = math.hypot(math.sqrt(2 * (bands - k) / (pixels * power)), UNSURE * lost)
    return Faint(found + lost, error, alike, left)


def _shape(seen: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Return (rings,) the spectrum of faint signal, mean one, by that of directions (rings, k)."""
    strength = weight @ seen
    clear = np.flatnonzero(strength > CLEAR)[-WEAKEST:]
    if not len(clear):
        return np.ones(len(seen))
    return np.asarray((seen[:, clear] / strength[clear]).mean(axis=1))


class _Spectrum(NamedTuple):
    """Power of a patch by ring of spatial frequency; lines along the axes are left out."""

    number: np.ndarray
    """(rings,) coefficients."""
    inside: np.ndarray
    """(rings, k) their sums of squares along each direction."""
    outside: np.ndarray
    """(rings,) their sums of squares outside of them."""
    alike: float
    """Correlation of neighbouring pixels outside of directions."""


def _spectrum(basis: np.ndarray, run: ParallelMap, y: np.ndarray) -> _Spectrum:
    rows, cols = y.shape[:2]

    def waves(values: np.ndarray) -> np.ndarray:
        return np.asarray(dctn(values.astype(np.float32), axes=(0, 1), norm="ortho")[1:, 1:])

    def power_in(bands: slice) -> np.ndarray:
        values = waves(y[..., bands])
        return np.einsum("yxp,yxp->yx", values, values)

    inside = np.square(waves(y @ basis))
    every = np.sum(run(power_in, strips(0, y.shape[2], TOGETHER)), axis=0)
    outside = every - inside.sum(axis=2)
    radius = np.hypot(np.arange(1, rows)[:, None] / rows, np.arange(1, cols)[None] / cols)
    ring = np.digitize(radius, RINGS).ravel()
    member = np.equal.outer(np.arange(len(RINGS) + 1), ring).astype(np.float64)
    down, across = (np.cos(math.pi * np.arange(1, n) / n) for n in (rows, cols))
    alike = (down[:, None] + across[None]) / 2  # cosines of white noise have mean zero
    return _Spectrum(
        member.sum(axis=1),
        member @ inside.reshape(len(ring), basis.shape[1]).astype(np.float64),
        member @ outside.ravel().astype(np.float64),
        float(np.sum(alike * outside) / max(float(outside.sum()), 1e-12)),
    )
