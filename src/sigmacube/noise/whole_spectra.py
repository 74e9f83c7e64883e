"""Cubes with holes and impulses made whole, for estimates of the noise and nothing else."""

from __future__ import annotations

import numpy as np

from sigmacube.core.validity import partly_valid

__all__ = ["stands_out", "whole_spectra"]

# Where values are taken from: not next door, or differences of neighbours would vanish.
SHIFTS = [(0, 2), (2, 0), (0, -2), (-2, 0), (2, 2), (-2, -2), (0, 3), (3, 0), (0, -3), (-3, 0)]
# An impulse differs from the median around it by so many times what is usual in its band.
WILD = 6.0
# Directions that gaps are filled by, rounds of filling, and bands that it needs.
DIRECTIONS, ROUNDS, FEW_BANDS = 16, 8, 8


def whole_spectra(
    values: np.ndarray, mask: np.ndarray | None, *, impulses: bool = False
) -> tuple[np.ndarray, np.ndarray | None]:
    """Return a cube whose pixels are complete or masked, and its mask.

    A missing value takes that of a pixel two or three away as a first guess, then what the other
    bands of its pixel say by the directions that spectra vary in, with noise as large as they leave
    of values that are there, so that the level of the noise stays. Pixels that find no first guess
    are masked. Nothing is done to a cube that is complete.

    Parameters
    ----------
    values
        (row, col, band) cube.
    mask
        True where values are valid, or None.
    impulses
        Treat what stands out from its neighbours as missing.

    Examples
    --------
    >>> import numpy as np
    >>> cube = np.random.default_rng(0).normal(size=(20, 20, 5))
    >>> cube[3, 4, 1] = np.nan
    >>> whole, valid = whole_spectra(cube, None)
    >>> bool(np.isfinite(whole).all()), bool(valid.all())
    (True, True)
    """
    bands, valid, missing = partly_valid(values, mask)
    if missing is None and not impulses:
        return values, mask
    part = np.asarray(values[..., bands], dtype=np.float64)
    there = np.broadcast_to(valid[..., None], part.shape)
    if missing is not None:
        there = there & ~missing
    if impulses:
        there = there & ~stands_out(part, there)
    filled, found = np.where(there, part, 0.0), there.copy()
    for rows, cols in SHIFTS:
        source, known = (_shifted(array, rows, cols) for array in (part, there))
        take = ~found & known
        filled[take] = source[take]
        found |= take
    usable = found.all(axis=2) & valid
    filled[usable] = _by_spectra(filled[usable], there[usable])
    whole = np.array(values, dtype=np.float64)
    whole[..., bands] = filled
    return whole, np.broadcast_to(usable[..., None], values.shape)


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

    middle = np.nanmedian(np.where(there, values, np.nan), axis=(0, 1))
    known = np.where(there, values, middle)
    distance = np.abs(known - median_filter(known, size=(3, 3, 1)))
    usual = np.median(distance, axis=(0, 1)) * 1.4826
    return distance > WILD * np.maximum(usual, 1e-300)
