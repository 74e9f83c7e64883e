"""Noise whose variance grows with the signal: photon noise.

The variance of band v at pixel u is α_v x_uv + γ_v. The spatial estimator takes it element by
element (`noise.stabilise`). For low-rank windows, and where noise is estimated, it is taken as a
product of a pixel factor and a band factor, which it nearly is: bright pixels are bright in most
bands. The model is σ_uv = g_u s_v with

    s_v² = α_v m_v + γ_v         at a reference spectrum m (the scene's mean),
    g_u² = mean over v of (α_v x_uv + γ_v) / s_v²,

because dividing a pixel's spectrum by g_u leaves a low-rank window of the same rank: windows are
solved at constant noise, everything known about their error holds, and estimate and standard
deviation are multiplied back by g_u. The error of an estimate is a mean over many elements' noise,
so what a single element's σ departs from g_u s_v hardly shows in it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sigmacube.core.card import Card, spread_of
from sigmacube.core.whitening import SEGMENT

__all__ = ["SignalNoise", "like_mean", "pixel_scales", "value_of"]

# No pixel's noise variance is taken below or above the reference by more than this factor: the
# line is fitted to the scene's own range and must not be followed far outside it.
LARGEST_FACTOR = 50.0
# So many standard deviations of their own noise apart pixels are alike.
LIKE = 5.0


@dataclass(frozen=True, eq=False)
class SignalNoise(Card):
    """Noise with variance ``gain · signal + offset`` per band, to be passed as ``noise``.

    Parameters
    ----------
    gain
        α, (bands,) or one: growth of the variance with the signal, not negative.
    offset
        γ, (bands,) or one: variance at zero signal, not negative.
    reference
        (bands,) spectrum at which `value` states the noise; the mean spectrum of the cube by
        default.
    correlation
        (bands, bands) correlation of the noise between bands; None for independent bands.

    Examples
    --------
    >>> import numpy as np, sigmacube as sc
    >>> truth = sc.synthetic.scene((24, 30, 40), rng=1).values
    >>> std = np.sqrt(4e-3 * truth + 1e-4)
    >>> noisy = truth + std * np.random.default_rng(2).normal(size=truth.shape)
    >>> result = sc.denoise(noisy, SignalNoise(4e-3, 1e-4), window=12, prior=None)
    >>> z = (result.estimate - truth) / result.std
    >>> bool(0.9 < np.std(z) < 1.1)
    True
    """

    gain: float | np.ndarray
    offset: float | np.ndarray
    reference: np.ndarray | None = None
    correlation: np.ndarray | None = None

    def __post_init__(self) -> None:
        for name in ("gain", "offset"):
            value = np.asarray(getattr(self, name), dtype=np.float64)
            if value.ndim > 1 or not np.all(np.isfinite(value)) or np.any(value < 0):
                raise ValueError(
                    f"Invalid {name} of shape {value.shape}. It must be one finite number or one "
                    "per band, none negative."
                )

    @staticmethod
    def from_file(path: str | Path, wavelengths: np.ndarray | None = None) -> SignalNoise:
        r"""Read the noise of an instrument, as ISOFIT and EMIT write it.

        Parameters
        ----------
        path
            Text with the columns wavelength, a, b, c: σ = a √(b + L) + c in radiance L; or
            wavelength, p0, p1, p2 under a heading that says so: L / σ = p₀ + p₁ L + p₂ L².
        wavelengths
            (bands,) nm of the cube that it is for; those of the file by default.

        Returns
        -------
        SignalNoise
            With c = 0, exactly that variance. Otherwise a line that touches it at the scene's mean
            spectrum; `InstrumentNoise.line_error` states the error elsewhere, and so does
            ``result.settings["noise_model"]``.

        Examples
        --------
        >>> import tempfile
        >>> file = Path(tempfile.mkdtemp(), "noise.txt")
        >>> _ = file.write_text("# wvl a b c\n450 0.006 3.0 0\n650 0.005 2.0 0\n")
        >>> SignalNoise.from_file(file, np.array([550.0])).at(np.array([5.0])).value.round(5)
        array([0.01506])
        """
        from sigmacube.noise.instrument import InstrumentNoise, file_wavelengths

        if wavelengths is None:
            wavelengths = file_wavelengths(path)
        return InstrumentNoise.read(path, wavelengths)

    def _facts(self) -> dict[str, str]:
        facts = {"variance": "gain · signal + offset"}
        facts |= {"gain": spread_of(self.gain), "offset": spread_of(self.offset)}
        facts["bands"] = "independent" if self.correlation is None else "correlated"
        if self.reference is not None:
            facts["σ at the reference"] = spread_of(np.sqrt(self._reference_variance()))
        return facts

    def at(self, reference: np.ndarray) -> SignalNoise:
        """Return the noise with a reference spectrum, its own if it has one."""
        if self.reference is not None:
            return self
        reference = np.asarray(reference, dtype=np.float64)
        gain, offset = (a + np.zeros_like(reference) for a in (self.gain, self.offset))
        return SignalNoise(gain, offset, reference, self.correlation)

    @property
    def value(self) -> np.ndarray:
        """Noise at the reference: (bands,) standard deviations or (bands, bands) covariance."""
        std = np.sqrt(self._reference_variance())
        return std if self.correlation is None else self.correlation * np.outer(std, std)

    def pixel_scale(self, spectra: np.ndarray) -> np.ndarray:
        """Return g for spectra along the last axis; the mean over bands quiets their own noise."""
        variance = self._reference_variance()
        share = np.asarray(self.gain) / variance / len(variance)
        base = float(np.mean(np.asarray(self.offset) / variance))
        power = np.asarray(spectra, dtype=np.float64) @ share + base
        return np.sqrt(np.clip(power, 1 / LARGEST_FACTOR, LARGEST_FACTOR))

    def departure(self, spectra: np.ndarray) -> float:
        """Return by how much noise departs from one factor per pixel, as a share of its variance.

        Root mean square over all elements of spectra along the last axis.

        Examples
        --------
        Pixels that are as much brighter in all bands depart by nothing:

        >>> noise = SignalNoise(1.0, 0.0, np.array([1.0, 4.0]))
        >>> noise.departure(np.array([[2.0, 8.0], [0.5, 2.0]]))
        0.0
        >>> noise.departure(np.array([[2.0, 4.0]])).__round__(2)
        0.33
        """
        power = np.asarray(self.gain) * np.maximum(spectra, 0) + np.asarray(self.offset)
        share = power / self._reference_variance()
        share = share / np.maximum(share.mean(axis=-1, keepdims=True), 1 / LARGEST_FACTOR)
        return float(np.sqrt(np.mean(np.square(share - 1))))

    def jitter(self) -> float:
        """Return the standard deviation that its noise gives g² of a pixel of the reference."""
        variance = self._reference_variance()
        share = np.asarray(self.gain) / variance / len(variance) * np.sqrt(variance)
        correlation = np.eye(len(share)) if self.correlation is None else self.correlation
        return float(np.sqrt(share @ correlation @ share))

    def select(self, bands: np.ndarray) -> SignalNoise:
        """Return the noise of some of the bands; needs a reference."""
        return SignalNoise(
            np.asarray(self.gain)[bands],
            np.asarray(self.offset)[bands],
            np.asarray(self.reference)[bands],
            None if self.correlation is None else self.correlation[np.ix_(bands, bands)],
        )

    def _reference_variance(self) -> np.ndarray:
        if self.reference is None:
            raise ValueError("Invalid noise: it has no reference spectrum yet. Use .at(spectrum).")
        variance = np.asarray(self.gain) * np.maximum(self.reference, 0) + self.offset
        if np.any(variance <= 0):
            raise ValueError(
                "Invalid noise: gain · reference + offset is zero in some band. It must be "
                "above zero."
            )
        return variance


def value_of(model: np.ndarray | SignalNoise) -> np.ndarray:
    """Return a model's standard deviations or covariance at the mean spectrum."""
    return model.value if isinstance(model, SignalNoise) else model


