"""Pictures of a scene, its sigma, and how far that sigma can be trusted.

Every function takes a result, a `Cube` or plain arrays, draws on ``ax`` (a new figure when None)
and returns the Axes. Importing this module imports matplotlib: callers do so when they draw.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import wraps
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol

import matplotlib as mpl
import numpy as np
from matplotlib.colors import BoundaryNorm, Normalize
from matplotlib.ticker import MaxNLocator, PercentFormatter

from sigmacube.cube import Cube

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.image import AxesImage

__all__ = [
    "style",
    "stretch",
    "coverage",
    "overview",
    "false_color",
    "sigma_map",
    "sigma_ratio_map",
    "rank_map",
    "residual_map",
    "rejected_map",
    "error_map",
    "spectrum",
    "noise_spectrum",
    "calibration",
    "qq",
]

# Okabe and Ito's palette: told apart with any common colour vision, and in grey.
BLUE, VERMILION, GREEN, SKY, GREY = "#0072B2", "#D55E00", "#009E73", "#56B4E9", "#8C8C8C"
INK = "#222222"

COLOR_INFRARED = (850.0, 660.0, 560.0)
"""Wavelengths (nm) shown as red, green, blue: plants red, water black, as in aerial photographs."""

LEVELS = (0.50, 0.68, 0.90, 0.95, 0.99)
"""Nominal levels at which coverage is reported."""

# A step of the wavelengths this many times the usual one is a gap, not a coarse sampling.
_GAP = 2.5

_STYLE: dict[Any, Any] = {
    "figure.dpi": 110,
    "savefig.dpi": 200,
    "font.size": 10.5,
    "axes.titlesize": 11.5,
    "axes.titleweight": "bold",
    "axes.titlepad": 6,
    "axes.labelsize": 10.5,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.formatter.useoffset": False,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.labelsize": 9.5,
    "ytick.labelsize": 9.5,
    "lines.linewidth": 1.6,
    "legend.frameon": False,
    "legend.fontsize": 9.5,
    "image.interpolation": "nearest",
    "image.cmap": "viridis",
    "mathtext.default": "regular",
}


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


def style() -> AbstractContextManager[None]:
    """Return the context in which the package draws: fonts, lines and frames, set in one place.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> from sigmacube import plots
    >>> with plots.style():
    ...     figure, axes = plt.subplots(1, 2, layout="constrained")
    """
    return mpl.rc_context(_STYLE)


_Args = ParamSpec("_Args")


def _styled(draw: Callable[_Args, Axes]) -> Callable[_Args, Axes]:
    """Draw in the package's style on a new figure, and in the caller's on Axes of their own."""

    @wraps(draw)
    def styled(*args: _Args.args, **kwargs: _Args.kwargs) -> Axes:
        if kwargs.get("ax") is not None:
            return draw(*args, **kwargs)
        with style():
            return draw(*args, **kwargs)

    return styled


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


def coverage(z: np.ndarray, levels: Sequence[float] = LEVELS) -> dict[float, float]:
    """Return the share of standardised errors inside the central interval of every level.

    Parameters
    ----------
    z
        (estimate - truth) / std, any shape; NaN does not count.
    levels
        Nominal levels between 0 and 1.

    Examples
    --------
    >>> import numpy as np
    >>> from sigmacube import plots
    >>> z = np.random.default_rng(0).standard_normal(100_000)
    >>> {level: round(share, 2) for level, share in plots.coverage(z).items()}
    {0.5: 0.5, 0.68: 0.68, 0.9: 0.9, 0.95: 0.95, 0.99: 0.99}
    """
    size = np.abs(np.asarray(z)[np.isfinite(z)])
    return {level: float(np.mean(size <= _half_width(level))) for level in levels}


def overview(source: Result, *, observed: Cube | np.ndarray | None = None) -> np.ndarray:
    """Draw the scene (before and after, where the input is given), its sigma, and the ranks.

    Parameters
    ----------
    source
        A result.
    observed
        The noisy input, as a cube or an array.

    Returns
    -------
    ndarray
        The Axes, in a row.

    Examples
    --------
    >>> import sigmacube as sc
    >>> noisy = sc.synthetic.add_noise(sc.synthetic.scene((24, 30, 40), rng=1), 0.05, rng=2)
    >>> axes = sc.denoise(noisy, 0.05, window=12).plot(observed=noisy)
    >>> [ax.get_title() for ax in axes]
    ['Observed', 'Denoised', 'σ, rms over bands', 'Rank of the windows']
    """
    import matplotlib.pyplot as plt

    draw: list[Callable[[Axes], Axes]] = []
    limits = stretch_limits(_shown(source))
    if observed is not None:
        before = np.asarray(observed.values if isinstance(observed, Cube) else observed)
        nm = source.wavelengths
        draw.append(lambda ax: false_color(before, wavelengths=nm, limits=limits, ax=ax))
    draw.append(lambda ax: false_color(source, limits=limits, ax=ax))
    titles = ["Denoised"] if observed is None else ["Observed", "Denoised"]
    if source.std is not None:
        draw.append(lambda ax: sigma_map(source, ax=ax))
    draw.append(lambda ax: rank_map(source, ax=ax))
    rows, cols = source.estimate.shape[:2]
    with style():
        size = (3.5 * len(draw), min(max(3.0 * rows / cols, 1.6), 5.5) + 0.6)
        figure = plt.figure(figsize=size, layout="constrained")
        axes = figure.subplots(1, len(draw), squeeze=False)[0]
        for ax, function in zip(axes, draw, strict=True):
            function(ax)
        for ax, title in zip(axes, titles, strict=False):
            ax.set_title(title)
        for ax in axes[1:]:
            ax.set_ylabel("")
    return axes


@_styled
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
    values, wavelengths, good = _open(source, "estimate", wavelengths)
    chosen = color_bands(usable_bands(values, good), wavelengths, colors)
    if wavelengths is None:
        title = f"R {chosen[0]}, G {chosen[1]}, B {chosen[2]} (bands)"
    else:
        red, green, blue = (f"{wavelengths[band]:.0f}" for band in chosen)
        title = f"R {red}, G {green}, B {blue} nm"
    picture = stretch(values[:, :, chosen], percentiles=percentiles, limits=limits)
    opaque = np.isfinite(picture).all(axis=2)
    # No value is drawn as the grey that the maps use for it.
    picture = np.where(opaque[..., None], picture, mpl.colors.to_rgb("0.85"))
    ax = _image_axes(ax)
    ax.imshow(picture)
    ax.set_title(title)
    return ax


@_styled
def sigma_map(
    source: Result | np.ndarray,
    *,
    wavelength: float | None = None,
    band: int | None = None,
    vmin: float | None = None,
    vmax: float | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Map the standard deviation of the estimate: at one band, or its rms over all.

    Parameters
    ----------
    source
        A result, or a (row, col, band) or (row, col) array of standard deviations.
    wavelength, band
        The band nearest to a wavelength (nm), or a band by its index.
    vmin, vmax
        Limits of the colours; by default percentiles 1 and 99.
    ax
        Axes to draw on.

    Examples
    --------
    >>> import numpy as np
    >>> from sigmacube import plots
    >>> plots.sigma_map(np.full((4, 5, 3), 0.01), band=1).get_title()
    'σ, band 1'
    """
    values, where = _slice(source, "std", wavelength, band)
    ax = _map(values, ax, vmin=vmin, vmax=vmax)
    ax.set_title(f"σ{where}")
    _colorbar_label(ax, f"σ {_quantity(source, brackets=True)}".strip())
    return ax


