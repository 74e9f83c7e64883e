"""Counts of a hold-out check, window by window: the same for any order and any tiling.

Everything that is summed over more than one window is a whole number, or is kept per window, so
that no sum depends on the order in which the windows come.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtri

from sigmacube.check.leave_one_out import Predicted
from sigmacube.core.validity import valid_elements
from sigmacube.noise.differences import signal_directions
from sigmacube.noise.filling import whole_spectra
from sigmacube.noise.sample import NoiseSample
from sigmacube.survey import Source, noise_sample, strips

__all__ = ["Look", "Tally", "brightness", "noise_lag1"]

N_CLASSES = 5
# Pixels whose brightness sets the classes; larger scenes are thinned out evenly.
MOST_PIXELS = 1_000_000
# Squares are counted in these units, up to a largest error: sums of whole numbers have no order.
UNIT, LARGEST = 2.0**-20, 1000.0
# Bins of |z|: so many to an octave, from 2⁻¹⁶ to 2¹⁶.
PER_OCTAVE, OCTAVES = 256, 16


def brightness(values: np.ndarray, there: np.ndarray) -> np.ndarray:
    """Return (row, col) the mean over the bands that are there; zero where there are none.

    Examples
    --------
    >>> brightness(np.array([[[1.0, 3.0, np.nan]]]), np.array([[[True, True, False]]]))
    array([[2.]])
    """
    spectra = np.ascontiguousarray(np.where(there, values, 0), dtype=np.float64)
    return spectra.sum(axis=2) / np.maximum(np.count_nonzero(there, axis=2), 1)


@dataclass(frozen=True, eq=False)
class Look:
    """What a hold-out check must know of the whole scene beforehand."""

    edges: np.ndarray
    """Brightness between two classes each."""
    varied: np.ndarray
    """(band with data,) False for constant bands, which are predicted exactly."""
    copies: float
    """Share of neighbouring pixels with equal spectra."""

    @classmethod
    def over(cls, source: Source, shape: tuple[int, int, int], bands: np.ndarray) -> Look:
        """Look at a scene, strip by strip."""
        low, high = np.full(len(bands), np.inf), np.full(len(bands), -np.inf)
        stride = math.isqrt(max(shape[0] * shape[1] - 1, 0) // MOST_PIXELS) + 1
        seen, last = [], None
        same = pairs = 0
        for rows in strips(shape):
            values, mask = source.block(rows, slice(0, shape[1]))
            there = valid_elements(values, mask)[..., bands]
            values = values[..., bands]
            valid = np.asarray(there.any(axis=2))
            low = np.minimum(low, np.where(there, values, np.inf).min(axis=(0, 1)))
            high = np.maximum(high, np.where(there, values, -np.inf).max(axis=(0, 1)))
            thin = np.s_[-rows.start % stride :: stride, ::stride]
            seen.append(brightness(values[thin], there[thin])[valid[thin]])
            if last is not None:
                values = np.concatenate([last[0], values])
                valid = np.concatenate([last[1], valid])
            same, pairs = _count_copies(values, valid, last is not None, (same, pairs))
            last = values[-1:], valid[-1:]
        every = np.concatenate(seen)
        shares = np.linspace(0, 1, N_CLASSES + 1)[1:-1]
        edges = np.quantile(every, shares) if len(every) else np.zeros(N_CLASSES - 1)
        return cls(edges, low < high, same / max(pairs, 1))


def _count_copies(
    values: np.ndarray, valid: np.ndarray, joined: bool, so_far: tuple[int, int]
) -> tuple[int, int]:
    """Add neighbours with equal spectra, and neighbours; the first row of a joined strip is old."""
    same, pairs = so_far
    own = np.s_[1:] if joined else np.s_[:]
    for a, b, v, ok in (
        (values[1:], values[:-1], valid[1:], valid[:-1]),
        (values[own][:, 1:], values[own][:, :-1], valid[own][:, 1:], valid[own][:, :-1]),
    ):
        both = v & ok
        same += int(np.count_nonzero(np.all(a == b, axis=2) & both))
        pairs += int(np.count_nonzero(both))
    return same, pairs


def noise_lag1(
    source: Source,
    shape: tuple[int, int, int],
    bands: np.ndarray,
    std: np.ndarray,
    *,
    scale: Source | None = None,
    impulses: bool = False,
) -> float:
    """Return the autocorrelation between neighbours of directions that hold noise only.

    Large scenes are looked at in part, as for the estimate of the noise.

    Parameters
    ----------
    source
        The scene, read by block.
    shape
        Its shape.
    bands
        Bands to use, which hold data that vary.
    std
        (bands,) their noise.
    scale
        Reads (row, col, 1) factors of the pixels on their noise; None where all are alike.
    impulses
        Whether to leave out what stands out from its neighbours.
    """
    if len(bands) < 4:
        return float("nan")
    values, mask = whole_spectra(*noise_sample(source), impulses=impulses)
    valid = np.asarray(valid_elements(values, mask)[..., bands].all(axis=2))
    if not valid.any():
        return float("nan")
    if scale is not None:
        values = values / noise_sample(scale)[0]
    sample = NoiseSample.create(values, bands, valid)
    return signal_directions(sample.scaled(std))[1]


class Tally:
    """Counts of predicted elements inside their intervals, and what else a check reports.

    Parameters
    ----------
    n_windows
        Windows that predict, without regard to the bands that they hold.
    n_parts
        Parts of the spectrum that windows hold each.
    n_bands
        Bands with data.
    levels
        Levels of the intervals.
    edges
        Brightness between two classes each.

    Examples
    --------
    >>> tally = Tally(n_windows=1, n_parts=1, n_bands=3, levels=(0.5, 0.95), edges=np.zeros(4))
    >>> z = np.array([[[0.1, 1.0, 3.0]]], dtype=np.float32)
    >>> tally.add(Predicted(0, 0, slice(0, 3), z, (0.0, 0.0, 0.0, np.nan)), np.ones((1, 1)))
    >>> {level: round(float(share), 3) for level, (share, _) in tally.by_level().items()}
    {0.5: 0.333, 0.95: 0.667}
    """

    def __init__(
        self,
        n_windows: int,
        n_parts: int,
        n_bands: int,
        levels: tuple[float, ...],
        edges: np.ndarray,
    ) -> None:
        self._levels, self._edges = levels, edges
        classes = len(edges) + 1
        self._hits = np.zeros((n_windows, len(levels)), dtype=np.int64)
        self._counts = np.zeros(n_windows, dtype=np.int64)
        self._class_hits, self._class_counts = np.zeros((2, n_windows, classes), dtype=np.int64)
        self._class_squares = [0] * classes
        self._range = np.array([[np.inf, -np.inf]] * classes)
        # n, Σh, Σc, Σh², Σhc, Σc² over windows, with h of c elements inside, per band.
        self._bands = np.zeros((6, n_bands), dtype=np.int64)
        self._squares = np.zeros(n_bands, dtype=object)
        self._bins = np.zeros(2 * OCTAVES * PER_OCTAVE, dtype=np.int64)
        self._space = np.full((n_windows * n_parts, 4), np.nan)

    def add(self, found: Predicted, light: np.ndarray) -> None:
        """Add what a window predicted; ``light`` (row, col) is the brightness of its pixels."""
        self._space[found.number * (len(self._space) // len(self._counts)) + found.part] = (
            found.space
        )
        size = np.abs(found.z.reshape(-1, found.z.shape[2]))
        known = np.isfinite(size)
        if not known.any():
            return
        size = np.where(known, size, 0)
        squares = np.rint(np.square(np.minimum(size, LARGEST), dtype=np.float64) / UNIT)
        squares = squares.astype(np.int64)
        inside = known & (size <= _limit(0.95))
        self._hits[found.number] += [
            np.count_nonzero(known & (size <= _limit(level))) for level in self._levels
        ]
        self._counts[found.number] += np.count_nonzero(known)
        h, c = (np.count_nonzero(flags, axis=0).astype(np.int64) for flags in (inside, known))
        self._bands[:, found.bands] += (c > 0, h, c, h * h, h * c, c * c)
        self._squares[found.bands] += squares.sum(axis=0).astype(object)
        place = (np.log2(size[known & (size > 0)]) + OCTAVES) * PER_OCTAVE
        place = np.clip(place, 0, len(self._bins) - 1).astype(np.int64)
        self._bins += np.bincount(place, minlength=len(self._bins))
        self._bins[0] += np.count_nonzero(known & (size == 0))
        self._add_classes(found.number, light.ravel(), known, inside, squares.sum(axis=1))

    def _add_classes(
        self,
        number: int,
        light: np.ndarray,
        known: np.ndarray,
        inside: np.ndarray,
        squares: np.ndarray,
    ) -> None:
        which = np.searchsorted(self._edges, light, side="right")
        per_pixel = np.count_nonzero(known, axis=1)
        hits = np.count_nonzero(inside, axis=1)
        for one in np.unique(which[per_pixel > 0]).tolist():
            here = (which == one) & (per_pixel > 0)
            self._class_hits[number, one] += hits[here].sum()
            self._class_counts[number, one] += per_pixel[here].sum()
            self._class_squares[one] += int(squares[here].sum())
            low, high = self._range[one]
            self._range[one] = min(low, light[here].min()), max(high, light[here].max())

    @property
    def n_elements(self) -> int:
        """Number of elements predicted."""
        return int(self._counts.sum())

    def by_level(self) -> dict[float, tuple[float, float]]:
        """Return the share inside each interval, with its standard error."""
        return {
            level: _share(self._hits[:, n], self._counts) for n, level in enumerate(self._levels)
        }

    @property
    def z_std(self) -> float:
        """Root mean square of the errors."""
        return math.sqrt(int(self._squares.sum()) * UNIT / self.n_elements)

    def quantile(self, share: float) -> float:
        """Return the size of error that a share of the elements does not exceed."""
        total = np.cumsum(self._bins)
        wanted = share * total[-1]
        n = int(np.searchsorted(total, wanted))
        before = total[n - 1] if n else 0
        part = (wanted - before) / max(int(self._bins[n]), 1)
        return float(2.0 ** ((n + part) / PER_OCTAVE - OCTAVES))

    def by_band(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return (bands,) shares inside 95 %, their standard errors, and rms of the errors."""
        n, h, c, hh, hc, cc = self._bands.astype(np.float64)
        with np.errstate(invalid="ignore", divide="ignore"):
            share = h / c
            spread = np.maximum(hh - 2 * share * hc + share**2 * cc, 0)
            error = _error(share, spread, n, c)
            rms = np.sqrt(self._squares.astype(np.float64) * UNIT / c)
        return share, error, rms

    def by_brightness(self) -> list[dict[str, float]]:
        """Return range, coverage and spread of the brightness classes, dark to bright."""
        classes = []
        for n, (low, high) in enumerate(self._range):
            count = int(self._class_counts[:, n].sum())
            if not low < high or not count:
                continue
            share, error = _share(self._class_hits[:, n], self._class_counts[:, n])
            spread = math.sqrt(self._class_squares[n] * UNIT / count)
            classes.append({"low": float(low), "high": float(high), "coverage": share,
                            "coverage_error": error, "z_std": spread})  # fmt: skip
        return classes

    @property
    def removed_lag1(self) -> float:
        """Lag-1 autocorrelation of the removed part, less what the fits themselves cause."""
        product, expected, power = (math.fsum(column) for column in self._known_space[:3])
        return (product - expected) / power if power > 0 else float("nan")

    @property
    def weakest_lag1(self) -> float:
        """Mean lag-1 autocorrelation of the weakest kept component."""
        values = self._known_space[3]
        values = values[np.isfinite(values)]
        return math.fsum(values) / len(values) if len(values) else float("nan")

    @property
    def _known_space(self) -> Any:
        return self._space[np.isfinite(self._space[:, 0])].T


def _limit(level: float) -> float:
    return float(ndtri((1 + level) / 2))


def _share(hits: np.ndarray, counts: np.ndarray) -> tuple[float, float]:
    """Return the share inside an interval and its standard error, from windows.

    Elements of a window are not independent and windows differ, so the error is that of a ratio of
    sums over windows.
    """
    share = hits.sum() / counts.sum()
    spread = np.sum(np.square(hits - share * counts))
    error = _error(share, spread, np.count_nonzero(counts), counts.sum())
    return float(share), float(error)


def _error(share: Any, spread: Any, n: Any, total: Any) -> Any:
    clustered = np.sqrt(spread * n / np.maximum(n - 1, 1)) / total
    return np.maximum(clustered, np.sqrt(share * (1 - share) / total))
