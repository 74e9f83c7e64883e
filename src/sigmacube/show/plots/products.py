"""Pictures of products: maps beside their sigma, regions with their intervals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from sigmacube.core.levels import half_width
from sigmacube.show.look import BLUE, CURVES
from sigmacube.show.plots.color import false_color
from sigmacube.show.plots.maps import sigma_map
from sigmacube.show.plots.spectra import is_thin, spectrum, two_panels
from sigmacube.show.plots.theme import draw_map, new_axes, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class _Made(Protocol):
    """The fields of a `Product` that pictures are made of."""

    @property
    def name(self) -> str: ...
    @property
    def estimate(self) -> np.ndarray: ...
    @property
    def std(self) -> np.ndarray: ...
    @property
    def dims(self) -> tuple[str, ...]: ...
    @property
    def wavelengths(self) -> np.ndarray | None: ...
    @property
    def regions(self) -> np.ndarray | None: ...


def product(source: _Made, *, level: float = 0.95) -> np.ndarray:
    """Draw a product with its error: maps beside maps of σ, regions with intervals.

    Where intervals are too narrow to be seen, a second panel shows them about the estimate.

    Parameters
    ----------
    source
        A `Product`.
    level
        Coverage of the intervals of regions.

    Returns
    -------
    ndarray
        The Axes, one after the other.
    """
    import matplotlib.pyplot as plt

    mapped = source.dims[0] == "row"
    with style():
        if not mapped:
            return _regions(source, level)
        rows, cols = source.estimate.shape[:2]
        size = (8.4, min(max(3.4 * rows / cols, 1.6), 5.5) + 0.6)
        axes = plt.figure(figsize=size, layout="constrained").subplots(1, 2)
        _maps(source, axes)
    return axes


def _maps(source: _Made, axes: np.ndarray) -> None:
    estimate, std = np.asarray(source.estimate), np.asarray(source.std)
    if estimate.ndim == 3:
        false_color(estimate, wavelengths=source.wavelengths, ax=axes[0])
        sigma_map(std, ax=axes[1])
        return
    for ax, values, title in zip(axes, (estimate, std), ("", "σ of "), strict=True):
        draw_map(values, ax, f"{title}{source.name}", f"{title}{source.name}")


def _regions(source: _Made, level: float) -> np.ndarray:
    estimate, std = np.asarray(source.estimate), np.asarray(source.std)
    half = half_width(level) * std
    ax, below = two_panels() if is_thin(estimate, half) else (new_axes(), None)
    names = np.arange(len(estimate)) if source.regions is None else source.regions
    if estimate.ndim == 2:
        for number, (values, error, name) in enumerate(zip(estimate, std, names, strict=True)):
            color = CURVES[number % len(CURVES)]
            nm = source.wavelengths
            spectrum(values, error, wavelengths=nm, label=str(name), color=color, level=level,
                     ax=ax, below=below)  # fmt: skip
        ax.set_ylabel(source.name)
    else:
        _dots(estimate, half, [str(name) for name in names], ax, below)
        ax.set_ylabel(f"{source.name}, {100 * level:g} % interval")
    return np.array([ax] if below is None else [ax, below])


def _dots(
    estimate: np.ndarray, half: np.ndarray, names: list[str], ax: Axes, below: Axes | None
) -> None:
    """Draw one value per region with its interval, and the interval alone below."""
    at = np.arange(len(estimate))
    bars: dict[str, Any] = {"fmt": "o", "color": BLUE, "capsize": 3, "ms": 4}
    ax.errorbar(at, estimate, yerr=half, **bars)
    if below is not None:
        below.errorbar(at, np.zeros(len(at)), yerr=half, **bars)
        below.set_ylabel("difference")
    lowest = ax if below is None else below
    lowest.set_xticks(at, names)
    lowest.set_xlim(-0.5, len(at) - 0.5)
    lowest.set_xlabel("region")
