"""What windows tell of the noise together: its level, and its correlation between bands.

A window shows less of the signal than the scene does, and what windows leave holds what they did
not see: on textured scenes the noise that is estimated from it is 2–7 % too high. All windows
together leave less outside their own directions; how much of that is signal still, its spectrum in
space tells.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from sigmacube.core.parallel import ParallelMap, in_turn
from sigmacube.core.spatial.faint import HARDLY, faint_signal, unseen
from sigmacube.core.spatial.noise_in_space import FAINT
from sigmacube.core.spatial.subspace import principal
from sigmacube.core.whitening import Noise
from sigmacube.noise.band_correlation import BandCorrelation, correlation_matrix, fit_correlation
from sigmacube.noise.growth import stabilised
from sigmacube.noise.sample import NoiseSample
from sigmacube.noise.signal_noise import SignalNoise, value_of

__all__ = ["noise_share", "scene_correlation"]

# Bounds of the share; how much further the noise edge may lie than neighbours' correlation says.
LOWEST, HIGHEST, SAFE = 0.7, 1.1, 1.4
# Pixels per band that are needed, and the share of directions above the edge at most.
FEWEST, MOST = 4, 0.75
# Relative variance over directions of what is left: that which a wrong correlation leaves, and less
# than which tells nothing; directions that a better one may have more.
UNEVEN, EVEN, FEW = 0.02, 0.01, 2


def noise_share(
    sample: NoiseSample, model: np.ndarray | SignalNoise, run: ParallelMap = in_turn
) -> float:
    """Return the share of the noise's variance, as it was estimated, that is noise.

    Parameters
    ----------
    sample
        Windows of the scene; those without gaps count.
    model
        Noise of its bands as known so far.
    run
        Parallel map over windows.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> noise = rng.standard_normal((60, 60, 50))
    >>> fields = np.repeat(np.repeat(rng.standard_normal((15, 15, 50)), 4, axis=0), 4, axis=1)
    >>> every = np.ones((60, 60), dtype=bool)
    >>> fields[..., 0] *= 10
    >>> for strength in 0.001, 0.25:
    ...     cube = noise + strength * fields
    ...     std = np.sqrt(1 + strength**2 * np.r_[0, np.ones(49)])
    ...     print(round(noise_share(NoiseSample.create(cube, np.arange(50), every), std), 2))
    1.0
    0.94
    """
    patches = _whitened(sample, model)
    outside = _Outside.of(patches, run)
    if outside is None or outside.uneven > UNEVEN:
        return 1.0
    bands, k = outside.basis.shape
    expected = bands - k - _taken(outside.along, (bands - k) / outside.pixels)
    found = faint_signal(patches, outside.basis, run)
    if found.alike > FAINT:
        return _coloured_share(patches, found.alike, run)
    # Both at the same frequencies: along the axes, where there is no room for a spectrum, lies
    # more signal than elsewhere.
    faint = found.signal - found.error**2 / max(found.signal, found.error)
    return float(np.clip((found.power - max(faint, 0.0)) / expected, LOWEST, HIGHEST))


def _coloured_share(patches: list[np.ndarray], alike: float, run: ParallelMap) -> float:
    """Return the share where the noise of neighbouring pixels is correlated, as if of these alone.

    Its spectrum is no longer told from that of signal. Where the strengths of directions end above
    the noise there is none; elsewhere the level is not raised.
    """
    near, colour = (1 + 2 * alike) ** 2, SAFE * (1 + 2 * alike**2) ** 2
    outside = _Outside.of(patches, run, colour)
    if outside is None:
        return 1.0
    bands, k = outside.basis.shape
    beta = colour * bands / outside.pixels
    seen = np.sort(outside.along[outside.along - 1 - beta > 2 * math.sqrt(beta)])[::-1]
    more = unseen(_strengths(seen, beta), bands, math.sqrt(beta)).chance > HARDLY
    expected = bands - k - near * _taken(outside.along, (bands - k) / outside.pixels)
    return float(np.clip(outside.left / expected, LOWEST, 1.0 if more else HIGHEST))


class _Outside(NamedTuple):
    """What a scene leaves outside its own directions, in units of the noise."""

    pixels: int
    basis: np.ndarray
    """(bands, k) directions above the noise edge."""
    along: np.ndarray
    """(k,) mean squares along them."""
    left: float
    """Mean square of a pixel outside of them."""
    uneven: float
    """Relative variance of its power over directions, beyond that of sampling: what a wrong
    correlation between bands leaves."""

    @classmethod
    def of(
        cls, patches: list[np.ndarray], run: ParallelMap = in_turn, colour: float = 1.0
    ) -> _Outside | None:
        """Return it of windows that do not overlap; None where they have too few pixels.

        ``colour`` as for `principal`.
        """
        pixels = sum(patch.shape[0] * patch.shape[1] for patch in patches)
        if not patches or pixels < FEWEST * patches[0].shape[2]:
            return None
        total = sum(run(lambda flat: flat.T @ flat, [p.reshape(-1, p.shape[2]) for p in patches]))
        basis = principal(total, pixels, colour)
        bands, k = basis.shape
        if k > MOST * bands:
            return None
        values = np.linalg.eigvalsh(total) / pixels
        left, along = values[: bands - k], values[bands - k :]
        uneven = float(np.var(left) / np.mean(left) ** 2) - (bands - k) / pixels
        return cls(pixels, basis, along, float(left.sum()), uneven)


def scene_correlation(
    sample: NoiseSample, model: np.ndarray | SignalNoise, run: ParallelMap = in_turn
) -> BandCorrelation | None:
    """Return the correlation of noise between bands, by what the scene leaves outside of signal.

    All pixels of the windows tell of it, where differences of neighbours take the calmest alone.
    None where what is left is not even over directions with it, or no more so.

    Parameters
    ----------
    sample, model, run
        As for `noise_share`; the model is correlated between bands.
    """
    known = Noise.create(value_of(model), sample.n_bands)
    outside = _Outside.of(patches := _whitened(sample, model), run)
    if outside is None:
        return None
    white = np.concatenate([patch.reshape(-1, sample.n_bands) for patch in patches])
    mixing = known.factor / known.std[:, None]
    directions = np.linalg.qr(mixing @ outside.basis)[0]
    seen = mixing @ (white.T @ white / len(white)) @ mixing.T
    found = fit_correlation(seen, directions, sample.positions)
    if not found.clear:
        return None
    correlation = correlation_matrix(found.by_lag, sample.positions)
    better = Noise.create(correlation * np.outer(known.std, known.std), sample.n_bands)
    again = _Outside.of([better.whiten(known.unwhiten(patch)) for patch in patches], run)
    if again is None or again.basis.shape[1] > outside.basis.shape[1] + FEW:
        return None  # what a wrong correlation leaves stands out, or is uneven
    return found if again.uneven < min(max(outside.uneven, EVEN), UNEVEN) else None


def _whitened(sample: NoiseSample, model: np.ndarray | SignalNoise) -> list[np.ndarray]:
    """Return the windows without gaps in units of the noise."""
    known, patches = Noise.create(value_of(model), sample.n_bands), []
    if isinstance(model, SignalNoise):
        return [known.whiten(patch) for patch in stabilised(sample, model)[0]]
    every = sample.own or [(slice(None), slice(None))] * len(sample.blocks)
    for block, valid, part in zip(sample.blocks, sample.valid, every, strict=True):
        if valid.all():
            patches.append(known.whiten(block[part]))
    return patches


def _taken(along: np.ndarray, beta: float) -> float:
    """Return how much noise, beyond that of a direction each, principal directions take along.

    A direction of strength x is observed at x² + 1 + β + β/x², β bands per pixel.
    """
    strength = np.maximum(_strengths(along, beta), math.sqrt(beta))
    return float(np.sum(beta + beta / strength))


def _strengths(along: np.ndarray, beta: float) -> np.ndarray:
    """Return the signal along directions by what is observed of it."""
    excess = along - 1 - beta
    return np.asarray((excess + np.sqrt(np.maximum(excess**2 - 4 * beta, 0))) / 2)