@_styled
def sigma_ratio_map(
    source: Result,
    *,
    wavelength: float | None = None,
    band: int | None = None,
    vmin: float | None = None,
    vmax: float | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Map sigma relative to the noise: how much of the noise is left in the estimate.

    Parameters
    ----------
    source
        A result.
    wavelength, band, vmin, vmax, ax
        See `sigma_map`.

    Examples
    --------
    >>> import numpy as np
    >>> from sigmacube import plots
    >>> from sigmacube.result import DenoisedCube
    >>> cube, windows = np.full((4, 5, 3), 0.25), np.ones((1, 1))
    >>> result = DenoisedCube(cube, std=cube / 5, ranks=windows, noise=0.1, residual_ratio=windows)
    >>> float(plots.sigma_ratio_map(result).images[0].get_array().max())
    0.5
    """
    ratio = _std(source) / _noise_std(source)
    values, where = _slice_array(ratio, _wavelengths(source), _good(source), wavelength, band)
    ax = _map(values, ax, vmin=vmin, vmax=vmax)
    ax.set_title(f"σ relative to the noise{where}")
    _colorbar_label(ax, "σ / noise σ")
    return ax


@_styled
def rank_map(source: Result | np.ndarray, *, ax: Axes | None = None) -> Axes:
    """Map the rank of the windows: how many spectra it takes to describe the place.

    Parameters
    ----------
    source
        A result, whose windows are drawn where they lie in the scene (each pixel shows the window
        centred nearest to it), or a (window rows, window cols) array of ranks.
    ax
        Axes to draw on.

    Examples
    --------
    >>> import numpy as np
    >>> from sigmacube import plots
    >>> ax = plots.rank_map(np.array([[2, 3, 3], [2, 4, 3]]))
    >>> ax.get_title()
    'Rank of the windows'
    """
    ranks = _window_map(source, "ranks", np.nanmax)
    low, high = (int(limit) for limit in (np.nanmin(ranks), np.nanmax(ranks)))
    edges = np.arange(low, high + 2) - 0.5
    colors = mpl.colormaps["cividis"].resampled(len(edges) - 1) if high > low else "cividis"
    norm = BoundaryNorm(edges, max(len(edges) - 1, 2) if high > low else 256)
    ax = _map(ranks, ax, cmap=colors, norm=norm)
    ax.set_title("Rank of the windows")
    bar = _colorbar_label(ax, "rank")
    every = -(-(high - low + 1) // 8)
    bar.set_ticks(np.arange(low, high + 1, every))
    bar.ax.tick_params(length=0)
    return ax


@_styled
def residual_map(source: Result | np.ndarray, *, ax: Axes | None = None) -> Axes:
    """Map the residual variance over what the noise predicts: 1 where the model fits.

    Above 1 (red) the window holds more than noise that the low-rank part leaves out; there sigma
    misses a bias. Below 1 (blue) the noise was taken too large.

    Parameters
    ----------
    source
        A result, or a (window rows, window cols) array; see `rank_map`.
    ax
        Axes to draw on.

    Examples
    --------
    >>> import numpy as np
    >>> from sigmacube import plots
    >>> plots.residual_map(np.array([[1.0, 1.02, 0.99]])).get_title()
    'Residual / noise variance'
    """
    ratio = _window_map(source, "residual_ratio", np.nanmax)
    # Symmetric about 1, and never so narrow that sampling scatter looks like a misfit.
    reach = max(_percentile(np.abs(ratio - 1), 99), 0.05)
    ax = _map(ratio, ax, cmap="RdBu_r", vmin=1 - reach, vmax=1 + reach)
    ax.set_title("Residual / noise variance")
    _colorbar_label(ax, "observed / expected variance")
    return ax


@_styled
def rejected_map(source: Result | np.ndarray, *, ax: Axes | None = None) -> Axes:
    """Map the share of every pixel's bands that a robust solver set aside.

    Parameters
    ----------
    source
        A result, or a boolean (row, col, band) array.
    ax
        Axes to draw on.

    Examples
    --------
    >>> import numpy as np
    >>> from sigmacube import plots
    >>> rejected = np.zeros((4, 5, 10), dtype=bool)
    >>> rejected[1, 2, :3] = True
    >>> float(plots.rejected_map(rejected).images[0].get_array().max())
    0.3
    """
    rejected = source if isinstance(source, np.ndarray) else source.rejected
    if rejected is None:
        raise ValueError(
            "Invalid result without rejected elements. They come from robust solvers, not "
            'from solver="svd".'
        )
    share = np.mean(rejected, axis=2)
    top = max(_percentile(share, 99), 0.01)
    ax = _map(share, ax, cmap="magma", vmin=0.0, vmax=top)
    ax.set_title("Share of bands rejected")
    bar = _colorbar_label(ax, "share of bands")
    bar.ax.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0 if top >= 0.05 else 1))
    return ax


@_styled
def error_map(
    source: Result | np.ndarray,
    truth: Cube | np.ndarray | None = None,
    *,
    wavelength: float | None = None,
    band: int | None = None,
    limit: float = 4.0,
    ax: Axes | None = None,
) -> Axes:
    """Map the actual error in units of sigma, at one band.

    With an honest sigma this is featureless: noise of standard deviation 1 everywhere, borders and
    fields alike.

    Parameters
    ----------
    source
        A result, or the (row, col, band) or (row, col) standardised errors themselves.
    truth
        The noise-free scene; needed with a result.
    wavelength, band
        See `sigma_map`; by default the middle band.
    limit
        Colours span -limit..limit.
    ax
        Axes to draw on.

    Examples
    --------
    >>> import numpy as np
    >>> from sigmacube import plots
    >>> z = np.random.default_rng(0).standard_normal((30, 40, 5))
    >>> plots.error_map(z, band=2).get_title()
    'Error / σ, band 2'
    """
    z = source if isinstance(source, np.ndarray) else standard_errors(source, truth)
    if z.ndim == 3 and wavelength is None and band is None:
        band = z.shape[2] // 2
    values, where = _slice_array(z, _wavelengths(source), None, wavelength, band)
    ax = _map(values, ax, cmap="RdBu_r", vmin=-limit, vmax=limit)
    ax.set_title(f"Error / σ{where}")
    _colorbar_label(ax, "(estimate − truth) / σ")
    return ax


def standard_errors(result: Result, truth: Cube | np.ndarray | None) -> np.ndarray:
    """Return (estimate - truth) / std; NaN where there is no sigma or where it is zero."""
    if truth is None:
        raise ValueError("Invalid truth None. An error needs the noise-free scene.")
    exact = np.asarray(truth.values if isinstance(truth, Cube) else truth)
    std = _std(result)
    if exact.shape != std.shape:
        raise ValueError(
            f"Invalid truth of shape {exact.shape}. It must be that of the estimate, {std.shape}."
        )
    return np.divide(result.estimate - exact, std, out=np.full(std.shape, np.nan), where=std > 0)


@_styled
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
) -> Axes:
    """Draw the spectrum of one pixel with the interval of every band.

    Lines and the shaded interval break at bad bands, at bands without a value, and where the
    wavelengths jump.

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
    values = _pixel(source, "estimate", row, col)
    if std is None and not isinstance(source, Cube | np.ndarray) and source.std is not None:
        std = _pixel(source, "std", row, col)
    wavelengths = _wavelengths(source) if wavelengths is None else wavelengths
    good = _good(source) if good_bands is None else np.asarray(good_bands, dtype=bool)
    bands = len(values)
    x = np.arange(bands, dtype=float) if wavelengths is None else np.asarray(wavelengths, float)
    if len(x) != bands:
        raise ValueError(f"Invalid wavelengths: {len(x)} given for {bands} bands.")
    ax = _new_axes() if ax is None else ax

    if observed is not None:
        dots = _pixel(observed, "estimate", row, col)
        ax.plot(*with_gaps(x, dots, good=good), ".", color=GREY, ms=3.2, label="observed", zorder=1)
    if std is not None:
        half = _half_width(level) * np.asarray(std)
        at, low, high = with_gaps(x, values - half, values + half, good=good)
        name = f"{_percent(level)} interval"
        # One entry in the legend, however many spectra share the Axes.
        known = ax.get_legend_handles_labels()[1]
        shade: dict[str, Any] = {"label": "_" if name in known else name, "lw": 0, "zorder": 2}
        ax.fill_between(at, low, high, color=color, alpha=0.30, **shade)
    ax.plot(*with_gaps(x, values, good=good), color=color, label=label, zorder=4)
    if truth is not None:
        line = _pixel(truth, "estimate", row, col)
        dashes: dict[str, Any] = {"color": INK, "lw": 1.0, "ls": (0, (4, 2)), "label": "truth"}
        ax.plot(*with_gaps(x, line, good=good), zorder=5, **dashes)
    ax.set_xlabel("band" if wavelengths is None else "wavelength (nm)")
    ax.set_ylabel(_quantity(source))
    if row is not None:
        ax.set_title(f"Pixel ({row}, {col})")
    ax.margins(x=0.01)
    ax.legend(loc="best")
    return ax


def with_gaps(
    x: np.ndarray, *curves: np.ndarray, good: np.ndarray | None = None
) -> tuple[np.ndarray, ...]:
    """Return ``x`` and the curves with NaN at bad bands, and one inserted where ``x`` jumps.

    A jump is a step of more than two and a half times the median one, or one backwards (where two
    detectors of a sensor overlap): a line across it would show values that nobody measured.
    """
    x = np.asarray(x, dtype=np.float64)
    rows = [np.array(curve, dtype=np.float64) for curve in curves]
    if good is not None:
        for curve in rows:
            curve[~good] = np.nan
    steps = np.diff(x)
    usual = np.median(steps) if steps.size else 0.0
    if usual == 0:
        return x, *rows
    jumps = np.flatnonzero((steps / usual > _GAP) | (steps / usual <= 0)) + 1
    return tuple(np.insert(values, jumps, np.nan) for values in (x, *rows))


@_styled
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
    std = _std(source)
    bands = std.shape[2]
    wavelengths, good = _wavelengths(source), _good(source)
    x = np.arange(bands, dtype=float) if wavelengths is None else np.asarray(wavelengths, float)
    noise = np.broadcast_to(_noise_std(source), bands)
    flat = std.reshape(-1, bands)
    kept = np.isfinite(flat).any(axis=0)
    median = np.full(bands, np.nan)
    median[kept] = np.nanmedian(flat[:, kept], axis=0)
    ax = _new_axes() if ax is None else ax
    ax.plot(*with_gaps(x, noise, good=good), color=VERMILION, label="noise of the observation")
    ax.plot(*with_gaps(x, median, good=good), color=BLUE, label="σ of the estimate (median)")
    ax.set_xlabel("band" if wavelengths is None else "wavelength (nm)")
    ax.set_ylabel(f"standard deviation {_quantity(source, brackets=True)}".strip())
    ax.set_title("Noise before and after")
    ax.set_ylim(bottom=0)
    ax.margins(x=0.01)
    ax.legend(loc="best")
    return ax


@_styled
def calibration(
    source: Mapping[float, float] | np.ndarray,
    *,
    samples: float | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw achieved against nominal coverage, and the difference in an inset.

    Parameters
    ----------
    source
        Achieved coverage by nominal level, or standardised errors from which it is computed.
    samples
        Number of independent values behind it: the shaded band is two standard errors of a
        proportion to either side. Errors of neighbouring elements are correlated, so this is not
        the number of elements; the degrees of freedom of the estimate, the sum of (sigma / noise)
        squared, are a fair count. None draws no band.
    ax
        Axes to draw on.

    Examples
    --------
    >>> from sigmacube import plots
    >>> ax = plots.calibration({0.5: 0.501, 0.68: 0.678, 0.95: 0.949}, samples=20_000)
    >>> ax.get_xlabel(), ax.get_ylabel()
    ('claimed coverage (%)', 'achieved coverage (%)')
    """
    achieved = source if isinstance(source, Mapping) else coverage(np.asarray(source))
    if not achieved:
        raise ValueError("Invalid coverage: no level given. There must be at least one.")
    levels = np.array(sorted(achieved))
    shares = np.array([achieved[level] for level in levels])
    ax = _new_axes() if ax is None else ax
    ax.plot([0, 100], [0, 100], color=GREY, lw=1.0, zorder=1)
    ax.plot(100 * levels, 100 * shares, "o", ms=7, color=BLUE, mec="white", mew=0.8, zorder=3)
    for level, share in zip(levels, shares, strict=True):
        # The topmost points crowd: labels to the left of the line, the inset to its right.
        ax.annotate(
            f"{100 * share:.1f}", (100 * level, 100 * share), xytext=(-9, 0), fontsize=9.5,
            textcoords="offset points", ha="right", va="center",
        )  # fmt: skip
    low = max(min(100 * min(levels.min(), shares.min()) - 14, 36.0), 0.0)
    ax.set(xlim=(low, 103), ylim=(low, 103), aspect="equal")
    ax.set_xlabel("claimed coverage (%)")
    ax.set_ylabel("achieved coverage (%)")
    ax.set_title("Calibration")
    _calibration_inset(ax, levels, shares, samples)
    return ax


def _calibration_inset(
    ax: Axes, levels: np.ndarray, shares: np.ndarray, samples: float | None
) -> None:
    """Show achieved minus claimed coverage: on the large axes a good result hides it."""
    inset = ax.inset_axes((0.60, 0.14, 0.39, 0.26))
    grid = np.linspace(0.01, 0.999, 200)
    gap = 100 * (shares - levels)
    reach = 1.3 * np.abs(gap).max()
    if samples is not None:
        error = 200 * np.sqrt(grid * (1 - grid) / samples)
        inset.fill_between(100 * grid, -error, error, color=GREY, alpha=0.30, lw=0)
        reach = max(reach, 1.6 * error.max())
    inset.axhline(0, color=GREY, lw=1.0)
    inset.plot(100 * levels, gap, "o", ms=4.5, color=BLUE, mec="white", mew=0.5)
    inset.set(xlim=(min(45, 100 * levels.min() - 5), 101), ylim=(-max(reach, 0.1), max(reach, 0.1)))
    inset.set_title("difference (points)", fontsize=8.5, weight="normal", pad=3)
    inset.tick_params(labelsize=8)
    inset.yaxis.set_major_locator(MaxNLocator(3, symmetric=True))


@_styled
def qq(z: np.ndarray, *, samples: float | None = None, ax: Axes | None = None) -> Axes:
    """Draw quantiles of the standardised errors against those of the normal distribution.

    Parameters
    ----------
    z
        (estimate - truth) / std, any shape; NaN does not count.
    samples
        Number of independent values, see `calibration`; by default the number of values. The
        shaded band holds each quantile with 95 % probability.
    ax
        Axes to draw on.

    Examples
    --------
    >>> import numpy as np
    >>> from sigmacube import plots
    >>> ax = plots.qq(np.random.default_rng(0).standard_normal(2000))
    >>> ax.get_ylabel()
    'quantile of error / σ'
    """
    z = np.asarray(z, dtype=np.float64)
    z = z[np.isfinite(z)]
    if z.size < 2:
        raise ValueError(f"Invalid errors: {z.size} finite values. There must be at least 2.")
    # Enough points for a smooth line; evenly spaced in z, so that the tails get theirs.
    normal = NormalDist()
    edge = normal.inv_cdf(1 - 0.5 / z.size)
    theory = np.linspace(-edge, edge, min(z.size, 161))
    share = np.array([normal.cdf(q) for q in theory])
    density = np.array([normal.pdf(q) for q in theory])
    error = 1.96 * np.sqrt(share * (1 - share) / (samples or z.size)) / density
    ax = _new_axes() if ax is None else ax
    ax.fill_between(theory, theory - error, theory + error, color=GREY, alpha=0.30, lw=0)
    ax.plot([-edge, edge], [-edge, edge], color=GREY, lw=1.0)
    ax.plot(theory, np.quantile(z, share), "o", ms=3.2, color=BLUE, mew=0)
    # A few wild values must not shrink the rest to a dot: they are counted instead.
    reach = 1.05 * min(max(edge, float(np.abs(z).max())), 1.6 * edge)
    beyond = int(np.sum(np.abs(z) > reach))
    if beyond:
        text = f"{beyond} of {z.size} values\nbeyond ±{reach:.1f}"
        ax.text(0.97, 0.03, text, transform=ax.transAxes, ha="right", va="bottom", fontsize=9)
    ax.set(aspect="equal", xlim=(-reach, reach), ylim=(-reach, reach))
    ax.yaxis.set_major_locator(ax.xaxis.get_major_locator())
    ax.set_xlabel("quantile of the normal distribution")
    ax.set_ylabel("quantile of error / σ")
    ax.set_title("Q-Q plot")
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
    return [int(bands[_nearest(wavelengths[bands], nm)]) for nm in colors]


def usable_bands(values: np.ndarray, good: np.ndarray | None) -> np.ndarray:
    """Return which bands are good and have values, judged on a sample of the pixels."""
    rows, cols, bands = values.shape
    sample = values[:: max(1, rows // 32), :: max(1, cols // 32)]
    filled = np.isfinite(sample).any(axis=(0, 1))
    return filled & good if good is not None and len(good) == bands else filled


def _shown(source: Result) -> np.ndarray:
    """Return the three bands of the estimate that `false_color` shows."""
    values, wavelengths, good = _open(source, "estimate")
    return values[:, :, color_bands(usable_bands(values, good), wavelengths)]


def _half_width(level: float) -> float:
    """Return how many standard deviations the central interval at ``level`` reaches."""
    if not 0 < level < 1:
        raise ValueError(f"Invalid level {level}. It must lie between 0 and 1.")
    return NormalDist().inv_cdf((1 + level) / 2)


def _percent(level: float) -> str:
    return f"{100 * level:g} %"


def _open(
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
    wavelengths = _wavelengths(source) if wavelengths is None else np.asarray(wavelengths)
    return np.asarray(values), wavelengths, _good(source)


def _std(source: Result) -> np.ndarray:
    return _open(source, "std")[0]


def _wavelengths(source: object) -> np.ndarray | None:
    found = getattr(source, "wavelengths", None)
    return None if found is None else np.asarray(found, dtype=np.float64)


def _good(source: object) -> np.ndarray | None:
    found = getattr(source, "metadata", {}).get("good_bands")
    return None if found is None else np.asarray(found, dtype=bool)


def _noise_std(source: Result) -> np.ndarray:
    """Return the noise's standard deviation: scalar or per band."""
    noise = np.asarray(source.noise, dtype=np.float64)
    return np.sqrt(np.diag(noise)) if noise.ndim == 2 else noise


def _quantity(source: object, *, brackets: bool = False) -> str:
    """Name what is measured and its unit: 'reflectance', 'radiance (W m-2 sr-1 nm-1)'."""
    metadata = getattr(source, "metadata", {})
    name, units = str(metadata.get("name") or ""), str(metadata.get("units") or "")
    unit = "" if units in ("", "1") else units
    if brackets:
        return f"({unit or name})" if unit or name else ""
    return f"{name or 'value'} ({unit})" if unit else name or "value"


def _nearest(wavelengths: np.ndarray, wavelength: float) -> int:
    return int(np.argmin(np.abs(np.asarray(wavelengths) - wavelength)))


def _pixel(source: Any, name: str, row: int | None, col: int | None) -> np.ndarray:
    """Return one spectrum of a source, or the source itself when it is one."""
    values = _open(source, name)[0]
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


def _slice(
    source: Result | np.ndarray, name: str, wavelength: float | None, band: int | None
) -> tuple[np.ndarray, str]:
    values, wavelengths, good = _open(source, name)
    return _slice_array(values, wavelengths, good, wavelength, band)


def _slice_array(
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
        band = _nearest(wavelengths, wavelength)
    if band is None:
        squares = np.square(values if good is None else values[:, :, good], dtype=np.float64)
        count = np.isfinite(squares).sum(axis=2)
        total = np.where(np.isfinite(squares), squares, 0).sum(axis=2)
        mean = np.divide(total, count, out=np.full(total.shape, np.nan), where=count > 0)
        return np.sqrt(mean), ", rms over bands"
    if not -bands <= band < bands:
        raise ValueError(f"Invalid band {band}. It must lie between 0 and {bands - 1}.")
    named = f"band {band}" if wavelengths is None else f"{wavelengths[band]:.0f} nm"
    return values[:, :, band], f", {named}"


def _window_map(source: Result | np.ndarray, name: str, pool: Any) -> np.ndarray:
    """Return a value per pixel (result) or per window (array); windows that cut bands pooled."""
    values = np.asarray(source if isinstance(source, np.ndarray) else getattr(source, name))
    values = values.astype(np.float64)
    values = pool(values, axis=2) if values.ndim == 3 else values
    if isinstance(source, np.ndarray):
        return values
    window, step = (source.settings.get(key) for key in ("window", "step"))
    if window is None or step is None:
        return values
    chosen = []
    for axis in range(2):
        side, stride = (int(v if np.ndim(v) == 0 else v[axis]) for v in (window, step))
        size, count = source.estimate.shape[axis], values.shape[axis]
        centres = np.minimum(np.arange(count) * stride, size - side) + (side - 1) / 2
        chosen.append(np.abs(np.arange(size)[:, None] - centres).argmin(axis=1))
    return values[np.ix_(*chosen)]


def _percentile(values: np.ndarray, share: float) -> float:
    finite = values[np.isfinite(values)]
    return float(np.percentile(finite, share)) if finite.size else 0.0


def _new_axes() -> Axes:
    import matplotlib.pyplot as plt

    return plt.subplots(figsize=(6.4, 4.4), layout="constrained")[1]


def _image_axes(ax: Axes | None) -> Axes:
    """Frame a picture: all four sides, few ticks, pixels as units."""
    ax = _new_axes() if ax is None else ax
    ax.spines[:].set(visible=True, linewidth=0.6)
    ax.set_xlabel("column")
    ax.set_ylabel("row")
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(MaxNLocator(5, integer=True, steps=[1, 2, 5, 10]))
    return ax


def _map(
    values: np.ndarray,
    ax: Axes | None,
    *,
    cmap: Any = "viridis",
    vmin: float | None = None,
    vmax: float | None = None,
    norm: Normalize | None = None,
) -> Axes:
    """Draw an image with a colourbar as high as itself; no value is light grey."""
    colors = mpl.colormaps[cmap] if isinstance(cmap, str) else cmap
    colors = colors.with_extremes(bad="0.85")
    ax = _image_axes(ax)
    if norm is None:
        low = _percentile(values, 1) if vmin is None else vmin
        high = _percentile(values, 99) if vmax is None else vmax
        # A constant map still needs a range, or its colourbar has no ticks.
        norm = Normalize(low, high if high > low else low + max(abs(low), 1.0) * 1e-3)
    image = ax.imshow(values, cmap=colors, norm=norm)
    # An inset keeps the axes' own height, whatever the figure's layout; its width is a share of
    # the axes' width, so a narrow scene needs a larger one.
    widen = max(1.0, values.shape[0] / values.shape[1])
    bar_axes = ax.inset_axes((1 + 0.03 * widen, 0.0, 0.04 * widen, 1.0))
    ax.figure.colorbar(image, cax=bar_axes, extend=_extend(values, norm))
    bar_axes.spines[:].set_linewidth(0.6)
    return ax


def _extend(values: np.ndarray, norm: Normalize) -> Any:
    """Say on which sides of the colour scale values lie."""
    finite = values[np.isfinite(values)]
    if isinstance(norm, BoundaryNorm) or finite.size == 0:
        return "neither"
    below, above = finite.min() < (norm.vmin or 0.0), finite.max() > (norm.vmax or 0.0)
    return {(False, False): "neither", (True, False): "min", (False, True): "max"}.get(
        (bool(below), bool(above)), "both"
    )


def _colorbar_label(ax: Axes, text: str) -> Any:
    """Label the colourbar of the image on ``ax``, and return it."""
    image: AxesImage = ax.images[0]
    bar = image.colorbar
    if bar is None:
        raise ValueError("Invalid axes: its image has no colourbar.")
    bar.set_label(text)
    return bar
