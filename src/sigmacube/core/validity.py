"""Which values of a cube are there: finite, and not masked."""

from __future__ import annotations

import numpy as np

NO_VALUE = "Invalid cube: no value is finite and unmasked. There must be some."
NO_PIXEL = (
    "Invalid cube: no pixel is valid in all bands that hold data. Mask bands that are mostly "
    "missing."
)


def finite_mean(values: np.ndarray, axis: int | tuple[int, ...] = 2) -> np.ndarray:
    """Return the mean of the finite values along axes; NaN where there are none.

    Examples
    --------
    >>> finite_mean(np.array([[1.0, 3.0, np.nan], [np.nan] * 3]), axis=1)
    array([ 2., nan])
    """
    finite = np.isfinite(values)
    count = finite.sum(axis=axis)
    total = np.where(finite, values, 0).sum(axis=axis, dtype=np.float64)
    return np.divide(total, count, out=np.full(total.shape, np.nan), where=count > 0)


def mean_spectrum(values: np.ndarray, valid: np.ndarray) -> np.ndarray:
    """Return (bands,) the mean of the finite values of valid pixels; zero for bands without."""
    if valid.all():
        with np.errstate(invalid="ignore"):  # infinite values of both signs
            total = np.asarray(values.sum(axis=(0, 1), dtype=np.float64))
        if np.isfinite(total).all():
            return total / valid.size
    spectra = np.asarray(values[valid], dtype=np.float64)
    known = np.isfinite(spectra)
    total = np.sum(np.where(known, spectra, 0.0), axis=0)
    return total / np.maximum(np.count_nonzero(known, axis=0), 1)


def to_all_bands(flags: np.ndarray, bands: np.ndarray, n_bands: int) -> np.ndarray:
    """Return booleans (row, col, bands with data) for all bands, False in the others."""
    if len(bands) == n_bands:
        return flags
    whole = np.zeros((*flags.shape[:2], n_bands), dtype=bool)
    whole[..., bands] = flags
    return whole


def of_bands(values: np.ndarray, bands: np.ndarray) -> np.ndarray:
    """Return values (..., band) of some bands, a spectrum's next to each other in memory.

    Indexing would put a band's next to each other, and what follows would take longer. All bands
    are returned as they are.

    Examples
    --------
    >>> of_bands(np.arange(12).reshape(2, 2, 3), np.array([0, 2])).tolist()
    [[[0, 2], [3, 5]], [[6, 8], [9, 11]]]
    """
    same = len(bands) == values.shape[-1]
    return values if same else np.take(values, bands, axis=values.ndim - 1)


def partly_valid(
    values: np.ndarray, mask: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Return the bands with any valid value, the pixels with any, and what these miss.

    Examples
    --------
    >>> import numpy as np
    >>> values = np.ones((1, 2, 3))
    >>> values[..., 1] = np.nan
    >>> values[0, 0, 2] = np.inf
    >>> bands, valid, missing = partly_valid(values, None)
    >>> bands, valid, missing.tolist()
    (array([0, 2]), array([[ True,  True]]), [[[False, True], [False, False]]])
    """
    check_values(values)
    kept = valid_elements(values, mask)
    bands = np.flatnonzero(kept.any(axis=(0, 1)))
    if len(bands) == 0:
        raise ValueError(NO_VALUE)
    kept = of_bands(kept, bands)
    complete = np.all(kept, axis=2)
    if complete.all():
        return bands, complete, None
    valid = np.any(kept, axis=2)
    missing = ~kept & valid[..., None]
    return bands, valid, missing if missing.any() else None


def valid_parts(values: np.ndarray, mask: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Return the bands with any valid value, and the pixels valid in all of these bands.

    Examples
    --------
    >>> import numpy as np
    >>> values = np.ones((2, 2, 3))
    >>> values[..., 1] = np.nan
    >>> values[0, 0, 2] = np.inf
    >>> bands, valid = valid_parts(values, None)
    >>> bands
    array([0, 2])
    >>> valid
    array([[False,  True],
           [ True,  True]])
    """
    bands, pixels, missing = partly_valid(values, mask)
    if missing is not None:
        pixels &= ~missing.any(axis=2)
    if not pixels.any():
        raise ValueError(NO_PIXEL)
    return bands, pixels


def valid_elements(values: np.ndarray, mask: np.ndarray | None) -> np.ndarray:
    """Return (row, col, band) True where values are finite and not masked."""
    valid = np.isfinite(values) if values.dtype.kind == "f" else np.ones(values.shape, dtype=bool)
    if mask is not None:
        valid &= broadcast_mask(mask, values.shape)
    return valid


def check_values(values: np.ndarray) -> None:
    """Refuse what is not a cube of real numbers."""
    if values.ndim != 3:
        raise ValueError(
            f"Invalid cube of {values.ndim} dimensions, shape {values.shape}. "
            "It must have three: (row, col, band)."
        )
    if values.dtype.kind not in "iuf":
        raise ValueError(
            f"Invalid cube of type {values.dtype}. It must hold real numbers (integer or float)."
        )


def check_pixel(row: int, col: int, shape: tuple[int, ...], what: str = "cube") -> None:
    """Refuse a pixel that a cube of a shape (rows, cols, …) has not."""
    rows, cols = shape[:2]
    if not (0 <= row < rows and 0 <= col < cols):
        raise ValueError(f"Invalid pixel ({row}, {col}). The {what} has {rows}×{cols} pixels.")


def broadcast_mask(mask: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Return a (row, col) or (row, col, band) mask with the shape of the cube."""
    mask = np.asarray(mask)
    if mask.dtype != bool:
        raise ValueError(f"Invalid mask of type {mask.dtype}. It must be boolean, True = valid.")
    if mask.shape == shape[:2]:
        mask = mask[..., None]
    try:
        return np.broadcast_to(mask, shape)
    except ValueError:
        raise ValueError(
            f"Invalid mask of shape {mask.shape}. It must be {shape[:2]} or {shape}."
        ) from None
