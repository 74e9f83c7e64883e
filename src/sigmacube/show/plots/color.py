"""Three bands as red, green and blue."""

from __future__ import annotations

from typing import TYPE_CHECKING

import matplotlib as mpl
import numpy as np

from sigmacube.cube import Cube
from sigmacube.show.look import NO_DATA
from sigmacube.show.plots.sources import Result, nearest, opened
from sigmacube.show.plots.theme import image_axes, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOR_INFRARED = (850.0, 660.0, 560.0)
"""Wavelengths (nm) shown as red, green, blue: plants red, water black, as in aerial photographs."""


def stretch(
    values: np.ndarray,
    *,
    percentiles: tuple[float, float] = (2.0, 98.0),
    limits: np.ndarray | None = None,
) -> np.ndarray:
    """Scale every channel to 0..1 between two percentiles of its finite values.

    Parameters
    ----------
    values
        (row, col, channel) values. NaN and infinite values have no say in the percentiles.
    percentiles
        Shares (in percent) that become black and white.
    limits
        (2, channels) values that become black and white, instead of the percentiles: for two
        pictures on one scale.

    Returns
    -------
    ndarray
        Same shape, in [0, 1]; NaN where the input is not finite.

    Examples
    --------
    >>> import numpy as np
    >>> from sigmacube import plots
    >>> image = np.array([[[0.0], [5.0], [10.0], [np.nan]]])
    >>> plots.stretch(image, percentiles=(0, 100)).ravel()
    array([0. , 0.5, 1. , nan])
    """
    values = np.asarray(values, dtype=np.float64)
    low, high = stretch_limits(values, percentiles) if limits is None else np.asarray(limits)
    span = np.where(high > low, high - low, 1.0)
    scaled = np.clip((values - low) / span, 0.0, 1.0)
    return np.where(np.isfinite(values), scaled, np.nan)


def stretch_limits(
    values: np.ndarray, percentiles: tuple[float, float] = (2.0, 98.0)
) -> np.ndarray:
    """Return the (2, channels) percentiles of the finite values of every channel."""
    low, high = percentiles
    if not 0 <= low < high <= 100:
        raise ValueError(
            f"Invalid percentiles {percentiles}. They must rise and lie between 0 and 100."
        )
    limits = np.zeros((2, values.shape[-1]))
    for channel in range(values.shape[-1]):
        finite = values[..., channel][np.isfinite(values[..., channel])]
        if finite.size:
            limits[:, channel] = np.percentile(finite, (low, high))
    return limits


@styled
def false_color(
    source: Result | Cube | np.ndarray,
    *,
    colors: tuple[float, float, float] = COLOR_INFRARED,
    wavelengths: np.ndarray | None = None,
    percentiles: tuple[float, float] = (2.0, 98.0),
    limits: np.ndarray | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Show three bands as red, green and blue.

    Parameters
    ----------
    source
        A result (its estimate is shown), a cube, or a (row, col, band) array.
    colors
        Wavelengths in nm of red, green and blue; the nearest bands are taken. Without wavelengths
        the three bands are spread over the spectrum.
    wavelengths
        (bands,) centres in nm, for an array.
    percentiles, limits
        See `stretch`.
    ax
        Axes to draw on.

    Examples
    --------
    >>> from sigmacube import plots
    >>> from sigmacube.synthetic import scene
    >>> plots.false_color(scene((30, 40, 50))).get_title()
    'R 860, G 651, B 567 nm'
    """
    values, wavelengths, good = opened(source, "estimate", wavelengths)
    chosen = color_bands(usable_bands(values, good), wavelengths, colors)
    if wavelengths is None:
        title = f"R {chosen[0]}, G {chosen[1]}, B {chosen[2]} (bands)"
    else:
        red, green, blue = (f"{wavelengths[band]:.0f}" for band in chosen)
        title = f"R {red}, G {green}, B {blue} nm"
    picture = stretch(values[:, :, chosen], percentiles=percentiles, limits=limits)
    opaque = np.isfinite(picture).all(axis=2)
    # No value is drawn as the grey that the maps use for it.
    picture = np.where(opaque[..., None], picture, mpl.colors.to_rgb(NO_DATA))
    ax = image_axes(ax)
    ax.imshow(picture)
    ax.set_title(title)
    return ax


def color_bands(
    usable: np.ndarray,
    wavelengths: np.ndarray | None,
    colors: tuple[float, float, float] = COLOR_INFRARED,
) -> list[int]:
    """Return the bands of red, green and blue: nearest in wavelength, or spread where unknown.

    ``usable`` is False for bands that must not be taken: an empty one would leave no picture.
    """
    bands = np.flatnonzero(usable) if np.any(usable) else np.arange(len(usable))
    if wavelengths is None:
        return [int(bands[round(share * (len(bands) - 1))]) for share in (0.75, 0.5, 0.25)]
    return [int(bands[nearest(wavelengths[bands], nm)]) for nm in colors]


def usable_bands(values: np.ndarray, good: np.ndarray | None) -> np.ndarray:
    """Return which bands are good and have values, judged on a sample of the pixels."""
    rows, cols, bands = values.shape
    sample = values[:: max(1, rows // 32), :: max(1, cols // 32)]
    filled = np.isfinite(sample).any(axis=(0, 1))
    return filled & good if good is not None and len(good) == bands else filled


def shown_colors(source: Result) -> np.ndarray:
    """Return the three bands of the estimate that `false_color` shows."""
    values, wavelengths, good = opened(source, "estimate")
    return values[:, :, color_bands(usable_bands(values, good), wavelengths)]
