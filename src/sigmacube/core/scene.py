"""A cube made ready for the windows: validity settled, dead bands set aside, noise known."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from sigmacube.core.noise import Noise
from sigmacube.core.signal_noise import SignalNoise
from sigmacube.core.stripes import find_stripes
from sigmacube.core.windows import WindowGrid, WindowSpec

__all__ = ["Scene", "mean_spectrum", "valid_parts"]


@dataclass(frozen=True, eq=False)
class Scene:
    """What is solved: the valid bands and pixels of a cube, with their noise and windows."""

    values: np.ndarray
    """(row, col, band) the cube as given."""
    bands: np.ndarray
    """Indices of the bands that hold valid values."""
    valid: np.ndarray
    """(row, col) True for pixels that are valid in any of these bands."""
    missing: np.ndarray | None
    """(row, col, band) True for the missing values of valid pixels; None where there are none."""
    noise: Noise
    """Noise of these bands."""
    grid: WindowGrid
    """Windows over these bands."""
    pixel_scale: np.ndarray | None = None
    """(row, col) factor of every pixel on its noise; None where all are alike."""

    @classmethod
    def create(
        cls,
        values: np.ndarray,
        noise: float | np.ndarray | SignalNoise,
        *,
        mask: np.ndarray | None,
        window: WindowSpec,
        step: WindowSpec,
    ) -> Scene:
        """Check the input and settle what is valid."""
        bands, valid, missing = partly_valid(values, mask)
        scale = None
        if isinstance(noise, SignalNoise):
            mean = mean_spectrum(values, valid)
            noise = noise.at(mean)
            spectra = _zero_masked(values, bands, valid, None)
            if missing is not None:  # zero would make a pixel darker than it is
                spectra = np.where(missing, mean[bands], spectra)
            scale = noise.select(bands).pixel_scale(spectra)
            noise = noise.value
        model = Noise.create(noise, values.shape[2]).select(bands)
        grid = WindowGrid.create((*valid.shape, len(bands)), window=window, step=step)
        if not model.is_diagonal and len(grid.bands) > 1:
            raise ValueError(
                f"Invalid window of {grid.bands.size} bands with a noise covariance. Windows must "
                "hold all bands where the noise is correlated between bands."
            )
        return cls(values, bands, valid, missing, model, grid, scale)

    def whitened(self) -> np.ndarray:
        """Return the valid bands as float64 with unit noise, zero where values are masked."""
        return self.noise.whiten(self._known())

    def scaled(self) -> np.ndarray:
        """Return the valid bands over their noise, without regard to its correlation."""
        return np.divide(self._known(), self.noise.std, dtype=np.float64)

    def _known(self) -> np.ndarray:
        """Return the valid bands, zero where values are masked, over the pixels' scale."""
        values = _zero_masked(self.values, self.bands, self.valid, self.missing)
        return values if self.pixel_scale is None else values / self.pixel_scale[..., None]

    def without_stripes(self) -> Scene:
        """Return the scene with striped lines as missing values."""
        there = self.valid[..., None]
        if self.missing is not None:
            there = there & ~self.missing
        striped = find_stripes(self.scaled(), there)
        if striped is None:
            return self
        striped &= self.valid[..., None]
        return replace(self, missing=striped if self.missing is None else striped | self.missing)

    @property
    def mean_spectrum(self) -> np.ndarray:
        """(bands of the cube,) mean of the valid pixels."""
        return mean_spectrum(self.values, self.valid)

    def std_of_elements(self) -> np.ndarray:
        """Return (band,) or (row, col, band) noise std on all bands, NaN for those without data."""
        std = np.full(self.values.shape[2], np.nan)
        std[self.bands] = self.noise.std
        return std if self.pixel_scale is None else self.pixel_scale[..., None] * std

    def to_output(self, array: np.ndarray) -> np.ndarray:
        """Return an array of the valid bands as one like the input, NaN where it is masked."""
        if self.pixel_scale is not None:
            array = array * self.pixel_scale[..., None]
        dtype = self.values.dtype if self.values.dtype in (np.float32, np.float64) else np.float64
        if len(self.bands) == self.values.shape[2]:
            output = array.astype(dtype, copy=False)
        else:
            output = np.full(self.values.shape, np.nan, dtype=dtype)
            output[..., self.bands] = array
        if not self.valid.all():
            output[~self.valid] = np.nan
        return output


def _zero_masked(
    values: np.ndarray, bands: np.ndarray, valid: np.ndarray, missing: np.ndarray | None
) -> np.ndarray:
    """Return the bands with data, zero where masked; the input itself if nothing changes."""
    if len(bands) < values.shape[2]:
        values = values[..., bands]
    if not valid.all():
        values = np.where(valid[..., None], values, 0)
    return values if missing is None else np.where(missing, 0, values)


def mean_spectrum(values: np.ndarray, valid: np.ndarray) -> np.ndarray:
    """Return (bands,) the mean of the finite values of valid pixels; zero for bands without."""
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
    bands, kept = _valid_elements(values, mask)
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
    bands, kept = _valid_elements(values, mask)
    pixels = np.all(kept, axis=2)
    if not pixels.any():
        raise ValueError(
            "Invalid cube: no pixel is valid in all bands that hold data. Mask bands that are "
            "mostly missing."
        )
    return bands, pixels


def _valid_elements(values: np.ndarray, mask: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Return the bands with any valid value, and what is valid in them."""
    check_values(values)
    valid = np.isfinite(values) if values.dtype.kind == "f" else np.ones(values.shape, dtype=bool)
    if mask is not None:
        valid &= broadcast_mask(mask, values.shape)
    bands = np.flatnonzero(valid.any(axis=(0, 1)))
    if len(bands) == 0:
        raise ValueError("Invalid cube: no value is finite and unmasked. There must be some.")
    kept = valid if len(bands) == values.shape[2] else valid[..., bands]
    return bands, kept


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
