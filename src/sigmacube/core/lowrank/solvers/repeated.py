"""Values that repeat exactly: saturated, dead or filled elements among continuous noise.

Two values of one band that carry noise are never equal, up to the step of the digitiser. Impulses
often are: zeros, saturation, fill values. A value that repeats in a band beyond what the digitiser
explains marks the elements that hold it as impulses, including those that happen to lie within
the noise of the signal, which no residual could tell.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

# A value must occur so often in a band of a window to be looked at.
FEWEST = 3
# Values looked at per band, the most frequent ones.
VALUES = 4
# Residuals beyond this many noise std are no noise.
FAR = 3.0
# Noise never gets there, and its square is a number in any precision.
BEYOND = 1e6
DENSITY = 1 / np.sqrt(2 * np.pi)


@dataclass(frozen=True, eq=False)
class Repeats:
    """The most frequent repeated values of every band of a patch.

    Examples
    --------
    >>> import numpy as np
    >>> patch = np.random.default_rng(0).normal(size=(60, 2))
    >>> patch[[3, 7, 20, 31], 1] = 0.5
    >>> repeats = Repeats.find(patch)
    >>> np.argwhere(repeats.certain(patch)).tolist()
    [[3, 1], [7, 1], [20, 1], [31, 1]]
    """

    values: np.ndarray
    """(k, bands) repeated values, NaN where a band has fewer than k."""
    counts: np.ndarray
    """(k, bands) how often each of them occurs."""
    chance: np.ndarray
    """(bands,) how often the next most frequent value occurs: what the digitiser makes repeat."""
    quantum: np.ndarray
    """(bands,) smallest difference between two values: the step of the digitiser."""

    @classmethod
    def find(cls, patch: np.ndarray) -> Repeats | None:
        """Return the repeated values of a patch (pixels, bands); None where nothing repeats."""
        n, p = patch.shape
        ordered = np.sort(np.ascontiguousarray(patch.T), axis=1)
        flat = ordered.ravel()
        new = np.empty(flat.size, dtype=bool)
        np.not_equal(flat[1:], flat[:-1], out=new[1:])
        new[::n] = True
        starts = np.flatnonzero(new)
        lengths = np.diff(np.append(starts, flat.size))
        often = np.flatnonzero(lengths >= FEWEST)
        if len(often) == 0:
            return None
        gaps = np.diff(ordered, axis=1)
        gaps[~(gaps > 0)] = np.inf  # equal values, and missing ones, which are sorted to the end
        band = starts[often] // n
        order = np.lexsort((-lengths[often], band))
        often, band = often[order], band[order]
        place = np.arange(len(often)) - np.searchsorted(band, band)
        frequent = place < VALUES
        chance = np.zeros(p, dtype=int)
        chance[band[place == VALUES]] = lengths[often[place == VALUES]]
        values = np.full((int(place[frequent].max()) + 1, p), np.nan, dtype=patch.dtype)
        where = place[frequent], band[frequent]
        values[where] = flat[starts[often[frequent]]]
        counts = np.zeros(values.shape, dtype=int)
        counts[where] = lengths[often[frequent]]
        # Three values or more that hold most of a band are steps of the digitiser.
        coarse = (np.count_nonzero(counts, axis=0) > 2) & (counts.sum(axis=0) > n / 2)
        chance[coarse] = counts[:, coarse].max(axis=0)
        return cls(values, counts, chance, gaps.min(axis=1))

    @property
    def _beyond_chance(self) -> np.ndarray:
        """(k, bands) values that repeat far more often than the digitiser makes others repeat.

        Impulses take few values. In a band of continuous noise nothing else repeats.
        """
        return self.counts > FEWEST - 0.5 + 2 * self.chance + 6 * np.sqrt(self.chance)

    def beyond_chance(self) -> np.ndarray:
        """Return (k, bands) the values that repeat more often than noise can make them, or NaN."""
        return np.where(self._beyond_chance, self.values, np.nan)

    def certain(self, patch: np.ndarray) -> np.ndarray:
        """Return the elements whose value repeats more often than noise can make it."""
        repeated = np.zeros(patch.shape, dtype=bool)
        for value in self.beyond_chance():
            repeated |= patch == value
        return repeated

    def uncertain(self) -> Repeats | None:
        """Return the repeated values that noise may have made, if there are any."""
        open_cases = (self.counts > 0) & ~self._beyond_chance
        if not open_cases.any():
            return None
        return replace(self, values=np.where(open_cases, self.values, np.nan))

    def likely(self, patch: np.ndarray, matrix: np.ndarray) -> np.ndarray:
        """Return the elements that are rather a repeated impulse than noise about ``matrix``.

        The share of impulses at a value is learned from where it lies far from the signal, and
        from how much more often it occurs near the signal than noise would make it.
        """
        impulse = np.zeros(patch.shape, dtype=bool)
        for value in self.values:
            equal = patch == value
            distance = np.minimum(np.abs(value - matrix), BEYOND)
            far = distance > FAR
            n_far = np.count_nonzero(far, axis=0)
            hits_far = np.count_nonzero(equal & far, axis=0)
            by_noise = np.exp(-0.5 * np.square(distance)) * (DENSITY * self.quantum)
            hits_near = np.count_nonzero(equal & ~far, axis=0)
            surplus = hits_near - 2 * np.nansum(by_noise * ~far, axis=0) - FEWEST
            share = np.maximum(
                np.where(hits_far >= FEWEST, hits_far / np.maximum(n_far, 1), 0),
                surplus / np.maximum(len(patch) - n_far, 1),
            )
            impulse |= equal & (share > by_noise)
        return impulse
