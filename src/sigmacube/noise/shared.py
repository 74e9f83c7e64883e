"""Noise that all bands of a pixel share: common mode, gains, wherever it is told from texture.

Such noise is strong and of low rank, so windows take it for signal. Two things tell it apart: its
spectrum u is known (common mode adds the bands' noise, or one number; a gain the pixel's own
spectrum, on average the mean one), and in space it is white, which no surface is.

*Along a known spectrum.* In small tiles of the scene that are quiet at low frequencies, H is the
covariance of the cosine coefficients at all others. Of all weights w with wᵀu = 1 those with the
least wᵀHw let through what is along u in every pixel and as little as possible of anything else,
texture as well as the bands' own noise. The power that is left beyond that of the bands' noise is
compared at low, medium and high frequencies: shared noise has the same at all of them. It must be
most of what comes through, so that no faint texture can pass for it: a little that is missed costs
a little in σ, one that is invented takes signal away.

*Along the pixels' own spectra* second differences tell of small gains: texture grows with the
distance of pixels, a gain does not.

*Doubt.* Where much is left that falls little with frequency, but not so little that it must be
noise, texture and noise look alike.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np
from scipy.fft import dctn
from scipy.special import ndtri

from sigmacube.core.parallel import ParallelMap, in_turn
from sigmacube.core.whitening import Noise
from sigmacube.noise.sample import NoiseSample

__all__ = ["SharedNoise", "gain_left", "shared_noise", "small_gains"]

# Side of tiles, and bounds of low, medium and high frequencies in them.
TILE, LOW, HIGH = 8, 0.4, 0.7
# Bands, tiles, and coefficients per band that it needs.
FEW_BANDS, FEWEST, ENOUGH = 16, 12, 2
# The spectrum is known to some per cent only, and weights that are fitted to what is there find a
# way around noise that is strong: white noise is added to H, little at first, more for noise that
# is at least so strong, and to measure it up to so many times what was found, in such steps.
LOADED, UNSURE, MORE = (1.0, 30.0), 3.0, 3.0
# Share of what comes through that the bands' own noise has at most; power at medium over that at
# high frequencies at most; at low ones, unless the bands' noise has less than a small share. The
# same of noise that is weak. Chosen on draws and strengths that are not in the list of
# benchmarks/honesty.py.
OWN_SHARE, FLAT, FLAT_LOW, CLEAR = 0.4, 1.4, 3.0, 0.1
OWN_SHARE_WEAK, FLAT_WEAK, FLAT_LOW_WEAK = 0.7, 1.3, 2.0
# Noise along a known spectrum, over that of a band, that is doubtful where it is clear of the
# bands' own and falls by no more than so much; and so much of gains, whose size follows the pixel.
DOUBTFUL, DOUBTFUL_FLAT, DOUBTFUL_GAINS = 0.75, 1.75, 0.5
# Position of the mean spectrum among the spectra that are tried.
GAIN = 2
# Places that share pixels tell as much as so many times fewer.
SHARED = 2.25
# Share of what is there along the pixels' own spectra that must be left at distance zero, beyond so
# many standard errors; chosen on draws of honesty.py that are not in its list, where textures leave
# up to .13 and gains .5 or more. Quantile of sizes that is compared, and the fewest of them.
OWN_FLAT, OWN_SIGNIFICANT, OWN_QUANTILE, FEW_PLACES = 0.4, 3.0, 0.5, 384


class SharedNoise(NamedTuple):
    """Noise that bands share beyond their own."""

    covariance: np.ndarray | None
    """(bands, bands); None where there is none to be told."""
    doubtful: bool
    """Whether there may be some that looks like texture, or large gains."""


def shared_noise(sample: NoiseSample, noise: Noise, run: ParallelMap = in_turn) -> SharedNoise:
    """Return the noise that bands share beyond a known noise.

    Parameters
    ----------
    sample
        Windows of the scene.
    noise
        Noise of its bands as known so far.
    run
        Parallel map over windows.

    Examples
    --------
    >>> import numpy as np, sigmacube as sc
    >>> rng = np.random.default_rng(0)
    >>> clean = sc.synthetic.smooth_fields((60, 60, 40))
    >>> noisy = clean + 0.02 * rng.normal(size=clean.shape)
    >>> every = np.ones((60, 60), dtype=bool)
    >>> known = Noise.create(0.02, 40)
    >>> shared_noise(NoiseSample.create(noisy, np.arange(40), every), known).covariance is None
    True
    >>> noisy += 0.03 * rng.normal(size=(60, 60, 1))
    >>> found = shared_noise(NoiseSample.create(noisy, np.arange(40), every), known).covariance
    >>> bool(0.8 < np.sqrt(found[3, 7]) / 0.03 < 1.2)
    True
    """
    waves = _Waves.of(sample, noise, run)
    if waves is None:
        return SharedNoise(None, False)
    shapes = (noise.std, np.ones(sample.n_bands), sample.products(run).mean)
    seen = [waves.along(noise.whiten(shape)) for shape in shapes]
    flat = [number for number, one in enumerate(seen) if one.is_noise]
    if not flat:
        return SharedNoise(None, any(one.is_doubtful for one in seen))
    best = min(flat, key=lambda number: seen[number].own)
    shape = shapes[best]
    power = waves.measured(noise.whiten(shape), seen[best])
    if best != GAIN:
        return SharedNoise(power * np.outer(shape, shape), False)
    return _along_spectra(sample, noise, power)


def gain_left(sample: NoiseSample, noise: Noise, run: ParallelMap = in_turn) -> float:
    """Return the variance, over that of the noise of a band, that pixels keep of their own gains.

    A gain is noise along the pixel's own spectrum. Second differences along it hold no more than
    noise where there is none; what texture adds grows with the distance of the pixels, and that of
    a gain does not: twice what is there at one pixel, less that at two, is what it has. Zero where
    it is not significant, or might be texture.

    Examples
    --------
    >>> import numpy as np, sigmacube as sc
    >>> rng = np.random.default_rng(0)
    >>> clean = sc.synthetic.smooth_fields((60, 60, 40))
    >>> noisy = clean + 0.02 * rng.normal(size=clean.shape)
    >>> every, known = np.ones((60, 60), dtype=bool), Noise.create(0.02, 40)
    >>> gain_left(NoiseSample.create(noisy, np.arange(40), every), known)
    0.0
    >>> noisy *= 1 + 0.02 * rng.normal(size=(60, 60, 1))
    >>> gain_left(NoiseSample.create(noisy, np.arange(40), every), known) > 0.05
    True
    """
    windows = list(zip(run(noise.whiten, sample.blocks), sample.valid, strict=True))
    near, far = (np.concatenate(run(partial(_along_own, apart), windows)) for apart in (1, 2))
    if len(far) < FEW_PLACES:
        return 0.0
    usual = float(ndtri((1 + OWN_QUANTILE) / 2))
    one, two = (float(np.quantile(np.abs(part), OWN_QUANTILE) / usual) ** 2 for part in (near, far))
    # The standard error of a quantile, and of the square of what it tells of the size.
    density = 2 * np.exp(-(usual**2) / 2) / np.sqrt(2 * np.pi)
    relative = np.sqrt(OWN_QUANTILE * (1 - OWN_QUANTILE) * SHARED / len(far)) / density / usual
    error = 2 * relative * np.hypot(2 * one, two)
    left = 2 * one - two - 1
    if left < OWN_SIGNIFICANT * error or left < OWN_FLAT * (one - 1):
        return 0.0
    return left / sample.n_bands


def small_gains(sample: NoiseSample, noise: Noise, run: ParallelMap = in_turn) -> SharedNoise:
    """Return the noise by gains that are too small for `shared_noise`.

    As noise along the mean product of spectra, as large as `gain_left` has it.
    """
    left = gain_left(sample, noise, run)
    if not left > 0:
        return SharedNoise(None, False)
    products = sample.products(run).whitened(noise)
    power = left * products.number * sample.n_bands / float(np.trace(products.total))
    return _along_spectra(sample, noise, power)


def _along_spectra(sample: NoiseSample, noise: Noise, power: float) -> SharedNoise:
    """Return the noise by gains: every pixel's own spectrum times a factor.

    One covariance is not theirs where they are large.
    """
    products = sample.products()
    found = power * (products.total / products.number - noise.factor @ noise.factor.T)
    values, vectors = np.linalg.eigh(found)
    found = (vectors * np.maximum(values, 0)) @ vectors.T
    size = np.sqrt(np.diag(found)) / noise.std
    return SharedNoise(found, bool(np.median(size) > DOUBTFUL_GAINS))


def _along_own(apart: int, window: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """Return mixed second differences (n,) of pixels, along the mean of the four spectra."""
    white, valid = window
    if min(valid.shape) <= apart:
        return np.zeros(0)
    first, last = slice(None, -apart), slice(apart, None)
    corners = [(y, x) for y in (first, last) for x in (first, last)]
    a, b, c, d = (white[corner] for corner in corners)
    own, change = a + b + c + d, a - b - c + d
    length = np.maximum(np.sqrt(np.einsum("yxv,yxv->yx", own, own)), 1e-300)
    there = np.logical_and.reduce([valid[corner] for corner in corners])
    return np.asarray((np.einsum("yxv,yxv->yx", change, own) / (2 * length))[there])


class _Seen(NamedTuple):
    """What comes through of noise along a spectrum u that pixels share."""

    power: float
    """c²: variance of the factor on u, at high frequencies, without the bands' own noise."""
    size: float
    """Median standard deviation of bands that it makes, over that of their own noise."""
    own: float
    """Share of the bands' own noise in all that comes through."""
    medium: float
    """Power at medium frequencies over that at high ones."""
    low: float
    """The same at low ones."""
    loaded: float
    """How much was added to H."""

    @property
    def is_noise(self) -> bool:
        """Whether it is white in space and clear of the bands' own noise."""
        if self.own < OWN_SHARE:
            return self.medium < FLAT and (self.low < FLAT_LOW or self.own < CLEAR)
        weak = self.own < OWN_SHARE_WEAK and self.medium < FLAT_WEAK
        return weak and self.low < FLAT_LOW_WEAK

    @property
    def is_doubtful(self) -> bool:
        """Whether it may be noise, and so much that it would matter."""
        clear = self.size > DOUBTFUL and self.own < CLEAR
        return clear and self.medium < DOUBTFUL_FLAT


