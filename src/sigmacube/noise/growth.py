"""Growth of the noise with the signal, element by element, by what lies outside of the signal.

Windows are solved with one factor per pixel for all bands, which is not exact. Along the scale on
which noise is alike everywhere, what is left outside the scene's own directions has in every
element the variance that the model says; where it has another, the lines of bands follow it.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from sigmacube.core.spatial.subspace import principal, strong
from sigmacube.core.whitening import Noise
from sigmacube.noise.sample import NoiseSample
from sigmacube.noise.signal_noise import LARGEST_FACTOR, SignalNoise
from sigmacube.noise.stabilise import MOST_DIRECTIONS, Stabiliser

__all__ = ["refined", "stabilised"]

ROUNDS = 3
# By how much a line may change in a round, and the share outside of signal that tells enough.
MOST, LEAST_OUTSIDE = 3.0, 0.2


def stabilised(sample: NoiseSample, model: SignalNoise) -> tuple[list[np.ndarray], list]:
    """Return the windows without gaps along the scale on which noise is alike, and their signal.

    Pixels that no earlier window has; the signal is what strong directions tell of it.
    """
    own = sample.own or [(slice(None), slice(None))] * len(sample.blocks)
    whole = zip(sample.blocks, sample.valid, own, strict=True)
    patches = [block[part] for block, valid, part in whole if valid.all()]
    patches = [patch for patch in patches if patch.size]
    std = Noise.create(model.value, sample.n_bands).std
    spectra = [patch.reshape(-1, sample.n_bands) / std for patch in patches]
    total = sum((part.T @ part for part in spectra), np.zeros((sample.n_bands,) * 2))
    scale = Stabiliser(
        model, strong(total, sum(len(part) for part in spectra))[:, :MOST_DIRECTIONS]
    )
    told = [scale.told(patch, 0) for patch in patches]
    return [scale.along(*pair) for pair in zip(patches, told, strict=True)], told


def refined(sample: NoiseSample, model: SignalNoise) -> SignalNoise:
    """Return the noise with the line of every band fitted to what lies outside of the signal.

    Parameters
    ----------
    sample
        Windows of the scene; those without gaps count.
    model
        Noise of its bands as known so far, with a reference.
    """
    for number in range(ROUNDS):
        # Noise of a band that is far too low stands out like a direction of the signal.
        found = _round(sample, model, first=number == 0)
        if found is None:
            return model
        model = found
    return model


def _round(sample: NoiseSample, model: SignalNoise, first: bool) -> SignalNoise | None:
    known = Noise.create(model.value, sample.n_bands)
    patches, signals = stabilised(sample, model)
    pixels = sum(patch.shape[0] * patch.shape[1] for patch in patches)
    if pixels < 4 * sample.n_bands:
        return None
    white = [known.whiten(patch) for patch in patches]
    flat = np.concatenate([part.reshape(-1, sample.n_bands) for part in white])
    total = flat.T @ flat
    basis = strong(total, pixels) if first else principal(total, pixels)
    mixing = np.diag(known.std) if known.is_diagonal else known.factor
    mixing = mixing / known.std[:, None]
    outside = mixing @ (np.eye(len(basis)) - basis @ basis.T) @ mixing.T
    share = np.diag(outside)
    tells = share > LEAST_OUTSIDE
    sums = np.zeros((5, sample.n_bands))
    for part, signal in zip(white, signals, strict=True):
        left = (part - (part @ basis) @ basis.T) @ mixing.T
        sums += _sums(model, signal, np.square(left) / np.where(tells, share, 1))
    return _line(model, sums, tells)


def _sums(model: SignalNoise, signal: np.ndarray, ratio: np.ndarray) -> np.ndarray:
    """Return Σw, Σwx, Σwx², Σwy, Σwxy per band, y the variance of elements, w = 1/σ⁴."""
    power = np.asarray(model.gain) * np.maximum(signal, 0) + np.asarray(model.offset)
    power = np.maximum(power, np.square(_std(model)) / LARGEST_FACTOR)
    w, y = 1 / np.square(power), ratio / power
    return np.array([
        part.sum(axis=(0, 1)) for part in (w, w * signal, w * signal**2, y, y * signal)
    ])  # fmt: skip


def _std(model: SignalNoise) -> np.ndarray:
    return np.asarray(Noise.create(model.value, len(np.asarray(model.reference))).std)


def _line(model: SignalNoise, sums: np.ndarray, tells: np.ndarray) -> SignalNoise:
    """Return the model with lines of weighted least squares, growth and offset not negative."""
    s0, s1, s2, t0, t1 = sums
    least = np.square(_std(model)) / LARGEST_FACTOR
    determinant = s0 * s2 - s1**2
    sure = tells & (determinant > 1e-9 * s0 * s2)
    gain = np.where(sure, (s0 * t1 - s1 * t0) / np.where(sure, determinant, 1), 0)
    offset = (t0 - gain * s1) / np.maximum(s0, 1e-300)
    through = np.maximum(t1 - least * s1, 0) / np.maximum(s2, 1e-300)
    gain = np.where(offset < least, through, np.maximum(gain, 0))
    offset = np.maximum((t0 - gain * s1) / np.maximum(s0, 1e-300), least)
    reference = np.maximum(np.asarray(model.reference), 0)
    change = (gain * reference + offset) / np.square(_std(model))
    held = np.clip(change, 1 / MOST, MOST) / change
    return replace(
        model,
        gain=np.where(sure, gain * held, model.gain),
        offset=np.where(sure, offset * held, model.offset),
    )
