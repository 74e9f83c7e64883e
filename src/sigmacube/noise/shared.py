"""Noise that all bands of a pixel share: common mode, gains, wherever it is told from texture.

Such noise is strong and of low rank, so windows take it for signal. It shows in two ways.

*Outside the signal.* Common mode adds a known spectrum u to all bands of a pixel (their noise, or
one number); a gain adds the pixel's own, on average the mean spectrum. The part of u that lies
outside the directions of the signal, of which neighbouring pixels know, stands out of the noise
there: a variance 1 + c²|u_O|² along u_O tells c, and so what is inside.

*In space* it is white, which no surface is: the power of a surface falls with frequency. In small
tiles of the scene, along the leading directions of the spectra, the covariance of cosine
coefficients at the highest frequencies is compared with that at medium ones, on the tiles that are
quietest at low ones (which knows nothing of the noise at others). What power falls by is carried
on, with the square of the frequency, to what a surface would have at the highest ones; what is left
beyond one is noise.

*Doubt.* Noise that all bands share has a known spectrum u. The largest c² for which H - c²uuᵀ is a
covariance, H that of the highest frequencies, is 1/(uᵀH⁻¹u): no more of u can be in there, whatever
the texture is. Where this is large, and does not fall with frequency, texture and noise look alike.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np
from scipy.fft import dctn
from scipy.special import ndtri

from sigmacube.core.parallel import ParallelMap, at_once, in_turn
from sigmacube.core.whitening import Noise
from sigmacube.noise.differences import calm_differences
from sigmacube.noise.sample import NoiseSample
from sigmacube.noise.scales import smooth_directions

__all__ = ["SharedNoise", "gain_left", "shared_noise", "small_gains"]

# Outside the signal: by how many standard errors, and how much, the variance along u_O must exceed
# that of the noise; the share of u that must be there. Where other directions stand out a little
# (signal that neighbours do not know of), it must be so many times what the first of them has.
SIGNIFICANT, NOTABLE_OUTSIDE, LEAST_OUTSIDE, LEADS = 5.0, 0.25, 0.005, 4.0
# Places that share pixels tell as much as so many times fewer; eigenvalues so far beyond sampling
# stand out; so many are left out of the mean.
SHARED, BEYOND_SAMPLING, LEADING = 2.25, 1.1, 4
# Places are shrunk to so many times the usual size.
USUAL = 1.5
# Bands that it needs.
FEW_BANDS = 16

TILE, STEP = 8, 6
# Directions that are looked at, and tiles that it needs.
DIRECTIONS, FEWEST = 12, 24
# Bounds of low, medium and high frequencies, and the share of tiles that count.
LOW, HIGH, QUIET = 0.4, 0.7, 0.25
# What a surface, whose power falls as 1/f², has at high frequencies over what it loses from medium
# ones.
CARRIED = 0.68
# Noise must be so many times that of a band, and so large a share of what is there.
NOTABLE, FLAT = 3.0, 0.6
# How unlike tiles may be: ratio of the 60th to the 10th percentile of their power; 1.45 for noise.
# What differs more than that is texture.
ALIKE = 1.9
# Noise along a known spectrum, over that of a band, that is doubtful where so large a share of it
# stays when the fall of power is carried on; and so much of gains, whose size follows the pixel.
# Chosen while looking at benchmarks/honesty.py: textures there leave up to .54, or a share below.
DOUBTFUL, DOUBTFUL_FLAT, DOUBTFUL_GAINS = 0.75, 0.65, 0.5
# Share of what is there along the pixels' own spectra that must be left at distance zero, beyond so
# many standard errors; chosen on draws of honesty.py that are not in its list, where textures leave
# up to .13 and gains .5 or more. Quantile of sizes that is compared.
OWN_FLAT, OWN_SIGNIFICANT, OWN_QUANTILE = 0.4, 3.0, 0.5


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
    outside, gains = _outside(sample, noise, run)
    if outside is not None:
        total = noise.factor @ noise.factor.T + outside
        noise = Noise.create(total, sample.n_bands)
    doubtful, inside = at_once(
        run, partial(_doubtful, sample, noise, run), partial(_in_space, sample, noise, run)
    )
    found = [part for part in (outside, inside) if part is not None]
    return SharedNoise(np.sum(found, axis=0) if found else None, gains or doubtful)


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
    if len(far) < FEWEST * FEW_BANDS:
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


def small_gains(sample: NoiseSample, noise: Noise, run: ParallelMap = in_turn) -> np.ndarray | None:
    """Return the covariance (bands, bands) of gains that are too small for `shared_noise`.

    As noise along the mean product of spectra, as large as `gain_left` has it; None without any.
    """
    left = gain_left(sample, noise, run)
    if not left > 0:
        return None
    products = sample.products(run)
    mean = products.total / products.number
    power = left * sample.n_bands / float(np.trace(noise.whiten(noise.whiten(mean).T)))
    found = power * (mean - noise.factor @ noise.factor.T)
    values, vectors = np.linalg.eigh(found)
    return np.asarray((vectors * np.maximum(values, 0)) @ vectors.T)


def _along_own(apart: int, window: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """Return mixed second differences (n,) of pixels, along the mean of the four spectra."""
    white, valid = window
    if min(valid.shape) <= apart:
        return np.zeros(0)
    first, last = slice(None, -apart), slice(apart, None)
    corners = [(y, x) for y in (first, last) for x in (first, last)]
    a, b, c, d = (white[corner] for corner in corners)
    own = a + b
    change = a - b
    own += c
    change -= c
    own += d
    change += d
    length = np.maximum(np.sqrt(np.einsum("yxv,yxv->yx", own, own)), 1e-300)
    there = np.logical_and.reduce([valid[corner] for corner in corners])
    return np.asarray((np.einsum("yxv,yxv->yx", change, own) / (2 * length))[there])


def _outside(sample: NoiseSample, noise: Noise, run: ParallelMap) -> tuple[np.ndarray | None, bool]:
    """Return the covariance of shared noise that shows outside the signal, and whether by gains.

    None without any. Gains multiply every pixel's own spectrum, so one covariance is not theirs
    where they are large.
    """
    white = replace(sample, blocks=run(noise.whiten, sample.blocks))
    signal = smooth_directions(sample.products(run).whitened(noise))
    if sample.n_bands < FEW_BANDS or signal.shape[1] > sample.n_bands // 2:
        return None, False
    calm = calm_differences(white, signal, run)
    calm = calm - (calm @ signal) @ signal.T
    if len(calm) < 2 * sample.n_bands:
        return None, False
    products = sample.products(run)
    shapes = (noise.std, np.ones(sample.n_bands), products.mean)
    tests = run(lambda shape: _Test.of(noise.whiten(shape), signal, calm), shapes)
    best = int(np.argmax([test.excess for test in tests]))
    if not tests[best].stands_out:
        return None, False
    power = tests[best].power
    if best < 2:
        return power * np.outer(shapes[best], shapes[best]), False
    # A gain multiplies every pixel's own spectrum.
    found = power * (products.total / products.number - noise.factor @ noise.factor.T)
    size = np.sqrt(np.maximum(np.diag(found), 0)) / noise.std
    return found, bool(np.median(size) > DOUBTFUL_GAINS)


class _Test(NamedTuple):
    """What noise outside the signal says of a spectrum u that pixels share."""

    excess: float
    """Variance along u beyond that of the noise, over that of the noise."""
    power: float
    """c²: variance of the factor on u."""
    stands_out: bool

    @classmethod
    def of(cls, shape: np.ndarray, signal: np.ndarray, calm: np.ndarray) -> _Test:
        """Test a whitened spectrum (bands,) on differences (places, bands) outside the signal."""
        part = shape - signal @ (signal.T @ shape)
        length = float(part @ part)
        if length < LEAST_OUTSIDE * float(shape @ shape):
            return cls(0.0, 0.0, False)
        along = part / np.sqrt(length)
        score = calm @ along
        rest = calm - np.outer(score, along)
        # Single pixels of another material must not count for more than noise would.
        size = np.sqrt(np.einsum("nv,nv->n", rest, rest))
        usual = max(USUAL * float(np.median(size)), 1e-300)
        weight = usual / np.maximum(size, usual)
        rest *= weight[:, None]
        values = np.linalg.eigvalsh(rest.T @ rest / len(rest))
        usual = max(float(np.mean(values[signal.shape[1] + 1 : -LEADING])), 1e-300)
        excess = float(np.sum(np.square(weight * score)) / np.sum(weight**2)) / usual - 1
        places = len(calm) / SHARED
        # Sampling spreads eigenvalues to (1 + √(bands/places))² at most.
        edge = usual * BEYOND_SAMPLING * (1 + np.sqrt(len(shape) / places)) ** 2
        sure = excess > max(SIGNIFICANT * np.sqrt(2 / places), NOTABLE_OUTSIDE)
        leads = values[-1] < 2 * edge and excess * usual > LEADS * values[-1]
        alone = bool(values[-1] < edge or leads)
        return cls(excess, max(excess, 0.0) * usual / length, sure and alone)


def _in_space(sample: NoiseSample, noise: Noise, run: ParallelMap) -> np.ndarray | None:
    """Return the covariance of shared noise that is white in space; None without any."""
    count = min(DIRECTIONS, sample.n_bands // 2)
    own = sample.products(run).whitened(noise).own
    directions = np.linalg.eigh(own)[1][:, ::-1][:, :count]
    waves, radius = _waves(sample, noise, directions, run)
    if len(waves) < FEWEST or count < 1:
        return None
    low, high = (radius > 0) & (radius <= LOW), radius > HIGH
    power = np.square(waves[..., low]).mean(axis=2)
    power = (power / np.maximum(np.median(power, axis=0), 1e-300)).sum(axis=1)
    calm = waves[np.argsort(power, kind="stable")]
    quiet, calm = calm[: int(QUIET * len(calm))], calm[: len(calm) // 2]
    at_high = _covariance(quiet[..., high])
    at_medium = _covariance(quiet[..., (radius > LOW) & ~high])
    size, vectors = np.linalg.eigh(at_high - CARRIED * (at_medium - at_high))
    # What sampling of so few coefficients makes of ones, carried on, and as much again.
    spread = (1 + np.sqrt(count / (len(quiet) * np.count_nonzero(high)))) ** 2 - 1
    least = max(NOTABLE, 1 + 2 * (1 + CARRIED) * spread)
    found = []
    for value, vector in zip(size, vectors.T, strict=True):
        if value < least:
            continue
        if value < FLAT * (vector @ at_high @ vector):
            continue
        if _unlike(calm[..., high], vector) < ALIKE:
            found.append(np.sqrt(value - 1) * noise.unwhiten(directions @ vector))
    return np.transpose(found) @ np.array(found) if found else None


def _doubtful(sample: NoiseSample, noise: Noise, run: ParallelMap) -> bool:
    """Tell whether common mode or gains may be in what looks like texture."""
    waves, radius = _waves(sample, noise, None, run, TILE)
    low, high = (radius > 0) & (radius <= LOW), radius > HIGH
    power = np.square(waves[..., low]).mean(axis=(1, 2))
    calm = waves[np.argsort(power, kind="stable")[: len(waves) // 2]]
    count = len(calm) * np.count_nonzero(high)
    if count < 2 * sample.n_bands:
        return False
    inverse = np.linalg.pinv(_covariance(calm[..., high]), hermitian=True)
    for shape in (noise.std, np.ones(sample.n_bands), sample.products(run).mean):
        u = noise.whiten(shape)
        along = np.tensordot(calm, inverse @ u / max(float(u @ inverse @ u), 1e-300), axes=(1, 0))
        at_high, at_medium = (
            float(np.mean(np.square(along[:, part]))) for part in (high, (radius > LOW) & ~high)
        )
        at_high *= count / (count - sample.n_bands)  # the weights were fitted to as many numbers
        surely = at_high - CARRIED * (at_medium - at_high)
        size = np.sqrt(max(at_high - 1 / float(u @ u), 0)) * np.median(np.abs(shape) / noise.std)
        if size > DOUBTFUL and surely > DOUBTFUL_FLAT * at_high:
            return True
    return False


def _waves(
    sample: NoiseSample, noise: Noise, directions: np.ndarray | None, run: ParallelMap,
    step: int = STEP,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """Return cosine coefficients (tiles, directions, TILE, TILE), and their frequencies.

    Along all bands where no directions are given.
    """

    def waves(window: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
        block, valid = window
        scores = noise.whiten(block)
        scores = scores if directions is None else scores @ directions
        tiles = [
            scores[here].transpose(2, 0, 1)
            for top in range(0, block.shape[0] - TILE + 1, step)
            for left in range(0, block.shape[1] - TILE + 1, step)
            if valid[here := np.s_[top : top + TILE, left : left + TILE]].all()
        ]
        if not tiles:
            return np.zeros((0, scores.shape[2], TILE, TILE))
        return np.asarray(dctn(np.array(tiles), axes=(2, 3), norm="ortho"))

    radius = np.hypot(*np.mgrid[:TILE, :TILE]) / TILE
    parts = run(waves, zip(sample.blocks, sample.valid, strict=True))
    return np.concatenate(parts), radius


def _covariance(waves: np.ndarray) -> np.ndarray:
    """Return the covariance (directions, directions) of coefficients (tiles, directions, n)."""
    flat = np.moveaxis(waves, 1, 2).reshape(-1, waves.shape[1])
    return flat.T @ flat / len(flat)


def _unlike(waves: np.ndarray, vector: np.ndarray) -> float:
    """Return how much the power of most tiles differs along a direction; that of noise hardly."""
    power = np.square(np.tensordot(waves, vector, axes=(1, 0))).mean(axis=1)
    low, high = np.quantile(power, (0.1, 0.6))
    return float(high / max(low, 1e-300))
