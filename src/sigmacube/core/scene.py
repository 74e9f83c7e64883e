"""A cube made ready for the windows: validity settled, dead bands set aside, noise known."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sigmacube.core.noise import SEGMENT, Noise
from sigmacube.core.signal_noise import SignalNoise
from sigmacube.core.windows import WindowGrid

__all__ = ["Scene", "mean_spectrum", "valid_parts"]

NO_VALUE = "Invalid cube: no value is finite and unmasked. There must be some."
NO_PIXEL = (
    "Invalid cube: no pixel is valid in all bands that hold data. Mask bands that are mostly "
    "missing."
)


@dataclass(frozen=True, eq=False)
class Scene:
    """What is solved: the valid bands and pixels of a cube or a block of it, noise and windows."""

    values: np.ndarray
    """(row, col, band) the values as given."""
    bands: np.ndarray
    """Indices of the bands that hold valid values."""
    all_valid: np.ndarray
    """(row, col) True for pixels that are valid in all of these bands."""
    noise: Noise
    """Noise of these bands."""
    grid: WindowGrid
    """Windows over these bands."""
    cols: slice
    """Columns that the grid covers; more are there where whitening works in segments."""
    all_scale: np.ndarray | None = None
    """(row, col) factor of every pixel on its noise; None where all are alike."""

    @classmethod
    def create(
        cls,
        values: np.ndarray,
        mask: np.ndarray | None,
        *,
        bands: np.ndarray,
        noise: Noise,
        grid: WindowGrid,
        cols: slice = slice(None),
        signal_noise: SignalNoise | None = None,
    ) -> Scene:
        """Settle which pixels are valid; ``cols`` are the columns that the grid covers."""
        valid = valid_elements(values, mask)
        if len(bands) < values.shape[2]:
            valid = valid[..., bands]
        valid = np.all(valid, axis=2)
        scale = None
        if signal_noise is not None:
            spectra = _zero_masked(values, bands, valid)
            parts = [
                spectra[:, start : start + SEGMENT] for start in range(0, valid.shape[1], SEGMENT)
            ]
            scale = np.concatenate([signal_noise.pixel_scale(part) for part in parts], axis=1)
        return cls(values, bands, valid, noise, grid, cols, scale)

    @property
    def valid(self) -> np.ndarray:
        """(row, col) True for pixels that are valid in all of these bands."""
        return self.all_valid[:, self.cols]

    @property
    def pixel_scale(self) -> np.ndarray | None:
        """(row, col) factor of every pixel on its noise; None where all are alike."""
        return None if self.all_scale is None else self.all_scale[:, self.cols]

    def whitened(self) -> np.ndarray:
        """Return the valid bands as float64 with unit noise, zero at masked pixels."""
        values = _zero_masked(self.values, self.bands, self.all_valid)
        if self.all_scale is not None:
            values = values / self.all_scale[..., None]
        return np.ascontiguousarray(self.noise.whiten(values)[:, self.cols])

    def to_output(
        self, array: np.ndarray, part: tuple[slice, ...] = (slice(None), slice(None))
    ) -> np.ndarray:
        """Return an array of the valid bands as one like the input, NaN where it is masked.

        ``part`` are the rows and columns of the grid's pixels that the array holds.
        """
        if self.pixel_scale is not None:
            array = array * self.pixel_scale[part][..., None]
        dtype = self.values.dtype if self.values.dtype in (np.float32, np.float64) else np.float64
        if len(self.bands) == self.values.shape[2]:
            output = array.astype(dtype, copy=False)
        else:
            output = np.full((*array.shape[:2], self.values.shape[2]), np.nan, dtype=dtype)
            output[..., self.bands] = array
        valid = self.valid[part]
        if not valid.all():
            output[~valid] = np.nan
        return output


def _zero_masked(values: np.ndarray, bands: np.ndarray, valid: np.ndarray) -> np.ndarray:
    """Return the bands with data, zero at masked pixels; the input itself if nothing changes."""
    if len(bands) < values.shape[2]:
        values = values[..., bands]
    return values if valid.all() else np.where(valid[..., None], values, 0)


def mean_spectrum(values: np.ndarray, valid: np.ndarray) -> np.ndarray:
    """Return (bands,) the mean of the valid pixels; zero for bands without data."""
    mean = np.mean(values[valid], axis=0, dtype=np.float64)
    return np.where(np.isfinite(mean), mean, 0.0)


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
    check_values(values)
    valid = valid_elements(values, mask)
    bands = np.flatnonzero(valid.any(axis=(0, 1)))
    if len(bands) == 0:
        raise ValueError(NO_VALUE)
    kept = valid if len(bands) == values.shape[2] else valid[..., bands]
    pixels = np.all(kept, axis=2)
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
