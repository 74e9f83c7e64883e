"""Offsets that the columns or the rows of a scene carry in every band: estimated, with an error.

Each detector of a pushbroom sensor has an offset of its own in every band, constant along the
track. A window takes it for signal. The scene can tell: outside the directions of the signal, the
means of a column over different parts of the track have nothing in common but its offset.

Offsets are shrunk means: with S² the variance of a line's offsets and n that of noise in a mean,
o = S²/(S² + n) · mean, which leaves the variance S² n/(S² + n). Inside the directions of the signal
steps from line to line are looked at, the median along the line: borders of fields are few there,
and what else the signal does is smooth from line to line where offsets are not. With m the sum of
steps, D = diag(S²) and K the covariance of all else in it, o = D(K + D)⁻¹m, and D − D(K + D)⁻¹D is
left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from scipy.fft import idct
from scipy.ndimage import uniform_filter1d

__all__ = ["LeftInside", "LineOffsets", "find_offsets", "median_steps", "profiles"]

Block = Callable[[slice, slice], tuple[np.ndarray, np.ndarray]]
Directions = tuple[np.ndarray, np.ndarray]
# Parts of the track whose means are compared.
PARTS = 4
# Lines and elements along them that this needs.
FEWEST = 24
# Offsets must stand out of sampling by so many standard errors, be so large a share of the noise of
# a line's mean, and exceed what the other axis shows by so much: texture shows in both alike.
SIGNIFICANT, NOTABLE, ANISOTROPY = 6.0, 0.1, 3.0
# Offsets that neighbouring bands share to this degree are a surface: a road along the track.
SMOOTH_IN_BANDS = 0.8
# Rounds in which the power of what is no offset grows likelier.
LIKELIER = 4
# Frequencies that power is averaged over to begin with.
SMOOTHING = 5
# Numbers that a variance is known from at least.
FEW = 2
# Steps beyond so many times the usual one are borders.
BORDER = 4.0
# So many steps that end so near to where they began, over the largest of them, are no borders.
NARROW, BACK = 5, 0.5
# Pixels of a window along a line.
ALONG = 20
# Lines that are solved together.
TOGETHER = 256
# Variance of errors without any offsets over that of the noise that windows keep.
BIAS = 1.04
# Pixels that keep so many times more of it than the usual one, over the claim, count no more.
JUMP = 6.0


@dataclass(frozen=True, eq=False)
class LineOffsets:
    """Offsets of the lines along one axis."""

    axis: int
    """0 for offsets of rows, 1 for those of columns."""
    values: np.ndarray
    """(lines, bands) offsets."""
    std: np.ndarray
    """(lines, bands) standard deviation of what is left of them in an estimate."""
    strength: float
    """Typical size of offsets, in units of the noise."""
    own: np.ndarray | None = None
    """(bands,) share of the variance that windows claim that is not of offsets they smoothed."""
    inside: LeftInside | None = None
    """What is left in the signal's directions, for `answered`."""

    def answered(
        self, left: np.ndarray, kept: np.ndarray, claimed: np.ndarray, noise: np.ndarray
    ) -> LineOffsets:
        """Return them with what an estimate was seen to keep of offsets that are left.

        What windows smooth away is no error, but they see a difference to what was observed, and
        claim it.

        Parameters
        ----------
        left
            (row, col, band) a draw of offsets that are left inside, on some of the scene.
        kept
            What an estimate has more when they are added once more.
        claimed
            σ of the estimate.
        noise
            What the estimate keeps of a draw of the noise.
        """
        assert self.inside is not None
        share = _size(kept) / np.maximum(_size(left + np.zeros_like(kept)), 1e-300)
        claim = np.maximum(_size(claimed), 1e-300)
        own = np.maximum(
            1 - _size(left - kept) / claim,
            np.minimum(BIAS * _size(_no_jumps(noise, claimed)) / claim, 1),
        )
        std = np.sqrt(self.inside.outside + share * self.inside.variance)
        return replace(self, std=std, own=own, inside=None)

    def with_left(self, std: np.ndarray, rows: slice, cols: slice) -> np.ndarray:
        """Return σ of a block's windows (row, col, band) with what is left of offsets."""
        own = std if self.own is None else std * np.sqrt(self.own)
        return np.hypot(own, self.on(self.std, rows, cols)).astype(std.dtype)

    def without_left(self, std: np.ndarray, rows: slice, cols: slice) -> np.ndarray:
        """Return what `with_left` was given."""
        own = np.sqrt(np.maximum(np.square(std) - np.square(self.on(self.std, rows, cols)), 0))
        return own if self.own is None else own / np.sqrt(self.own)

    def on(self, array: np.ndarray, rows: slice, cols: slice) -> np.ndarray:
        """Return values of lines on a block (1 or row, 1 or col, band)."""
        return array[None, cols] if self.axis else array[rows, None]

    def removed(self, values: np.ndarray, rows: slice, cols: slice) -> np.ndarray:
        """Return a block without them; floats keep their type."""
        kind = values.dtype if values.dtype.kind == "f" else np.dtype(np.float64)
        return (values - self.on(self.values, rows, cols)).astype(kind, copy=False)

    def in_units(self, scale: np.ndarray, bands: np.ndarray, n_bands: int) -> LineOffsets:
        """Return offsets of scaled bands for all bands of a cube; zero in those left out."""

        def whole(array: np.ndarray, factor: np.ndarray) -> np.ndarray:
            every = np.zeros((len(array), n_bands))
            every[:, bands] = array * factor
            return every

        inside = self.inside
        if inside is not None:
            inside = LeftInside(
                whole(inside.outside, scale**2),
                whole(inside.variance, scale**2),
                whole(inside.draw, scale),
            )
        values, std = whole(self.values, scale), whole(self.std, scale)
        return replace(self, values=values, std=std, inside=inside)

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Return everything as arrays."""
        facts = np.array([self.axis, self.strength])
        arrays = {"offsets": self.values, "offsets_std": self.std, "offsets_facts": facts}
        return arrays if self.own is None else {**arrays, "offsets_own": self.own}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> LineOffsets:
        """Return what `to_arrays` gave."""
        axis, strength = arrays["offsets_facts"]
        values, own = arrays["offsets"], arrays.get("offsets_own")
        return cls(int(axis), values, arrays["offsets_std"], float(strength), own)


@dataclass(frozen=True, eq=False)
class LeftInside:
    """What is left of offsets, in and beside the directions of the signal."""

    outside: np.ndarray
    """(lines, bands) variance that is left in an estimate beside them."""
    variance: np.ndarray
    """(lines, bands) variance that is left in the data, in them."""
    draw: np.ndarray
    """(lines, bands) offsets of that variance, in them."""


def _no_jumps(values: np.ndarray, claimed: np.ndarray) -> np.ndarray:
    """Return values without what stands out of the claim: ranks that changed over a small step."""
    ratio, claim = (
        np.square(np.nan_to_num(part), dtype=np.float64).sum(axis=2) for part in (values, claimed)
    )
    ratio /= np.maximum(claim, 1e-300)
    most = JUMP * np.median(ratio)
    return values * np.sqrt(np.minimum(most / np.maximum(ratio, 1e-300), 1))[..., None]


def _size(values: np.ndarray) -> np.ndarray:
    """Return the mean square (band,) of values (row, col, band) that are known."""
    known = np.isfinite(values)
    total = np.sum(np.where(known, values, 0.0) ** 2, axis=(0, 1))
    return np.asarray(total / np.maximum(known.sum(axis=(0, 1)), 1))


def profiles(
    block: Block, shape: tuple[int, int, int], height: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the means (parts, lines, bands) of rows and of columns, read strip by strip.

    Over parts of their length; NaN without values.

    Parameters
    ----------
    block
        ``block(rows, cols)`` gives values (row, col, band) of about unit noise, and which of them
        count.
    shape
        Rows, columns and bands.
    height
        Rows to read at a time.
    """
    n_rows, n_cols, _ = shape
    down, along = _Means(n_cols, shape[2]), _Means(n_rows, shape[2])
    quarters = np.equal.outer(np.arange(PARTS), np.arange(n_cols) * PARTS // n_cols).astype(float)
    for part, rows in _strips(n_rows, height):
        values, counts = block(rows, slice(0, n_cols))
        if counts.all():
            counts = np.ones((len(values), n_cols, 1))
        else:
            values = np.where(counts, values, 0)
            counts = counts.astype(float)
        down.add(part, slice(None), values.sum(axis=0), counts.sum(axis=0))
        sums, number = (np.matmul(quarters, a).transpose(1, 0, 2) for a in (values, counts))
        along.add(slice(None), rows, sums, number)
    return along.found, down.found


def median_steps(
    block: Block, shape: tuple[int, int, int], axis: int, signal: np.ndarray, height: int
) -> np.ndarray:
    """Return (lines − 1, k) the median step of rows (0) or columns (1) to the next one.

    Along directions (bands, k) of the signal; the rest as for `profiles`.
    """
    n_rows, n_cols, _ = shape
    across: list[np.ndarray] = []
    below, last = np.zeros((n_rows - 1, signal.shape[1])), None
    for _, rows in _strips(n_rows, height):
        values, counts = block(rows, slice(0, n_cols))
        z = np.where(np.asarray(counts.all(axis=2))[..., None], values, np.nan) @ signal
        if axis:
            across.append(_median(z[:, 1:] - z[:, :-1], 0) * len(z))
            continue
        tall = z if last is None else np.concatenate([last, z])
        below[rows.stop - len(tall) : rows.stop - 1] = _median(tall[1:] - tall[:-1], 1)
        last = z[-1:]
    return np.sum(across, axis=0) / n_rows if axis else below


def _strips(n_rows: int, height: int) -> Iterator[tuple[int, slice]]:
    """Yield part and rows of strips of at most so many rows."""
    edges = [n_rows * part // PARTS for part in range(PARTS + 1)]
    for part, (first, end) in enumerate(pairwise(edges)):
        for top in range(first, end, height):
            yield part, slice(top, min(top + height, end))


class _Means:
    """Means of lines over parts of their length, added up."""

    def __init__(self, lines: int, bands: int) -> None:
        self.sums, self.counts = np.zeros((2, PARTS, lines, bands))

    def add(self, part: int | slice, lines: slice, sums: np.ndarray, counts: np.ndarray) -> None:
        self.sums[part, lines] += sums
        self.counts[part, lines] += counts

    @property
    def found(self) -> np.ndarray:
        with np.errstate(invalid="ignore", divide="ignore"):
            return self.sums / self.counts


def _median(steps: np.ndarray, axis: int) -> np.ndarray:
    """Return the median of steps along an axis; zero where there are none."""
    if not np.isnan(steps).any():
        return np.median(steps, axis=axis)
    known = ~np.isnan(steps).all(axis=axis, keepdims=True)
    return np.nanmedian(np.where(known, steps, 0.0), axis=axis)


def find_offsets(
    means: tuple[np.ndarray, np.ndarray],
    signal: Directions,
    steps: Callable[[int, np.ndarray], np.ndarray],
) -> LineOffsets | None:
    """Return the offsets of columns or rows, whichever have some; None if neither has.

    Parameters
    ----------
    means
        Means of rows and columns, see `profiles`.
    signal
        (bands, k) orthonormal directions of the signal, as rows and as columns show it.
    steps
        ``steps(axis, directions)`` gives `median_steps`; asked for only where there are offsets.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> cube, there = rng.normal(size=(60, 50, 30)), np.ones((60, 50, 30), dtype=bool)
    >>> signal = (np.ones((30, 1)) / np.sqrt(30),) * 2
    >>> look = lambda rows, cols: (cube[rows, cols], there[rows, cols])
    >>> steps = lambda axis, directions: median_steps(look, cube.shape, axis, directions, 60)
    >>> find_offsets(profiles(look, cube.shape, 60), signal, steps) is None
    True
    >>> offsets = rng.normal(size=(50, 30))
    >>> cube += offsets
    >>> found = find_offsets(profiles(look, cube.shape, 60), signal, steps)
    >>> left = found.values - offsets
    >>> found.axis, bool(np.std(left) < 0.3 * np.std(offsets))
    (1, True)
    """
    power = [
        _Power.of(part, directions) if _is_usable(part) else None
        for part, directions in zip(means, signal, strict=True)
    ]
    sizes = [0.0 if one is None else one.mean for one in power]
    axis = int(np.argmax(sizes))
    one, other = power[axis], max(sizes[1 - axis], 0.0)
    if one is None or not one.notable or one.mean < ANISOTROPY * other:
        return None
    length = means[1 - axis].shape[1]
    shown = means[axis], steps(axis, signal[axis]), length
    values, left, inside = _shrunk(*shown, one, signal[axis])
    return LineOffsets(axis, values, np.sqrt(left), float(np.sqrt(one.mean)), inside=inside)


def _is_usable(means: np.ndarray) -> bool:
    return means.shape[1] >= FEWEST and bool(np.isfinite(means).all())


@dataclass(frozen=True, eq=False)
class _Power:
    """Variance of offsets outside the signal's directions, and of noise in the mean of a line."""

    offsets: np.ndarray
    """(lines, bands) S²."""
    noise: np.ndarray
    """(bands,) n."""
    mean: float
    """Mean of S²."""
    error: float
    """Standard error of that mean if there were no offsets."""
    smooth: float
    """Correlation of neighbouring bands' offsets."""

    @classmethod
    def of(cls, parts: np.ndarray, directions: np.ndarray) -> _Power:
        """Compare parts (part, line, band)."""
        outside = parts - parts.mean(axis=1, keepdims=True)
        outside = outside - (outside @ directions) @ directions.T
        share = np.maximum(1 - np.sum(directions**2, axis=1), 0.1)
        pairs = PARTS * (PARTS - 1)
        product = (outside.sum(axis=0) ** 2 - np.square(outside).sum(axis=0)) / pairs / share
        by_band = np.maximum(product.mean(axis=0), 0)
        own = np.square(outside).mean(axis=(0, 1)) / share
        noise = np.maximum(own - by_band, 1e-12) / PARTS
        beside = outside.sum(axis=0)[:, 1:] * outside.sum(axis=0)[:, :-1]
        beside -= (outside[:, :, 1:] * outside[:, :, :-1]).sum(axis=0)
        mean = float(product.mean())
        by_line = np.maximum(product.mean(axis=1), 0) / max(mean, 1e-300)
        # Bands of correlated noise tell less than so many independent ones.
        spread = outside - outside.mean(axis=0)
        gram = np.tensordot(spread, spread, axes=((0, 1), (0, 1)))
        count = len(product) * np.trace(gram) ** 2 / np.sum(gram**2)
        error = PARTS * float(noise.mean()) / np.sqrt(pairs / 2 * count)
        smooth = float(beside.mean()) / pairs / max(mean, 1e-300)
        return cls(np.outer(by_line, by_band), noise, mean, float(error), smooth)

    @property
    def notable(self) -> bool:
        """Whether there are offsets that are worth taking out."""
        large = self.mean > NOTABLE * float(np.mean(self.noise))
        return large and self.mean > SIGNIFICANT * self.error and self.smooth < SMOOTH_IN_BANDS


def _shrunk(
    parts: np.ndarray, steps: np.ndarray, length: int, power: _Power, directions: np.ndarray
) -> tuple[np.ndarray, np.ndarray, LeftInside]:
    """Return offsets (line, band), the variance that is left in an estimate, and more of it."""
    means = parts.mean(axis=0)
    outside = means - means.mean(axis=0)
    outside -= (outside @ directions) @ directions.T
    gain = power.offsets / (power.offsets + power.noise)
    along = np.square(directions)
    # Outside the signal an estimate keeps nothing of what is left, S²(1 − gain), as far as n is
    # noise alone; but what all lines have in common looks like signal and stays in those that have
    # offsets.
    signal = 1 - np.minimum(1 / (length * power.noise), 1)
    common = power.offsets.mean(axis=0) / len(means)
    left = (power.offsets * (1 - gain) * signal + gain**2 * common) * (1 - along.sum(axis=1))
    values = outside * gain
    steps = np.where(_borders(steps), 0.0, steps)
    level = np.concatenate([np.zeros((1, steps.shape[1])), np.cumsum(steps, axis=0)])
    expected, floor = power.offsets @ along, power.noise @ along
    beside, remains, draw = left.copy(), np.zeros_like(level), np.zeros_like(level)
    rng = np.random.default_rng(0)
    for start in range(0, len(level), TOGETHER):
        part = slice(start, start + TOGETHER)
        for i in range(level.shape[1]):
            inside, remains[part, i], draw[part, i] = _inside(
                level[part, i], expected[part, i], float(floor[i]), rng
            )
            values[part] += inside[:, None] * directions[:, i]
            left[part] += _kept(remains[part, i])[:, None] * along[:, i]
    return values, left, LeftInside(beside, remains @ along.T, draw @ directions.T)


def _borders(steps: np.ndarray) -> np.ndarray:
    """Tell which steps (lines − 1, k) are borders of fields along most of a line: no offsets.

    What a few steps later has gone back is a line of its own, which no field is.
    """
    usual = 1.4826 * np.median(np.abs(steps), axis=0)
    large = np.abs(steps) > BORDER * usual
    border = large.copy()
    for line, i in np.argwhere(large).tolist():
        run = steps[line : line + NARROW, i]
        back = np.abs(np.cumsum(run)) < BACK * np.maximum.accumulate(np.abs(run))
        back &= large[line : line + NARROW, i]
        if back.any():
            border[line : line + int(np.flatnonzero(back)[-1]) + 1, i] = False
    return border


def _kept(left: np.ndarray) -> np.ndarray:
    """Return what an estimate keeps of variance that is left in lines, in units of the noise.

    A window shrinks what stands little out of the noise: with n of its pixels along a line,
    1 + n · left is what it sees.
    """
    return np.asarray(left * np.maximum(1 - 2 / (1 + ALONG * left), 0))


def _inside(
    level: np.ndarray, power: np.ndarray, floor: float, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return offsets (lines,) along a direction of the signal, variance and a draw of what is left.

    ``level`` is the sum of steps, ``power`` the variance of every line's offset, ``floor`` the
    least variance of what else is in it.
    """
    level = level - level.mean()
    basis = idct(np.eye(len(level)), axis=0, norm="ortho")
    # What else is in it falls with frequency. It is begun from above: where offsets are strong, the
    # likeliest is known badly, and less of it leaves too little of them in doubt.
    found = uniform_filter1d(np.square(basis.T @ level), SMOOTHING, mode="nearest")
    found = np.maximum.accumulate(found[::-1])[::-1] - power.mean()
    for last in [False] * LIKELIER + [True]:
        other = np.maximum(found, floor)
        other[0] = max(float(np.square(level).sum()), other.max())
        inverse = np.linalg.inv((basis * other) @ basis.T + np.diag(power))
        values = power * (inverse @ level)
        if not last:
            left = np.diag(power) - power[:, None] * inverse * power
            square = np.square(basis.T @ (level - values)) + np.sum(basis * (left @ basis), axis=0)
            found, number = _falling(square)
            # The expected variance of n numbers, given them, is n/(n − 2) of theirs.
            found *= number / np.maximum(number - 2, FEW)
    one, another = rng.standard_normal((2, len(level)))
    drawn = np.sqrt(power) * one
    drawn -= power * (inverse @ (drawn + basis @ (np.sqrt(other) * another)))
    return values, np.maximum(power - power**2 * np.diag(inverse), 0), drawn


def _falling(power: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the likeliest power that does not rise (n,) of squared normal numbers (n,).

    Their means over runs, as long as it takes for them to fall; and how long these are.

    Examples
    --------
    >>> import numpy as np
    >>> _falling(np.array([5.0, 1.0, 3.0, 2.0, 0.0]))
    (array([5., 2., 2., 2., 0.]), array([1, 3, 3, 3, 1]))
    """
    runs: list[tuple[float, int]] = []
    for value in power.tolist():
        mean, count = value, 1
        while runs and runs[-1][0] <= mean:
            before, more = runs.pop()
            mean, count = (mean * count + before * more) / (count + more), count + more
        runs.append((mean, count))
    means, counts = (np.array(part) for part in zip(*runs, strict=True))
    return np.repeat(means, counts), np.repeat(counts, counts)