class _Waves(NamedTuple):
    """Cosine coefficients of quiet tiles, in units of the noise of bands."""

    powers: tuple[np.ndarray, ...]
    """(bands, bands) covariances at low, medium and high frequencies."""
    number: int
    """Coefficients at medium and high ones."""
    values: np.ndarray
    """(bands,) eigenvalues of H, their covariance."""
    vectors: np.ndarray
    """(bands, bands) its eigenvectors."""

    @classmethod
    def of(cls, sample: NoiseSample, noise: Noise, run: ParallelMap) -> _Waves | None:
        """Return those of the half of all tiles that is quieter at low frequencies.

        These know nothing of the noise at others. None of too few bands or tiles.
        """
        radius = np.hypot(*np.mgrid[:TILE, :TILE]) / TILE
        bands = (radius > 0) & (radius <= LOW), (radius > LOW) & (radius <= HIGH), radius > HIGH

        def waves(window: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
            block, valid = window
            white = noise.whiten(block)
            tiles = [
                white[here]
                for top in range(0, block.shape[0] - TILE + 1, TILE)
                for left in range(0, block.shape[1] - TILE + 1, TILE)
                if valid[here := np.s_[top : top + TILE, left : left + TILE]].all()
            ]
            stack = np.array(tiles).reshape(-1, TILE, TILE, sample.n_bands)
            return np.asarray(dctn(stack, axes=(1, 2), norm="ortho"))

        every = np.concatenate(run(waves, zip(sample.blocks, sample.valid, strict=True)))
        power = np.square(every[:, bands[0]]).mean(axis=(1, 2))
        calm = every[np.argsort(power, kind="stable")[: len(every) // 2]]
        counts = [len(calm) * int(np.count_nonzero(there)) for there in bands]
        few = sample.n_bands < FEW_BANDS or len(calm) < FEWEST
        if few or sum(counts[1:]) < ENOUGH * sample.n_bands:
            return None
        parts = (calm[:, there].reshape(-1, sample.n_bands) for there in bands)
        powers = tuple(part.T @ part / count for part, count in zip(parts, counts, strict=True))
        h = (counts[1] * powers[1] + counts[2] * powers[2]) / sum(counts[1:])
        return cls(powers, sum(counts[1:]), *np.linalg.eigh(h))

    def along(self, u: np.ndarray) -> _Seen:
        """Return what comes through along a whitened spectrum (bands,).

        With little added to H, unless it is not noise so and it is with more.
        """
        weak, strong = (self.through(u, loaded) for loaded in LOADED)
        stronger = strong.size**2 > strong.loaded / UNSURE and strong.is_noise
        return strong if stronger and not weak.is_noise else weak

    def measured(self, u: np.ndarray, seen: _Seen) -> float:
        """Return c² of what was seen along a spectrum, with as much added to H as it needs.

        As long as what comes through is noise: the more is added, the more texture does.
        """
        while seen.loaded < UNSURE * seen.size**2:
            more = self.through(u, MORE * seen.loaded)
            if not more.is_noise:
                break
            seen = more
        return seen.power

    def through(self, u: np.ndarray, loaded: float) -> _Seen:
        """Return what comes through along a whitened spectrum (bands,), with so much added to H.

        Weights that are fitted to n coefficients leave less of these than of others, and let more
        noise through than the best would.
        """
        inverse = 1 / (self.values + loaded)
        weights = self.vectors @ (inverse * (u @ self.vectors))
        weights /= max(float(u @ weights), 1e-300)
        fitted = 1 - float(np.sum(inverse * self.values)) / self.number
        seen = [float(weights @ power @ weights) for power in self.powers]
        own = float(weights @ weights)
        low, medium, high = seen[0] - own, *(part / fitted - own * fitted for part in seen[1:])
        own *= fitted
        over = max(high, 1e-6 * own)
        size = float(np.sqrt(max(high, 0.0)) * np.median(np.abs(u)))
        share = own / max(high + own, 1e-300)
        return _Seen(high, size, share, medium / over, low / over, loaded)
