"""Scenes that ask one thing of an estimator: smooth fields, fractal texture, rare materials."""

from __future__ import annotations

import math

import numpy as np

from sigmacube.synthetic.landscape import check_shape


def smooth_fields(
    shape: tuple[int, int, int] = (128, 128, 160),
    *,
    endmembers: int = 5,
    scale: float = 12.0,
    rng: int | np.random.Generator = 0,
) -> np.ndarray:
    """Make a noise-free cube whose mixtures vary smoothly over ``scale`` pixels.

    Parameters
    ----------
    shape
        (rows, cols, bands).
    endmembers
        Number of random smooth spectra.
    scale
        Standard deviation in pixels of the Gaussian that the mixtures were smoothed with.
    rng
        Seed or generator.

    Returns
    -------
    ndarray
        (row, col, band) float64 in [0.1, 0.9].

    Examples
    --------
    >>> smooth_fields((20, 24, 30)).shape
    (20, 24, 30)
    """
    from scipy.ndimage import gaussian_filter

    rows, cols, bands = check_shape(shape)
    rng = np.random.default_rng(rng)
    fields = [
        gaussian_filter(rng.standard_normal((rows, cols)), scale, mode="wrap")
        for _ in range(endmembers)
    ]
    return _mixtures(np.stack(fields, axis=-1), 1.5) @ _random_spectra(endmembers, bands, rng)


def fractal_texture(
    shape: tuple[int, int, int] = (96, 112, 120),
    *,
    endmembers: int = 6,
    slope: float = 2.0,
    rng: int | np.random.Generator = 0,
) -> np.ndarray:
    """Make a noise-free cube with texture at all scales: power falls as frequency^−slope.

    Parameters
    ----------
    shape
        (rows, cols, bands).
    endmembers
        Number of random smooth spectra.
    slope
        Exponent of the power spectrum of the mixtures; 2 is rough at every scale.
    rng
        Seed or generator.

    Returns
    -------
    ndarray
        (row, col, band) float64 in [0.1, 0.9].

    Examples
    --------
    >>> fractal_texture((20, 24, 30)).shape
    (20, 24, 30)
    """
    rows, cols, bands = check_shape(shape)
    rng = np.random.default_rng(rng)
    frequency = np.hypot(np.fft.fftfreq(rows)[:, None], np.fft.fftfreq(cols)[None])
    frequency[0, 0] = 1.0
    white = np.fft.fft2(rng.standard_normal((endmembers, rows, cols)))
    fields = np.fft.ifft2(white * frequency ** (-slope / 2)).real
    return _mixtures(np.moveaxis(fields, 0, -1), 0.7) @ _random_spectra(endmembers, bands, rng)


def rare_materials(
    shape: tuple[int, int, int] = (100, 110, 120),
    *,
    fields: int = 25,
    rare: int = 4,
    pixels: int = 12,
    rng: int | np.random.Generator = 0,
) -> np.ndarray:
    """Make a noise-free cube of sharp fields, and a few materials that fill some pixels each.

    Parameters
    ----------
    shape
        (rows, cols, bands).
    fields
        Number of fields (cells around random seeds), of six spectra.
    rare
        Number of materials that occur in one small patch only.
    pixels
        About how many pixels each of these fills.
    rng
        Seed or generator.

    Returns
    -------
    ndarray
        (row, col, band) float64 in [0.1, 0.9].

    Examples
    --------
    >>> rare_materials((20, 24, 30)).shape
    (20, 24, 30)
    """
    rows, cols, bands = check_shape(shape)
    rng = np.random.default_rng(rng)
    spectra = _random_spectra(6 + rare, bands, rng)
    y, x = np.mgrid[:rows, :cols]
    at = rng.uniform((0, 0), (rows, cols), (fields, 2))
    nearest = np.argmin([(y - r) ** 2 + (x - c) ** 2 for r, c in at], axis=0)
    labels = rng.integers(0, 6, fields)[nearest]
    radius = math.sqrt(pixels / math.pi)
    for i, (r, c) in enumerate(rng.uniform((2, 2), (rows - 2, cols - 2), (rare, 2))):
        labels[(y - r) ** 2 + (x - c) ** 2 <= radius**2] = 6 + i
    return spectra[labels]


def _mixtures(fields: np.ndarray, contrast: float) -> np.ndarray:
    """Return shares (row, col, endmembers) that sum to one from fields of any size."""
    scaled = (fields - fields.mean(axis=(0, 1))) / fields.std(axis=(0, 1))
    share = np.exp(contrast * scaled)
    return share / share.sum(axis=-1, keepdims=True)


def _random_spectra(count: int, bands: int, rng: np.random.Generator) -> np.ndarray:
    """Return smooth random spectra (count, bands) within [0.1, 0.9]."""
    from scipy.ndimage import gaussian_filter1d

    rough = rng.standard_normal((count, bands))
    smooth = gaussian_filter1d(rough, max(bands / 16, 1.0), axis=1, mode="nearest")
    low, high = smooth.min(axis=1, keepdims=True), smooth.max(axis=1, keepdims=True)
    return 0.1 + 0.8 * (smooth - low) / np.maximum(high - low, 1e-12)
