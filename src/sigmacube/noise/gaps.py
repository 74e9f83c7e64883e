"""Gaps and impulses of windows, filled for estimates of the noise and nothing else."""

from __future__ import annotations

import numpy as np

__all__ = ["filled", "stands_out"]

# Where values are taken from first: not next door, or differences of neighbours would vanish.
SHIFTS = [(0, 2), (2, 0), (0, -2), (-2, 0), (2, 2), (-2, -2), (0, 3), (3, 0), (0, -3), (-3, 0)]
# An impulse differs from the median around it by so many times what is usual in its band.
WILD = 6.0
# Directions that gaps are filled by, rounds of filling, and bands that it needs.
DIRECTIONS, ROUNDS, FEW_BANDS = 16, 8, 8


def filled(
    blocks: list[np.ndarray], valid: list[np.ndarray], kept: list[np.ndarray]
) -> list[np.ndarray]:
    """Return windows whose gaps hold a guess.

    A missing value takes that of a pixel two or three away, or else the mean of its band; then what
    the other bands of its pixel say by the directions that spectra vary in, with noise as large as
    they leave of values that are there, so that the level of the noise stays.

    Parameters
    ----------
    blocks, valid, kept
        Values (rows, cols, bands), pixels that count (rows, cols) and elements that are there
        (rows, cols, bands) of windows.

    Examples
    --------
    >>> import numpy as np
    >>> block, pixels = np.random.default_rng(0).normal(size=(20, 20, 5)), np.ones((20, 20), bool)
    >>> kept = np.ones(block.shape, dtype=bool)
    >>> kept[3, 4, 1] = False
    >>> whole = filled([np.where(kept, block, np.nan)], [pixels], [kept])[0]
    >>> bool(np.isfinite(whole).all()), bool(np.array_equal(whole[kept], block[kept]))
    (True, True)
    """
    counts = np.maximum(np.sum([k.sum(axis=(0, 1)) for k in kept], axis=0), 1)
    sums = [np.where(k, b, 0.0).sum(axis=(0, 1)) for b, k in zip(blocks, kept, strict=True)]
    mean = np.sum(sums, axis=0) / counts
    first = [_from_around(*pair, mean) for pair in zip(blocks, kept, strict=True)]
    spectra = np.concatenate([b[v] for b, v in zip(first, valid, strict=True)])
    there = np.concatenate([k[v] for k, v in zip(kept, valid, strict=True)])
    spectra, whole, start = _by_spectra(spectra, there), [], 0
    for block, pixels in zip(first, valid, strict=True):
        out, stop = np.zeros_like(block), start + int(np.count_nonzero(pixels))
        out[pixels], start = spectra[start:stop], stop
        whole.append(out)
    return whole


def _from_around(block: np.ndarray, kept: np.ndarray, mean: np.ndarray) -> np.ndarray:
    """Return a window whose gaps hold values of pixels nearby; the band's mean without any."""
    guess, found = np.where(kept, block, mean), kept.copy()
    for rows, cols in SHIFTS:
        source, known = (_shifted(array, rows, cols) for array in (block, kept))
        take = ~found & known
        guess[take] = source[take]
        found |= take
    return guess


def _by_spectra(spectra: np.ndarray, there: np.ndarray) -> np.ndarray:
    """Return spectra (pixels, bands) whose missing values follow from the others, with noise.

    Principal directions are found on spectra with the guess so far in the gaps, and the gaps filled
    from them, some times over (expectation–maximisation). The noise drawn is that which they leave
    of kept values; a fixed seed makes it the same every time.
    """
    gaps = ~there
    if not gaps.any() or spectra.shape[1] < FEW_BANDS or len(spectra) < 2 * spectra.shape[1]:
        return spectra
    rough = np.std(np.diff(spectra, axis=1), axis=0)
    scale = np.maximum(np.append(rough, rough[-1]), 1e-12 * np.abs(spectra).max() + 1e-300)
    data, count = spectra / scale, min(DIRECTIONS, spectra.shape[1] // 4)
    middle = data.mean(axis=0)
    fit = data
    for _ in range(ROUNDS):
        centred = data - middle
        vectors = np.linalg.eigh(centred.T @ centred)[1][:, -count:]
        fit = (centred @ vectors) @ vectors.T + middle
        data = np.where(gaps, fit, data)
    kept = np.maximum(there.sum(axis=0), 1)
    left = np.sqrt(np.sum(np.where(there, data - fit, 0) ** 2, axis=0) / kept)
    left *= np.sqrt(1 / np.maximum(1 - np.sum(vectors**2, axis=1), 0.1))
    noise = np.random.default_rng(0).standard_normal(data.shape) * left
    return np.where(gaps, (fit + noise) * scale, spectra)


def _shifted(array: np.ndarray, rows: int, cols: int) -> np.ndarray:
    """Return the array as seen from pixels ``rows`` and ``cols`` before; zero outside."""
    moved = np.zeros_like(array)
    if abs(rows) >= array.shape[0] or abs(cols) >= array.shape[1]:
        return moved
    here, there = [], []
    for shift, size in ((rows, array.shape[0]), (cols, array.shape[1])):
        here.append(slice(max(-shift, 0), size - max(shift, 0)))
        there.append(slice(max(shift, 0), size - max(-shift, 0)))
    moved[tuple(here)] = array[tuple(there)]
    return moved


def stands_out(values: np.ndarray, there: np.ndarray) -> np.ndarray:
    """Return elements far from the median of the 3 × 3 pixels around them, in their band."""
    from scipy.ndimage import median_filter

    empty = ~there.any(axis=(0, 1))
    middle = np.nanmedian(np.where(there, values, np.where(empty, 0.0, np.nan)), axis=(0, 1))
    known = np.where(there, values, middle)
    distance = np.abs(known - median_filter(known, size=(3, 3, 1)))
    usual = np.median(distance, axis=(0, 1)) * 1.4826
    return distance > WILD * np.maximum(usual, 1e-300)
