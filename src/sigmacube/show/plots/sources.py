"""What pictures are made of: the values, wavelengths and names of a result, a cube or an array."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from sigmacube.core.validity import finite_mean
from sigmacube.core.windows import nearest_windows
from sigmacube.cube import Cube

__all__ = [
    "opened",
    "std_of",
    "wavelengths_of",
    "band_axis",
    "good_bands_of",
    "plain",
    "quantity",
    "nearest",
    "pixel_of",
    "image_of",
    "one_image",
    "window_map",
]

#: Characters of a name or a unit that a label has room for.
_LONGEST = 48


class Result(Protocol):
    """The fields of a `DenoisedCube` that pictures are made of."""

    @property
    def estimate(self) -> np.ndarray: ...
    @property
    def std(self) -> np.ndarray | None: ...
    @property
    def ranks(self) -> np.ndarray: ...
    @property
    def noise(self) -> float | np.ndarray: ...
    @property
    def residual_ratio(self) -> np.ndarray: ...
    @property
    def rejected(self) -> np.ndarray | None: ...
    @property
    def wavelengths(self) -> np.ndarray | None: ...
    @property
    def metadata(self) -> Mapping[str, Any]: ...
    @property
    def settings(self) -> Mapping[str, Any]: ...
    @property
    def caveats(self) -> list[str]: ...
    @property
    def unexplained(self) -> np.ndarray | None: ...


def opened(
    source: Result | Cube | np.ndarray, name: str, wavelengths: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray | None, np.ndarray | None]:
    """Return the values of a source, its wavelengths, and which of its bands are good."""
    if isinstance(source, np.ndarray):
        values = source
    else:
        values = source.values if isinstance(source, Cube) else getattr(source, name)
    if values is None:
        raise ValueError(
            f"Invalid result without {name}. It was made with uncertainty=False: denoise again."
        )
    wavelengths = wavelengths_of(source) if wavelengths is None else np.asarray(wavelengths)
    return np.asarray(values), wavelengths, good_bands_of(source)


def std_of(source: Result) -> np.ndarray:
    """Return the standard deviations of a result, which must have them."""
    return opened(source, "std")[0]


def wavelengths_of(source: object) -> np.ndarray | None:
    """Return the band centres in nm, where the source states them."""
    found = getattr(source, "wavelengths", None)
    return None if found is None else np.asarray(found, dtype=np.float64)


def band_axis(wavelengths: np.ndarray | None, bands: int) -> tuple[np.ndarray, str]:
    """Return where bands lie along the axis of a spectrum, and the label of that axis.

    Examples
    --------
    >>> band_axis(None, 3), band_axis(np.array([450, 550]), 2)[1]
    ((array([0., 1., 2.]), 'band'), 'wavelength (nm)')
    """
    if wavelengths is None:
        return np.arange(bands, dtype=np.float64), "band"
    return np.asarray(wavelengths, dtype=np.float64), "wavelength (nm)"


def good_bands_of(source: object) -> np.ndarray | None:
    """Return which bands are good, where the source states it."""
    found = getattr(source, "metadata", {}).get("good_bands")
    return None if found is None else np.asarray(found, dtype=bool)


def plain(text: object) -> str:
    r"""Return text of a file as a label can show it: one line, not too long, no mathematics.

    Examples
    --------
    >>> print(plain("W m-2  sr-1"), plain(r"$\bad{$"))
    W m-2 sr-1 \$\bad{\$
    """
    words = " ".join("".join(c if c.isprintable() else " " for c in str(text)).split())
    short = words if len(words) <= _LONGEST else f"{words[: _LONGEST - 1]}…"
    return short.replace("$", r"\$")


def quantity(source: object, *, brackets: bool = False) -> str:
    """Name what is measured and its unit: 'reflectance', 'radiance (W m-2 sr-1 nm-1)'."""
    metadata = getattr(source, "metadata", {})
    name, units = (plain(metadata.get(key) or "") for key in ("name", "units"))
    unit = "" if units in ("", "1") else units
    if brackets:
        return f"({unit or name})" if unit or name else ""
    return f"{name or 'value'} ({unit})" if unit else name or "value"


def nearest(wavelengths: np.ndarray, wavelength: float) -> int:
    """Return the band nearest to a wavelength."""
    return int(np.argmin(np.abs(np.asarray(wavelengths) - wavelength)))


def pixel_of(source: Any, name: str, row: int | None, col: int | None) -> np.ndarray:
    """Return one spectrum of a source, or the source itself when it is one."""
    values = opened(source, name)[0]
    if values.ndim == 1:
        return values.astype(np.float64)
    if row is None or col is None:
        raise ValueError("Invalid pixel: row and col must be given for a cube.")
    rows, cols = values.shape[:2]
    if not (-rows <= row < rows and -cols <= col < cols):
        raise ValueError(
            f"Invalid pixel ({row}, {col}). The scene has {rows} rows and {cols} columns."
        )
    return np.asarray(values[row, col], dtype=np.float64)


def image_of(
    source: Result | np.ndarray, name: str, wavelength: float | None, band: int | None
) -> tuple[np.ndarray, str]:
    """Return one band of a source, or the rms over its bands, and words for the title."""
    values, wavelengths, good = opened(source, name)
    return one_image(values, wavelengths, good, wavelength, band)


def one_image(
    values: np.ndarray,
    wavelengths: np.ndarray | None,
    good: np.ndarray | None,
    wavelength: float | None,
    band: int | None,
) -> tuple[np.ndarray, str]:
    """Return one band, or the rms over the good ones, as an image; and words for its title."""
    if values.ndim == 2:
        return values, ""
    bands = values.shape[2]
    if wavelength is not None:
        if wavelengths is None:
            raise ValueError(f"Invalid wavelength {wavelength}: the bands have none. Give a band.")
        band = nearest(wavelengths, wavelength)
    if band is None:
        squares = np.square(values if good is None else values[:, :, good], dtype=np.float64)
        return np.sqrt(finite_mean(squares)), ", rms over bands"
    if not -bands <= band < bands:
        raise ValueError(f"Invalid band {band}. It must lie between 0 and {bands - 1}.")
    named = f"band {band}" if wavelengths is None else f"{wavelengths[band]:.0f} nm"
    return values[:, :, band], f", {named}"


def window_map(source: Result | np.ndarray, name: str) -> np.ndarray:
    """Return a value per pixel (result) or per window (array); windows that cut bands pooled."""
    values = np.asarray(source if isinstance(source, np.ndarray) else getattr(source, name))
    values = values.astype(np.float64)
    values = np.nanmax(values, axis=2) if values.ndim == 3 else values
    if isinstance(source, np.ndarray) or "window" not in source.settings:
        return values
    size = source.estimate.shape
    pixels = [np.arange(side) for side in size[:2]]
    return values[np.ix_(*nearest_windows(source.settings, size, values.shape, pixels))]
