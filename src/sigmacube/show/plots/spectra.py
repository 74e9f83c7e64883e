"""Spectra with their intervals, and the noise of every band."""

from __future__ import annotations

import warnings
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from sigmacube.core.levels import half_width
from sigmacube.core.whitening import std_of_noise
from sigmacube.cube import Cube
from sigmacube.show.look import BLUE, GREY, INK, VERMILION
from sigmacube.show.plots.sources import (
    Result,
    band_axis,
    good_bands_of,
    pixel_of,
    quantity,
    std_of,
    wavelengths_of,
)
from sigmacube.show.plots.theme import new_axes, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# A step of the wavelengths this many times the usual one is a gap, not a coarse sampling.
_GAP = 2.5
# Intervals narrower than this share of the spectrum's range are not seen beside its line.
_THIN = 0.04


@styled
def spectrum(
    source: Result | Cube | np.ndarray,
    std: np.ndarray | None = None,
    *,
    row: int | None = None,
    col: int | None = None,
    wavelengths: np.ndarray | None = None,
    good_bands: np.ndarray | None = None,
    observed: Result | Cube | np.ndarray | None = None,
    truth: Result | Cube | np.ndarray | None = None,
    level: float = 0.95,
    label: str = "estimate",
    color: str = BLUE,
    ax: Axes | None = None,
    below: Axes | None = None,
) -> Axes:
    """Draw the spectrum of one pixel with the interval of every band.

    Lines and the shaded interval break at bad bands, at bands without a value, and where the
    wavelengths jump. Where the interval is hardly wider than its line, a second panel shows it
    about the estimate, with what the truth differs by.

    Parameters
    ----------
    source
        A result or cube with ``row`` and ``col``, or a (bands,) spectrum.
    std
        (bands,) standard deviations, for a (bands,) spectrum.
    row, col
        The pixel.
    wavelengths, good_bands
        (bands,) centres in nm, and False for bands to leave out; by default the source's own.
    observed, truth
        Cubes or (bands,) spectra to compare with: drawn as grey dots and as a black line.
    level
        Coverage of the interval.
    label, color
        Of the estimate, for several pixels on one Axes.
    ax
        Axes to draw on.
    below
        Axes for the second panel; on a new figure there is one where it is needed.

    Examples
    --------
    >>> import numpy as np
    >>> from sigmacube import plots
    >>> nm = np.array([400.0, 410, 420, 430, 900, 910, 920])
    >>> ax = plots.spectrum(np.full(7, 0.3), np.full(7, 0.01), wavelengths=nm)
    >>> x = ax.lines[0].get_xdata()
    >>> bool(np.isnan(x[4])), len(x)
    (True, 8)
    """
    values = pixel_of(source, "estimate", row, col)
    if std is None and not isinstance(source, Cube | np.ndarray) and source.std is not None:
        std = pixel_of(source, "std", row, col)
    wavelengths = wavelengths_of(source) if wavelengths is None else wavelengths
    good = good_bands_of(source) if good_bands is None else np.asarray(good_bands, dtype=bool)
    bands = len(values)
    x, x_label = band_axis(wavelengths, bands)
    if len(x) != bands:
        raise ValueError(f"Invalid wavelengths: {len(x)} given for {bands} bands.")
    half = None if std is None else half_width(level) * np.asarray(std)
    if ax is None and half is not None and is_thin(values, half):
        ax, below = two_panels()
    ax = new_axes() if ax is None else ax
    line = partial(with_gaps, x, good=good)
    if observed is not None:
        dots = line(pixel_of(observed, "estimate", row, col))
        ax.plot(*dots, ".", color=GREY, ms=3.2, label="observed", zorder=1)
    if half is not None:
        name = f"{100 * level:g} % interval"
        # One entry in the legend, however many spectra share the Axes.
        known = ax.get_legend_handles_labels()[1]
        shade: dict[str, Any] = {"label": "_" if name in known else name, "zorder": 2}
        _shade(ax, line(values - half, values + half), color, **shade)
    ax.plot(*line(values), color=color, label=label, zorder=4)
    true = None if truth is None else pixel_of(truth, "estimate", row, col)
    if true is not None:
        ax.plot(*line(true), label="truth", **_DASHES)
    ax.set_ylabel(quantity(source))
    if row is not None:
        ax.set_title(f"Pixel ({row}, {col})")
    ax.margins(x=0.01)
    ax.legend(loc="best")
    if below is not None and half is not None:
        _about(below, line(-half, half), None if true is None else line(true - values), color)
        ax.tick_params(labelbottom=False)
    lowest = ax if below is None else below
    lowest.set_xlabel(x_label)
    return ax


_DASHES: dict[str, Any] = {"color": INK, "lw": 1.0, "ls": (0, (4, 2)), "zorder": 5}