def pixel_scales(spectra: np.ndarray, missing: np.ndarray | None, noise: SignalNoise) -> np.ndarray:
    """Return (row, col) factors on the noise, segment by segment so that all parts round alike."""
    if missing is not None:  # zero would make a pixel darker than it is
        spectra = np.where(missing, np.asarray(noise.reference), spectra)
    starts = range(0, spectra.shape[1], SEGMENT)
    return np.concatenate(
        [noise.pixel_scale(spectra[:, start : start + SEGMENT]) for start in starts], axis=1
    )


def like_mean(image: np.ndarray, valid: np.ndarray, jitter: float, around: int) -> np.ndarray:
    """Return the mean of the pixels around every pixel that differ by no more than noise may.

    ``around`` are pixels to each side; ``jitter`` is the standard deviation of a pixel of power
    one, which grows with the root of the power. Borders stay where they are. Sums have the same
    order wherever a block begins.
    """
    side = 2 * around + 1
    padded = np.pad(np.where(valid, image, np.inf), around, constant_values=np.inf)
    reach = LIKE * jitter * np.sqrt(image)
    total, count = image.copy(), np.ones_like(image)
    for i, j in np.ndindex(side, side):
        if (i, j) != (around, around):
            other = padded[i : i + image.shape[0], j : j + image.shape[1]]
            like = np.abs(other - image) <= reach
            total += np.where(like, other, 0.0)
            count += like
    return total / count
