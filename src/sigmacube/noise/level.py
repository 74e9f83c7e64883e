"""Signal that was taken for noise, because it is too faint to be seen.

Strengths of a real scene's directions fall on below the noise. What windows leave holds them, and so
does the noise that is estimated from it: 4–7 % too much on textured scenes. Outside the directions
that are seen neighbouring pixels share signal and not noise, which tells how much of what lies there
is signal.
"""

from __future__ import annotations

import numpy as np

from sigmacube.core.spatial.noise_in_space import FAINT
from sigmacube.core.spatial.subspace import faint_signal, principal
from sigmacube.core.whitening import Noise
from sigmacube.noise.sample import NoiseSample
from sigmacube.noise.signal_noise import SignalNoise

__all__ = ["noise_share"]

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
    >>> fields = np.repeat(np.repeat(rng.standard_normal((30, 30, 50)), 2, axis=0), 2, axis=1)
    >>> every = np.ones((60, 60), dtype=bool)
    >>> for strength in 0.0, 0.25:
    ...     cube = noise + strength * fields
    ...     sample = NoiseSample.create(cube, np.arange(50), every)
    ...     print(round(noise_share(sample, cube.std(axis=(0, 1))), 2))
    1.0
    0.94
    """
    known = Noise.create(model.value if isinstance(model, SignalNoise) else model, sample.n_bands)
    patches = []
    for block, valid in zip(sample.blocks, sample.valid, strict=True):
        if valid.all():
            scale = model.pixel_scale(block)[..., None] if isinstance(model, SignalNoise) else 1.0
            patches.append(known.whiten(block / scale))
    if not patches:
        return 1.0
    spectra = np.concatenate([patch.reshape(-1, sample.n_bands) for patch in patches])
    basis = principal(spectra.T @ spectra, len(spectra))
    bands, k = basis.shape
    if k == bands:
        return 1.0
    found, error = faint_signal(patches, basis)
    left = np.square(spectra).sum() - np.square(spectra @ basis).sum()
    total = float(left) / len(spectra)
    if found <= SURELY * error:
        return 1.0
    return 1 - (found - (SURELY * error) ** 2 / found) / total
