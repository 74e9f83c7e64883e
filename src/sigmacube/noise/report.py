"""What a user should know about the noise of a scene, in one dictionary."""

from __future__ import annotations

from typing import Any

import numpy as np

from sigmacube.core.validity import valid_parts
from sigmacube.noise.estimation import fit_noise

__all__ = ["noise_report", "stripe_strength"]

# Bands with a signal-to-noise ratio below this hold hardly any signal.
NOISY = 3.0
# Stripes: offsets of columns or rows this many times what noise and texture give.
STRIPED = 3.0
ANISOTROPY = 2.0


def noise_report(
    values: np.ndarray, *, mask: np.ndarray | None = None, workers: int | None = None
) -> dict[str, Any]:
    """Return noise, signal-to-noise ratio, correlation and suspect bands of a scene.

    Parameters
    ----------
    values
        (row, col, band) cube.
    mask
        True where values are valid.
    workers
        Threads; the number of processors by default.

    Returns
    -------
    dict
        JSON-like. ``noise`` and ``snr`` hold one value per band (None without data), lists of
        bands are indices from 0.

    Examples
    --------
    >>> import numpy as np, sigmacube as sc
    >>> noisy = sc.synthetic.add_noise(sc.synthetic.scene((50, 60, 30), rng=1), 0.01, rng=2).values
    >>> noisy[..., 7] = 0
    >>> report = noise_report(noisy)
    >>> report["constant_bands"], abs(round(report["noise"][3], 3))
    ([7], 0.01)
    """
    estimate = fit_noise(values, mask=mask, workers=workers)
    bands, valid = valid_parts(values, mask)
    spectra = values[..., bands].astype(np.float64)
    seen = np.zeros(values.shape[2], dtype=bool)
    seen[bands] = True
    mean = np.zeros(values.shape[2])
    mean[bands] = spectra[valid].mean(axis=0)
    snr = np.abs(mean) / estimate.std
    measured = seen & ~estimate.screen.constant
    report: dict[str, Any] = {
        "noise": [float(s) if ok else None for s, ok in zip(estimate.std, seen, strict=True)],
        "snr": [float(s) if ok else None for s, ok in zip(snr, measured, strict=True)],
        "noise_source": estimate.source,
        "noise_signal_dependent": estimate.signal_dependent,
        "noise_band_correlation": [round(float(r), 4) for r in estimate.by_lag],
        "noise_spatial_lag1": round(float(estimate.spatial_lag1), 4),
        "empty_bands": np.flatnonzero(~seen).tolist(),
        "noisy_bands": np.flatnonzero(measured & (snr < NOISY)).tolist(),
    }
    for name, where in estimate.screen.named().items():
        report[f"{name}_bands"] = np.flatnonzero(where & seen).tolist()
    report["striped_bands"] = bands[_striped(spectra, valid, estimate.std[bands])].tolist()
    return report


def _striped(spectra: np.ndarray, valid: np.ndarray, std: np.ndarray) -> np.ndarray:
    """Return which bands have stripes along columns or rows."""
    cols = stripe_strength(spectra, valid, std)
    rows = stripe_strength(np.swapaxes(spectra, 0, 1), valid.T, std)
    strong, weak = np.maximum(cols, rows), np.minimum(cols, rows)
    return np.flatnonzero((strong > STRIPED) & (strong > ANISOTROPY * weak))


def stripe_strength(spectra: np.ndarray, valid: np.ndarray, std: np.ndarray) -> np.ndarray:
    """Return (bands,) how much columns differ from their neighbours, in units of the noise.

    The mean of a column has the noise σ/√rows; so has its second difference along the columns,
    scaled. Larger values mean stripes, or texture, which shows in rows and columns alike.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> cube = rng.normal(size=(80, 90, 2))
    >>> cube[..., 1] += 0.5 * rng.normal(size=90)
    >>> strength = stripe_strength(cube, np.ones((80, 90), dtype=bool), np.ones(2))
    >>> bool(strength[0] < 1.5), bool(strength[1] > 3)
    (True, True)
    """
    count = valid.sum(axis=0)
    whole = count >= max(count.max() / 2, 1)
    if np.count_nonzero(whole) < 3:
        return np.zeros(spectra.shape[2])
    # Differences of neighbours in the same row first: a pixel masked in one must not count.
    inside = valid[:, :-2] & valid[:, 1:-1] & valid[:, 2:]
    change = spectra[:, :-2] - 2 * spectra[:, 1:-1] + spectra[:, 2:]
    n = np.maximum(inside.sum(axis=0), 1)[:, None]
    mean = np.where(inside[..., None], change, 0).sum(axis=0) / n
    relative = np.abs(mean) / (std * np.sqrt(6 / n))
    return np.median(relative[inside.any(axis=0)], axis=0) / 0.6745