def _shade(ax: Axes, interval: tuple[np.ndarray, ...], color: str, **options: Any) -> None:
    at, low, high = interval
    ax.fill_between(at, low, high, color=color, lw=0, **{"alpha": 0.30, **options})


def _about(
    ax: Axes, interval: tuple[np.ndarray, ...], truth: tuple[np.ndarray, ...] | None, color: str
) -> None:
    """Draw the interval about the estimate, with its bounds: several may share the Axes."""
    _shade(ax, interval, color, alpha=0.12)
    at, low, high = interval
    for bound in (low, high):
        ax.plot(at, bound, color=color, lw=0.8)
    if truth is not None:
        ax.plot(*truth, **_DASHES)
    ax.set_ylabel("difference")
    ax.margins(x=0.01)


def is_thin(values: np.ndarray, half: np.ndarray) -> bool:
    """Tell whether intervals are hardly wider than the line of their values.

    Examples
    --------
    >>> is_thin(np.linspace(0, 1, 50), np.full(50, 0.004))
    True
    """
    known = np.isfinite(values) & np.isfinite(half)
    if not known.any():
        return False
    return bool(2 * np.median(half[known]) < _THIN * np.ptp(values[known]))


def two_panels() -> tuple[Axes, Axes]:
    """Return the Axes of a new figure: a large one, and a low one below that shares its x."""
    import matplotlib.pyplot as plt

    figure = plt.figure(figsize=(6.4, 5.2), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    return above, below


def with_gaps(
    x: np.ndarray, *curves: np.ndarray, good: np.ndarray | None = None
) -> tuple[np.ndarray, ...]:
    """Return ``x`` and the curves with NaN at bad bands, and one inserted where ``x`` jumps.

    A jump is a step of more than two and a half times the usual one around it (two detectors may
    sample differently), or one backwards (where they overlap): a line across it would show values
    that nobody measured.

    Examples
    --------
    >>> nm = np.array([900.0, 910, 920, 930, 915, 945, 975, 1005])
    >>> with_gaps(nm, np.ones(8))[1]
    array([ 1.,  1.,  1.,  1., nan,  1.,  1.,  1.,  1.])
    """
    x = np.asarray(x, dtype=np.float64)
    rows = [np.array(curve, dtype=np.float64) for curve in curves]
    if good is not None:
        for curve in rows:
            curve[~good] = np.nan
    steps = np.diff(x)
    middle = np.median(steps) if steps.size else 0.0
    if middle == 0:
        return x, *rows
    forward = steps / middle
    jumps = np.flatnonzero((forward > _GAP * _usual(forward)) | (forward <= 0)) + 1
    return tuple(np.insert(values, jumps, np.nan) for values in (x, *rows))


def _usual(steps: np.ndarray) -> np.ndarray:
    """Return for every step the usual one: the median of three before or after it, the larger."""
    padded = np.pad(np.where(steps > 0, steps, np.nan), 3, constant_values=np.nan)
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", RuntimeWarning
        )  # none before the first, none after the last
        sides = np.nanmedian(sliding_window_view(padded, 3), axis=1)
        usual = np.fmax(sides[: len(steps)], sides[4 : 4 + len(steps)])
    return np.where(np.isfinite(usual), usual, np.inf)


@styled
def noise_spectrum(source: Result, *, ax: Axes | None = None) -> Axes:
    """Draw the noise of every band, beside the median sigma of the estimate.

    Parameters
    ----------
    source
        A result.
    ax
        Axes to draw on.

    Examples
    --------
    >>> import numpy as np
    >>> from sigmacube import plots
    >>> from sigmacube.result import DenoisedCube
    >>> cube, windows = np.full((4, 5, 3), 0.25), np.ones((1, 1))
    >>> result = DenoisedCube(cube, std=cube / 5, ranks=windows, noise=0.1, residual_ratio=windows)
    >>> [line.get_label() for line in plots.noise_spectrum(result).lines]
    ['noise of the observation', 'σ of the estimate (median)']
    """
    std = std_of(source)
    bands = std.shape[2]
    (x, x_label), good = band_axis(wavelengths_of(source), bands), good_bands_of(source)
    noise = np.broadcast_to(std_of_noise(source.noise), bands)
    flat = std.reshape(-1, bands)
    kept = np.isfinite(flat).any(axis=0)
    median = np.full(bands, np.nan)
    median[kept] = np.nanmedian(flat[:, kept], axis=0)
    ax = new_axes() if ax is None else ax
    ax.plot(*with_gaps(x, noise, good=good), color=VERMILION, label="noise of the observation")
    ax.plot(*with_gaps(x, median, good=good), color=BLUE, label="σ of the estimate (median)")
    ax.set_xlabel(x_label)
    ax.set_ylabel(f"standard deviation {quantity(source, brackets=True)}".strip())
    ax.set_title("Noise before and after")
    ax.set_ylim(bottom=0)
    ax.margins(x=0.01)
    ax.legend(loc="best")
    return ax
