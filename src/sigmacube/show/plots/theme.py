"""How pictures look: colours, fonts, frames, the colourbar of a map."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec

import matplotlib as mpl
import numpy as np
from matplotlib.colors import BoundaryNorm, Normalize
from matplotlib.ticker import MaxNLocator

from sigmacube.show.look import INK, NO_DATA

if TYPE_CHECKING:
    from matplotlib.axes import Axes

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

_Args = ParamSpec("_Args")


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


def styled(draw: Callable[_Args, Axes]) -> Callable[_Args, Axes]:
    """Draw in the package's style on a new figure, and in the caller's on Axes of their own."""

    @wraps(draw)
    def styled(*args: _Args.args, **kwargs: _Args.kwargs) -> Axes:
        if kwargs.get("ax") is not None:
            return draw(*args, **kwargs)
        with style():
            return draw(*args, **kwargs)

    return styled


def new_axes() -> Axes:
    """Return the Axes of a new figure."""
    import matplotlib.pyplot as plt

    return plt.subplots(figsize=(6.4, 4.4), layout="constrained")[1]


def image_axes(ax: Axes | None) -> Axes:
    """Frame a picture: all four sides, few ticks, pixels as units."""
    ax = new_axes() if ax is None else ax
    ax.spines[:].set(visible=True, linewidth=0.6)
    ax.set_xlabel("column")
    ax.set_ylabel("row")
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(MaxNLocator(5, integer=True, steps=[1, 2, 5, 10]))
    return ax


def draw_map(
    values: np.ndarray,
    ax: Axes | None,
    title: str,
    label: str,
    *,
    cmap: Any = "viridis",
    vmin: float | None = None,
    vmax: float | None = None,
    norm: Normalize | None = None,
) -> Axes:
    """Draw an image with a colourbar as high as itself, and their names; no value is light grey."""
    colors = mpl.colormaps[cmap] if isinstance(cmap, str) else cmap
    colors = colors.with_extremes(bad=NO_DATA)
    ax = image_axes(ax)
    if norm is None:
        low = percentile(values, 1) if vmin is None else vmin
        high = percentile(values, 99) if vmax is None else vmax
        # A constant map still needs a range, or its colourbar has no ticks.
        norm = Normalize(low, high if high > low else low + max(abs(low), 1.0) * 1e-3)
    image = ax.imshow(values, cmap=colors, norm=norm)
    # An inset keeps the axes' own height, whatever the figure's layout; its width is a share of
    # the axes' width, so a narrow scene needs a larger one.
    widen = max(1.0, values.shape[0] / values.shape[1])
    bar_axes = ax.inset_axes((1 + 0.03 * widen, 0.0, 0.04 * widen, 1.0))
    ax.figure.colorbar(image, cax=bar_axes, extend=_extend(values, norm), label=label)
    bar_axes.spines[:].set_linewidth(0.6)
    ax.set_title(title)
    return ax


def _extend(values: np.ndarray, norm: Normalize) -> Any:
    """Say on which sides of the colour scale values lie."""
    finite = values[np.isfinite(values)]
    if isinstance(norm, BoundaryNorm) or finite.size == 0:
        return "neither"
    below, above = finite.min() < (norm.vmin or 0.0), finite.max() > (norm.vmax or 0.0)
    return ("neither", "min", "max", "both")[bool(below) + 2 * bool(above)]


def colorbar_of(ax: Axes) -> Any:
    """Return the colourbar of the image on ``ax``."""
    return ax.images[0].colorbar


def percentile(values: np.ndarray, share: float) -> float:
    """Return a percentile of the finite values; 0 where there are none."""
    finite = values[np.isfinite(values)]
    return float(np.percentile(finite, share)) if finite.size else 0.0
