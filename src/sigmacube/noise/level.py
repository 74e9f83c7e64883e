"""What the scene as a whole tells of the noise: its level, and its correlation between bands.

A window shows less of the signal than the scene does, and what windows leave holds what they did
not see: on textured scenes the noise that is estimated from it is 2–7 % too high. The scene as a
whole leaves less outside its own directions; how much of that is signal still, its spectrum in
space tells.
"""

from __future__ import annotations

import numpy as np

from sigmacube.core.spatial.faint import faint_signal
from sigmacube.core.spatial.noise_in_space import FAINT
from sigmacube.core.spatial.subspace import principal
from sigmacube.core.whitening import Noise
from sigmacube.noise.band_correlation import BandCorrelation, fit_correlation
from sigmacube.noise.sample import NoiseSample
from sigmacube.noise.signal_noise import SignalNoise

__all__ = ["noise_share", "scene_correlation"]

# Standard errors that signal must exceed.
SURELY = 2.0


def noise_share(sample: NoiseSample, model: np.ndarray | SignalNoise) -> float:
    """Return the share of the noise's variance, as it was estimated, that is noise.

    Parameters
    ----------
    sample
        Windows of the scene, without gaps.
    model
        Noise of its bands as known so far.

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
    0.96
    """
    patches = _whitened(sample, model)
    if not patches:
        return 1.0
    spectra = np.concatenate([patch.reshape(-1, sample.n_bands) for patch in patches])
    total, pixels = spectra.T @ spectra, len(spectra)
    basis = principal(total, pixels)
    bands, k = basis.shape
    if k == bands:
        return 1.0
    along = np.einsum("pk,pq,qk->k", basis, total, basis) / pixels
    left = float(np.trace(total)) / pixels - along.sum()
    expected = bands - k - _taken(along, (bands - k) / pixels)
    missing = 1 - (left - _faint(patches, basis)) / expected
    least = SURELY * np.sqrt(2 / (pixels * (bands - k)))
    return float(1 - missing + least**2 / missing) if missing > least else 1.0


def scene_correlation(sample: NoiseSample, model: np.ndarray | SignalNoise) -> BandCorrelation:
    """Return the correlation of noise between bands, by what the scene leaves outside of signal.

    All pixels tell of it, where differences of neighbours take the calmest alone.

    Parameters
    ----------
    sample, model
        As for `noise_share`; the model is correlated between bands.
    """
    known = Noise.create(_value(model), sample.n_bands)
    patches = _whitened(sample, model)
    if not patches:
        return BandCorrelation(np.ones(1), known.std, False, False)
    white = np.concatenate([patch.reshape(-1, sample.n_bands) for patch in patches])
    mixing = known.factor / known.std[:, None]
    directions = np.linalg.qr(mixing @ principal(white.T @ white, len(white)))[0]
    seen = mixing @ (white.T @ white / len(white)) @ mixing.T
    return fit_correlation(seen, directions, sample.positions)


def _value(model: np.ndarray | SignalNoise) -> np.ndarray:
    return model.value if isinstance(model, SignalNoise) else model


def _whitened(sample: NoiseSample, model: np.ndarray | SignalNoise) -> list[np.ndarray]:
    """Return the windows without gaps in units of the noise."""
    known, patches = Noise.create(_value(model), sample.n_bands), []
    for block, valid in zip(sample.blocks, sample.valid, strict=True):
        if valid.all():
            scale = model.pixel_scale(block)[..., None] if isinstance(model, SignalNoise) else 1.0
            patches.append(known.whiten(block / scale))
    return patches


def _faint(patches: list[np.ndarray], basis: np.ndarray) -> float:
    """Return the signal per pixel outside B, unless noise may be correlated in space."""
    found = faint_signal(patches, basis)
    least = SURELY * found.error
    if found.signal <= least or found.alike > FAINT:
        return 0.0
    return found.signal - least**2 / found.signal


def _taken(along: np.ndarray, beta: float) -> float:
    """Return how much noise, beyond that of a direction each, principal directions take along.

    A direction of strength x is observed at x² + 1 + β + β/x², β bands per pixel.
    """
    excess = along - 1 - beta
    strength = (excess + np.sqrt(np.maximum(excess**2 - 4 * beta, 0))) / 2
    return float(np.sum(beta + beta / np.maximum(strength, np.sqrt(beta))))
