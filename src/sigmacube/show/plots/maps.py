"""Maps of a scene: sigma, rank, residual, rejected elements, actual errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import matplotlib as mpl
import numpy as np
from matplotlib.colors import BoundaryNorm
from matplotlib.ticker import PercentFormatter

from sigmacube.core.whitening import std_of_noise
from sigmacube.cube import Cube
from sigmacube.show.plots.color import false_color, shown_colors, stretch_limits
from sigmacube.show.plots.sources import (
    Result,
    good_bands_of,
    image_of,
    one_image,
    quantity,
    std_of,
    wavelengths_of,
    window_map,
)
from sigmacube.show.plots.theme import colorbar_of, draw_map, percentile, style, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes


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
        The Axes, in the order of reading; four are drawn as two rows.

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
    limits = stretch_limits(shown_colors(source))
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
        lines = 2 if len(draw) == 4 else 1
        across = len(draw) // lines
        size = (3.7 * across, (min(max(3.0 * rows / cols, 1.6), 5.5) + 0.6) * lines)
        figure = plt.figure(figsize=size, layout="constrained")
        axes: np.ndarray = figure.subplots(lines, across, squeeze=False).ravel()
        for ax, function in zip(axes, draw, strict=True):
            function(ax)
        for ax, title in zip(axes, titles, strict=False):
            ax.set_title(title)
        for number, ax in enumerate(axes):
            if number % across:
                ax.set_ylabel("")
            if number < len(axes) - across:
                ax.set_xlabel("")
    return axes


@styled
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
    values, where = image_of(source, "std", wavelength, band)
    label = f"σ {quantity(source, brackets=True)}".strip()
    return draw_map(values, ax, f"σ{where}", label, vmin=vmin, vmax=vmax)


@styled
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
    ratio = std_of(source) / std_of_noise(source.noise)
    values, where = one_image(
        ratio, wavelengths_of(source), good_bands_of(source), wavelength, band
    )
    title = f"σ relative to the noise{where}"
    return draw_map(values, ax, title, "σ / noise σ", vmin=vmin, vmax=vmax)


@styled
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
    ranks = window_map(source, "ranks")
    low, high = (int(limit) for limit in (np.nanmin(ranks), np.nanmax(ranks)))
    edges = np.arange(low, high + 2) - 0.5
    colors = mpl.colormaps["cividis"].resampled(len(edges) - 1) if high > low else "cividis"
    norm = BoundaryNorm(edges, max(len(edges) - 1, 2) if high > low else 256)
    ax = draw_map(ranks, ax, "Rank of the windows", "rank", cmap=colors, norm=norm)
    bar = colorbar_of(ax)
    every = -(-(high - low + 1) // 8)
    bar.set_ticks(np.arange(low, high + 1, every))
    bar.ax.tick_params(length=0)
    return ax


@styled
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
    ratio = window_map(source, "residual_ratio")
    # Symmetric about 1, and never so narrow that sampling scatter looks like a misfit.
    reach = max(percentile(np.abs(ratio - 1), 99), 0.05)
    title, label = "Residual / noise variance", "observed / expected variance"
    return draw_map(ratio, ax, title, label, cmap="RdBu_r", vmin=1 - reach, vmax=1 + reach)


@styled
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
    top = max(percentile(share, 99), 0.01)
    title, label = "Share of bands rejected", "share of bands"
    ax = draw_map(share, ax, title, label, cmap="magma", vmin=0.0, vmax=top)
    percent = PercentFormatter(1.0, decimals=0 if top >= 0.05 else 1)
    colorbar_of(ax).ax.yaxis.set_major_formatter(percent)
    return ax


@styled
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
    values, where = one_image(z, wavelengths_of(source), None, wavelength, band)
    title, label = f"Error / σ{where}", "(estimate − truth) / σ"
    return draw_map(values, ax, title, label, cmap="RdBu_r", vmin=-limit, vmax=limit)


def standard_errors(result: Result, truth: Cube | np.ndarray | None) -> np.ndarray:
    """Return (estimate - truth) / std; NaN where there is no sigma or where it is zero."""
    if truth is None:
        raise ValueError("Invalid truth None. An error needs the noise-free scene.")
    exact = np.asarray(truth.values if isinstance(truth, Cube) else truth)
    std = std_of(result)
    if exact.shape != std.shape:
        raise ValueError(
            f"Invalid truth of shape {exact.shape}. It must be that of the estimate, {std.shape}."
        )
    return np.divide(result.estimate - exact, std, out=np.full(std.shape, np.nan), where=std > 0)
